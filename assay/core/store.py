"""The checkpoint store: a run's whole state is one tree, saved so that a kill at any moment costs at most one save.

A tree is nested dicts with str keys, lists (tuples become lists), tensors, numpy arrays and scalars, and plain Python
values. A checkpoint is a folder `step-00000042` of three files, none of them a pickle:

    tensors.safetensors   every tensor and array, readable by any safetensors reader
    state.json            the tree, with {"$": [kind, name]} where an array stood
    manifest.json         format, step, size and sha256 of both files, the caller's facts, and its own sha256

Saving fsyncs a unique temporary folder, renames it, fsyncs the parent, and only then deletes superseded ones. A step
saved again is `step-00000042.1` until the old one is gone. Loading verifies; going back sets later ones aside.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from assay.core.errors import AssayError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Tree: TypeAlias = "torch.Tensor | np.ndarray[Any, Any] | np.generic | JSON | Sequence[Tree] | Mapping[str, Tree]"

FORMAT, CHUNK = 1, 1 << 20
TENSORS, STATE, MANIFEST, LOCK = "tensors.safetensors", "state.json", "manifest.json", "run.lock"
PLAIN = (torch.Tensor, torch.nn.Parameter, np.ndarray, np.memmap)
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64", "int64": "I64",
    "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
STEP_NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError)
_held: set[int] = set()  # the lock files this process has open


class CheckpointError(AssayError):
    """A checkpoint could not be saved, or none could be loaded; the message is one sentence that names the path."""


class RunLocked(AssayError):
    """Another process holds the run folder; the message says which, since when, and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """One verified checkpoint; `skipped` lists why newer ones were rejected."""

    step: int
    tree: Any
    manifest: Mapping[str, Any]
    path: Path
    skipped: tuple[str, ...] = ()


def save(folder: Path, step: int, tree: Tree, *, facts: Mapping[str, JSON], keep: int = 2) -> Path:
    """Saves the tree as the newest checkpoint of the folder, then prunes to the newest `keep` complete ones.
    A tree that cannot be stored raises TypeError or ValueError naming the place, before the disk is touched.
    A full or failing disk raises CheckpointError; partial files are removed, complete checkpoints stay intact.
    """
    if type(step) is not int or step < 0 or keep < 1:
        raise ValueError(f"step must be an int of at least 0 and keep at least 1, got step={step!r}, keep={keep!r}")
    arrays = _Arrays()
    state = json.dumps(_encode(tree, "", arrays)).encode()
    contents: dict[str, Any] = {"format": FORMAT, "step": step, "facts": _encode(facts, "facts", None)}
    plain = Path(folder) / f"step-{step:08d}"
    with _temporary(plain, "step-.*") as temp:
        os.mkdir(temp)
        tensors = _write_file(temp / TENSORS, _tensor_blocks(arrays.by_name))
        contents["files"] = {TENSORS: tensors, STATE: _write_file(temp / STATE, [state])}
        _write_file(temp / MANIFEST, [json.dumps(contents | {"sha256": _digest(contents)}, indent=1).encode()])
        _sync_folder(temp)
        listing = _listing(plain.parent)
        generations = [generation for other, generation, _ in listing if other == step]
        final = plain.with_name(f"{plain.name}.{max(generations) + 1}") if generations else plain
        os.rename(temp, final)
        for other, _, path in reversed(listing):
            if other > step:  # the newest last, so that it loads until it is gone
                os.rename(path, path.with_name(f"abandoned-{path.name}-{os.urandom(4).hex()}"))
        _sync_folder(plain.parent)
        _retire_others(final, step, keep)
        if final != plain:
            os.rename(final, plain)
    return plain


def _retire_others(final: Path, step: int, keep: int) -> None:
    """Removes checkpoints that `final` supersedes and those older than the newest `keep` complete ones.
    After a power cut a half-deleted one may reappear under its old name; it is older and fails its manifest.
    """
    num_kept = 1
    for other, _, path in _listing(final.parent):
        if path != final and (other == step or num_kept >= keep):
            tombstone = path.with_name(f".dead-{os.getpid()}-{os.urandom(4).hex()}-{path.name}")
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


