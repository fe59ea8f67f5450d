"""The checkpoint store: a run's whole state is one tree, saved so that a kill at any moment costs at most one save.

A tree is nested dicts with str keys, lists (tuples become lists), tensors, numpy arrays and scalars, and plain Python
values. A checkpoint is a folder `step-00000042` of these files, none of them a pickle:

    tensors.safetensors   every tensor and array, readable by any safetensors reader
    frozen.safetensors    those that never change (reference models), if there are any: one file, which is a hard link
                          in all checkpoints, so that it is written once
    slice-001.safetensors further slices of some of these arrays, one file for each rank after the first that holds
                          them; loading joins them to the first ones, so that any number of ranks reads them
    state.json            the tree, with {"$": [kind, name]} where an array stood
    manifest.json         format, step, size and sha256 of the files, the caller's facts, and its own sha256

Saving fsyncs a unique temporary folder, renames it, fsyncs the parent, and only then deletes superseded ones. A step
saved again is `step-00000042.1` until the old one is gone. Loading verifies; going back sets later ones aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from assay.core.digests import Digest, file_digest
from assay.core.errors import AssayError
from assay.core.locks import LOCK as LOCK
from assay.core.locks import RunLocked as RunLocked
from assay.core.locks import holder as holder
from assay.core.locks import is_locked as is_locked
from assay.core.locks import lock as lock
from assay.core.locks import open_own as open_own
from assay.core.trees import DTYPES as DTYPES
from assay.core.trees import JSON as JSON
from assay.core.trees import Encoded, decode, encode, encoded, tensor_blocks
from assay.core.trees import Tree as Tree
from assay.core.trees import difference as difference

FORMAT, CHUNK = 1, 1 << 20
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
FROZEN = "frozen.safetensors"
SLICE = re.compile(r"slice-\d{3,}\.safetensors")
STEP_NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError)


class CheckpointError(AssayError):
    """A checkpoint could not be saved, or none could be loaded; the message is one sentence that names the path."""


@dataclass(frozen=True)
class Checkpoint:
    """One verified checkpoint; `skipped` lists why newer ones were rejected."""

    step: int
    tree: Any
    manifest: Mapping[str, Any]
    path: Path
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slice:
    """A file of slices that a rank has written, which `save` moves into the checkpoint; its size and sha256."""

    path: Path
    entry: Mapping[str, Any]


def save_slice(folder: Path, step: int, tree: Tree) -> Slice:
    """Writes the arrays of a tree into a temporary file beside the checkpoints: this rank's slices of those that have
    the same paths in the tree that rank 0 saves.
    """
    with _temporary(Path(folder) / f"step-{step:08d}.slice", "step-.*") as temp:
        return Slice(temp, _write_file(temp, tensor_blocks(encoded(tree).tensors)))


def save(
    folder: Path,
    step: int,
    tree: Tree | Encoded,
    *,
    facts: Mapping[str, JSON],
    keep: int = 2,
    besides: Collection[int] = (),
    frozen: Sequence[str] = (),
    slices: Sequence[Slice] = (),
) -> Path:
    """Saves the tree as the newest checkpoint of the folder, then prunes to the newest `keep` complete ones and those
    of the steps `besides`. Arrays below the paths `frozen` are linked from an earlier checkpoint that has the same.
    `slices` are those of the other ranks, in their order. A tree that cannot be stored raises TypeError or ValueError
    naming the place, before the disk is touched.
    A full or failing disk raises CheckpointError; partial files are removed, complete checkpoints stay intact.
    """
    if type(step) is not int or step < 0 or keep < 1:
        raise ValueError(f"step must be an int of at least 0 and keep at least 1, got step={step!r}, keep={keep!r}")
    ready = tree if isinstance(tree, Encoded) else encoded(tree)
    contents: dict[str, Any] = {"format": FORMAT, "step": step, "facts": encode(facts, "facts", None)}
    plain = Path(folder) / f"step-{step:08d}"
    with _temporary(plain, "step-.*") as temp:
        os.mkdir(temp)
        still = {name: tensor for name, tensor in ready.tensors.items() if name.startswith(tuple(frozen))}
        moving = {name: tensor for name, tensor in ready.tensors.items() if name not in still}
        tensors = _write_file(temp / TENSORS, tensor_blocks(moving))
        contents["files"] = {TENSORS: tensors, STATE: _write_file(temp / STATE, [ready.state])}
        if still:
            contents["files"][FROZEN] = _linked_file(temp / FROZEN, still, _listing(plain.parent))
        for place, one in enumerate(slices, 1):
            os.rename(one.path, temp / f"slice-{place:03d}.safetensors")
            contents["files"][f"slice-{place:03d}.safetensors"] = dict(one.entry)
        _write_file(temp / MANIFEST, [json.dumps(contents | {"sha256": _digest(contents)}, indent=1).encode()])
        _sync_folder(temp)
        final = _published(temp, plain, step)
        _retire_others(final, step, keep, besides)
        if final != plain:
            os.rename(final, plain)
    return plain


def _published(temp: Path, plain: Path, step: int) -> Path:
    """Gives a complete checkpoint its name, and those of later steps, which a resumed run has left behind, another one;
    returns the name: with a generation while an earlier checkpoint of the step is there.
    """
    listing = _listing(plain.parent)
    generations = [generation for other, generation, _ in listing if other == step]
    final = plain.with_name(f"{plain.name}.{max(generations) + 1}") if generations else plain
    os.rename(temp, final)
    for other, _, path in reversed(listing):
        if other > step:  # the newest last, so that it loads until it is gone
            os.rename(path, path.with_name(f"abandoned-{path.name}-{os.urandom(4).hex()}"))
    _sync_folder(plain.parent)
    return final


def _linked_file(path: Path, tensors: Mapping[str, Any], listing: Iterable[tuple[int, int, Path]]) -> dict[str, Any]:
    """Makes a file of tensors: a hard link to that of an earlier checkpoint if it has the same hash, else a new file,
    also on a disk without links; returns its size and sha256.
    """
    with Digest() as digest:
        for block in tensor_blocks(tensors):
            digest.update(block)
        found = digest.entry()
    for _, _, other in listing:
        with suppress(CheckpointError, *UNREADABLE):
            entry = _read_manifest(other)["files"].get(FROZEN)
            if entry == found:
                os.link(other / FROZEN, path)
                return dict(entry)
    return _write_file(path, tensor_blocks(tensors))


def _retire_others(final: Path, step: int, keep: int, besides: Collection[int]) -> None:
    """Removes checkpoints that `final` supersedes and those older than the newest `keep` complete ones.
    After a power cut a half-deleted one may reappear under its old name; it is older and fails its manifest.
    """
    num_kept = 1
    for other, _, path in _listing(final.parent):
        if path != final and (other == step or (num_kept >= keep and other not in besides)):
            tombstone = path.with_name(f".dead-{_owner()}-{os.urandom(4).hex()}-{path.name}")
            os.rename(path, tombstone)
            _remove(tombstone)
        elif path != final:
            with suppress(CheckpointError, *UNREADABLE):
                _read_manifest(path)
                num_kept += 1


def load(folder: Path) -> Checkpoint | None:
    """Returns the newest checkpoint that passes verification; None if the folder has no checkpoints.
    Raises CheckpointError if there are some and none is valid. Deletes and repairs nothing.
    """
    listing, skipped = _listing(Path(folder)), list[str]()
    for _, _, path in listing:
        try:
            return replace(load_path(path), skipped=tuple(skipped))
        except CheckpointError as error:
            if not os.path.lexists(path):
                return load(folder)  # a live run has just replaced or pruned it
            skipped.append(str(error))
    if listing:
        raise CheckpointError(f"none of the {len(listing)} checkpoints in {folder} is valid: {'; '.join(skipped)}")
    return None


def saved_steps(folder: Path) -> list[int]:
    """Returns the steps that the folder has checkpoints of, in order; they are not verified."""
    return sorted({step for step, _, _ in _listing(Path(folder))})


def load_step(folder: Path, step: int) -> Checkpoint:
    """Returns the verified checkpoint of a step; CheckpointError names the steps there are if it is missing."""
    paths = [path for other, _, path in _listing(Path(folder)) if other == step]
    if not paths:
        there = ", ".join(map(str, saved_steps(folder))) or "none"
        raise CheckpointError(f"{folder} has no checkpoint of step {step}; it has {there}")
    return load_path(paths[0])


def load_path(path: Path) -> Checkpoint:
    """Returns the verified checkpoint in this folder; raises CheckpointError naming the file and what differs.
    Leaves that shared memory when saved share it again; all are on the CPU, in memory separate from the file.
    """
    path = Path(path)
    try:
        manifest = _read_manifest(path)
        for name in manifest["files"]:
            entry = manifest["files"][name]
            sha256, expected = file_digest(path / name, entry.get("part")), entry["sha256"]
            if sha256 != expected:
                raise CheckpointError(f"{path / name} has sha256 {sha256[:16]}, its manifest says {expected[:16]}")
        tensors: dict[str, Any] = {}
        for name in sorted(set(manifest["files"]) - {STATE}, key=lambda name: (bool(SLICE.fullmatch(name)), name)):
            with safe_open(path / name, framework="pt") as stored:
                for each in stored.keys():  # noqa: SIM118
                    found = stored.get_tensor(each)
                    tensors[each] = torch.cat([tensors[each], found]) if SLICE.fullmatch(name) else found.clone()
        return Checkpoint(manifest["step"], decode(json.loads((path / STATE).read_bytes()), tensors), manifest, path)
    except UNREADABLE as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error})") from error


def _read_manifest(path: Path) -> Any:
    """Returns the manifest if it is complete and the files it names have the recorded sizes."""
    file, name = path / MANIFEST, STEP_NAME.fullmatch(path.name)
    if not file.is_file():
        raise CheckpointError(f"{file} is missing, so {path.name} cannot be verified")
    encoded = json.loads(file.read_bytes())
    if encoded.get("format") != FORMAT:
        raise CheckpointError(f"{file} has format {encoded.get('format')!r}, this version reads {FORMAT}")
    if encoded.pop("sha256", None) != _digest(encoded):
        raise CheckpointError(f"{file} does not match its own sha256")
    if name and int(name[1]) != encoded["step"]:
        raise CheckpointError(f"{file} is of step {encoded['step']}, but its folder is named {path.name}")
    names = {name for name in encoded["files"] if not SLICE.fullmatch(name)}
    if not {TENSORS, STATE} <= names <= {TENSORS, STATE, FROZEN}:
        raise CheckpointError(f"{file} names other files than a checkpoint has")
    for part in (path / name for name in encoded["files"]):
        if not part.is_file():
            raise CheckpointError(f"{part} is missing")
        size, expected = part.stat().st_size, encoded["files"][part.name]["size"]
        if size != expected:
            raise CheckpointError(f"{part} has {size} bytes, its manifest says {expected}")
    return decode(encoded, {})


def write_text(path: Path, text: str) -> None:
    """Replaces a file atomically: a reader, or a run killed at any moment, sees the old text or the new one. Half a
    surrogate pair is written as an escape.
    """
    with _temporary(Path(path), re.escape(os.path.basename(path))) as temp:
        _write_file(temp, [text.encode(errors="backslashreplace")])
        os.rename(temp, path)
        _sync_folder(temp.parent)


def check_target(path: Path, option: str = "") -> None:
    """Raises AssayError for a path that is no new or plain file: `write_text` would put a file in its place."""
    if path.is_dir():
        raise AssayError(f"{option}{path} is a folder. Name a file.")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise AssayError(f"{option}{path} is a symbolic link or no plain file. Name another file.")


def write_json(path: Path, value: JSON) -> None:
    """Writes indented JSON by `write_text`; floats are exact, nan and the infinities are {"$": ["float", "nan"]}."""
    write_text(path, json.dumps(encode(value, "", None), indent=1) + "\n")


def fingerprint(value: JSON) -> str:
    """Returns sixteen hex digits that depend on the value alone, not on the order of its keys."""
    return _digest(encode(value, "", None))[:16]


def _digest(encoded: Any) -> str:
    return hashlib.sha256(json.dumps(encoded, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _write_file(path: Path, blocks: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Writes a new file and fsyncs it; returns its size and sha256."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with Digest() as digest:
            for block in blocks:
                digest.update(block)
                rest = memoryview(block)
                while rest:
                    rest = rest[os.write(descriptor, rest[:CHUNK]) :]
            os.fsync(descriptor)
            return digest.entry()
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _listing(folder: Path) -> list[tuple[int, int, Path]]:
    """Returns step, generation and path of everything named like a checkpoint, newest first."""
    matches = map(STEP_NAME.fullmatch, os.listdir(folder) if os.path.lexists(folder) else [])
    return sorted(((int(name[1]), int(name[2] or 0), folder / name[0]) for name in matches if name), reverse=True)


@contextmanager
def _temporary(target: Path, family: str) -> Iterator[Path]:
    """Yields a unique name beside the target and removes it on failure; first deletes leftovers of this machine's dead
    processes. On a shared folder those of another machine may be alive.
    """
    here, temp = _owner(), target.with_name(f".tmp-{_owner()}-{os.urandom(4).hex()}-{target.name}")
    leftover = re.compile(rf"\.(?:tmp|dead)-(?P<host>[0-9a-f]{{8}}\.)?(?P<pid>\d+)-[0-9a-f]+-{family}")
    try:
        os.makedirs(target.parent, exist_ok=True)
        _sync_folder(target.parent.parent)
        for name in filter(None, map(leftover.fullmatch, os.listdir(target.parent))):
            is_ours = name["host"] in (None, here[:9])  # without a host: of an earlier version
            if is_ours and (int(name["pid"]) == os.getpid() or not os.path.exists(f"/proc/{name['pid']}")):
                with suppress(FileNotFoundError):  # another rank of this run removes it too
                    _remove(target.with_name(name[0]))
        yield temp
    except BaseException as error:
        with suppress(OSError):
            _remove(temp)
        if isinstance(error, OSError):
            what = f"{target} could not be written completely; earlier complete files are intact"
            raise CheckpointError(f"{what}: {error.filename or temp}: {error.strerror or error}") from error
        raise


def _owner() -> str:
    """Returns this machine and process, for names of temporary files: eight hex digits, a dot, the process."""
    return f"{hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]}.{os.getpid()}"


def _remove(path: Path) -> None:
    (shutil.rmtree if path.is_dir() and not path.is_symlink() else os.unlink)(path)