def load_path(path: Path) -> Checkpoint:
    """Returns the verified checkpoint in this folder; raises CheckpointError naming the file and what differs.
    Leaves that shared memory when saved share it again; all are on the CPU, in memory separate from the file.
    """
    path = Path(path)
    try:
        manifest = _read_manifest(path)
        for name in (TENSORS, STATE):
            with (path / name).open("rb") as stream:
                sha256, expected = hashlib.file_digest(stream, "sha256").hexdigest(), manifest["files"][name]["sha256"]
            if sha256 != expected:
                raise CheckpointError(f"{path / name} has sha256 {sha256[:16]}, its manifest says {expected[:16]}")
        with safe_open(path / TENSORS, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name).clone() for name in stored.keys()}  # noqa: SIM118
        return Checkpoint(manifest["step"], _decode(json.loads((path / STATE).read_bytes()), tensors), manifest, path)
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
    for part in (path / TENSORS, path / STATE):
        if not part.is_file():
            raise CheckpointError(f"{part} is missing")
        size, expected = part.stat().st_size, encoded["files"][part.name]["size"]
        if size != expected:
            raise CheckpointError(f"{part} has {size} bytes, its manifest says {expected}")
    return _decode(encoded, {})


def write_text(path: Path, text: str) -> None:
    """Replaces a file atomically: a reader, or a run killed at any moment, sees the old text or the new one."""
    with _temporary(Path(path), re.escape(os.path.basename(path))) as temp:
        _write_file(temp, [text.encode()])
        os.rename(temp, path)
        _sync_folder(temp.parent)


def write_json(path: Path, value: JSON) -> None:
    """Writes indented JSON by `write_text`; floats are exact, nan and the infinities are {"$": ["float", "nan"]}."""
    write_text(path, json.dumps(_encode(value, "", None), indent=1) + "\n")


def fingerprint(value: JSON) -> str:
    """Returns sixteen hex digits that depend on the value alone, not on the order of its keys."""
    return _digest(_encode(value, "", None))[:16]


def difference(a: Tree, b: Tree) -> list[str]:
    """Returns the paths at which two trees differ in type, dtype, shape or any bit, except that nan equals nan.
    Tuples equal lists, parameters equal tensors, and devices are not compared, since none of these is stored.
    """
    return list(_differences(a, b, ""))


def _differences(a: Any, b: Any, path: str) -> Iterator[str]:
    if any(isinstance(a, kind) and isinstance(b, kind) for kind in (Mapping, list | tuple)):
        x, y = (dict(node) if isinstance(node, Mapping) else dict(enumerate(node)) for node in (a, b))
        for key in x | y:
            inside = f"{path}.{key}" if path else str(key)
            yield from _differences(x[key], y[key], inside) if key in x and key in y else [inside]
    elif not _same(a, b):
        yield path or "root"


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b) and not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    if not isinstance(a, torch.Tensor | np.ndarray | np.generic | float):
        return bool(a == b)
    x, y = _as_tensor(a), _as_tensor(b)
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    x, y = (torch.view_as_real(z).flatten() if z.is_complex() else z for z in map(_flat, (x, y)))
    if torch.equal(x.view(torch.uint8), y.view(torch.uint8)):
        return True
    same = (x.view(torch.uint8) == y.view(torch.uint8)).view(-1, x.itemsize).all(dim=1)
    return bool((same | (x.to(torch.float64).isnan() & y.to(torch.float64).isnan())).all())


class _Arrays:
    """Collects the arrays of a tree under unique names; leaves that are the same memory are stored once."""

    def __init__(self) -> None:
        self.by_name: dict[str, torch.Tensor] = {}
        self._name_of: dict[tuple[object, ...], str] = {}

    def add(self, leaf: Any, path: str) -> str:
        """Returns the name under which the leaf is stored, taken from its path in the tree."""
        is_odd = isinstance(leaf, torch.Tensor) and (leaf.layout != torch.strided or leaf.is_meta)
        if type(leaf) not in PLAIN or is_odd or str(leaf.dtype).removeprefix("torch.") not in DTYPES:
            what = f"tree at {path or 'its root'} is a {type(leaf).__name__} of {leaf.dtype}"
            raise TypeError(f"{what}: only dense tensors and arrays of ordinary numbers can be stored")
        tensor = _as_tensor(leaf)
        where = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
        key = (*where, tensor.dtype, tensor.is_conj(), tensor.is_neg())
        if key in self._name_of and tensor.numel():
            return self._name_of[key]
        name = path or "root"
        while name in self.by_name or name == "__metadata__":
            name = f"{name}#{len(self.by_name)}"
        self.by_name[name], self._name_of[key] = tensor, name
        return name


def _encode(node: Any, path: str, arrays: _Arrays | None) -> Any:
    """Returns the tree as plain JSON values; arrays go to the collector, or raise TypeError without one."""
    if node is None or type(node) in (bool, int):
        return node
    if type(node) is float:
        return node if math.isfinite(node) else {"$": ["float", repr(node)]}
    if type(node) is str and not re.search("[\ud800-\udfff]", node):  # half a surrogate pair would not survive
        return node
    if isinstance(node, list | tuple):
        return [_encode(child, f"{path}.{index}" if path else f"{index}", arrays) for index, child in enumerate(node)]
    if isinstance(node, Mapping):
        if odd := [key for key in node if type(key) is not str]:
            raise TypeError(f"tree at {path or 'its root'} has the key {odd[0]!r}: keys must be str")
        children = {key: _encode(child, f"{path}.{key}" if path else key, arrays) for key, child in node.items()}
        return {"$": ["dict", children]} if "$" in children else children
    if arrays is not None and isinstance(node, torch.Tensor | np.ndarray | np.generic):
        kind = "tensor" if isinstance(node, torch.Tensor) else "array" if isinstance(node, np.ndarray) else "scalar"
        return {"$": [kind, arrays.add(np.asarray(node) if isinstance(node, np.generic) else node, path)]}
    raise TypeError(f"tree at {path or 'its root'} is a {type(node).__name__} that cannot be stored")


def _decode(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(node, list):
        return [_decode(child, tensors) for child in node]
    if not isinstance(node, dict):
        return node
    kind, value = node.get("$", ("dict", node))
    if kind == "dict":
        return {key: _decode(child, tensors) for key, child in value.items()}
    if kind == "float":
        return float(value)
    tensor = tensors[value]
    return tensor if kind == "tensor" else {"array": tensor.numpy(), "scalar": tensor.numpy()[()]}[kind]


def _tensor_blocks(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    """Yields a safetensors file: the header, then each tensor, widest elements first so that each is aligned.
    Written here because the writer of safetensors needs contiguous tensors and returns one copy of them all.
    """
    names = sorted(tensors, key=lambda name: -tensors[name].itemsize)
    header, end = {}, 0
    for name in names:
        dtype, start, end = DTYPES[str(tensors[name].dtype)[6:]], end, end + tensors[name].nbytes
        header[name] = {"dtype": dtype, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        yield memoryview(_flat(tensors[name]).view(torch.uint8).numpy())  # type: ignore[arg-type]


def _as_tensor(leaf: Any) -> torch.Tensor:
    """Returns the same memory as a tensor; a copy if it is not in C order, not writable, or of a negative stride."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    array = np.require(leaf, None, ["C", "W"])
    return torch.from_numpy(array.copy() if min(array.strides, default=0) < 0 else array)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the elements in C order on the CPU, with stride 1 even for one element, which reshape would not give."""
    return tensor.cpu().resolve_conj().resolve_neg().contiguous().as_strided((tensor.numel(),), (1,))


def _digest(encoded: Any) -> str:
    return hashlib.sha256(json.dumps(encoded, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _write_file(path: Path, blocks: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Writes a new file and fsyncs it; returns its size and sha256."""
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        for block in blocks:
            digest.update(block)
            size, rest = size + len(block), memoryview(block)
            while rest:
                rest = rest[os.write(descriptor, rest[:CHUNK]) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return {"size": size, "sha256": digest.hexdigest()}


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
    """Yields a unique name beside the target and removes it on failure; first deletes leftovers of dead processes."""
    temp = target.with_name(f".tmp-{os.getpid()}-{os.urandom(4).hex()}-{target.name}")
    leftover = re.compile(rf"\.(?:tmp|dead)-(\d+)-[0-9a-f]+-{family}")
    try:
        os.makedirs(target.parent, exist_ok=True)
        _sync_folder(target.parent.parent)
        for name in filter(None, map(leftover.fullmatch, os.listdir(target.parent))):
            if int(name[1]) == os.getpid() or not os.path.exists(f"/proc/{name[1]}"):
                _remove(target.with_name(name[0]))
        yield temp
    except BaseException as error:
        with suppress(OSError):
            _remove(temp)
        if isinstance(error, OSError):
            what = f"{target} could not be written completely; earlier complete files are intact"
            raise CheckpointError(f"{what}: {error.filename or temp}: {error.strerror or error}") from error
        raise


def _remove(path: Path) -> None:
    (shutil.rmtree if path.is_dir() and not path.is_symlink() else os.unlink)(path)


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Locks the run folder, into which one process at a time may save; raises RunLocked if it is locked.
    An flock, so the kernel releases it when the process dies for any reason; forked workers do not inherit it.
    """
    path = Path(folder) / LOCK
    os.makedirs(path.parent, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0).decode(errors="replace") or "a process that has only just started"
            raise RunLocked(f"{folder} is in use by {holder}. Wait for it, stop it, or choose another folder") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename} since {time.strftime('%F %T')}".encode())
        yield
    finally:
        _release_locks(descriptor)


def _release_locks(*descriptors: int) -> None:
    """Closes these lock files, or all; skips those that a forked child has closed already."""
    for descriptor in set(descriptors or _held) & _held:
        _held.discard(descriptor)
        os.close(descriptor)


os.register_at_fork(after_in_child=_release_locks)
