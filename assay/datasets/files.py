"""Reads and writes offline datasets; the file's ending selects the format. Nothing is ever unpickled.

NAME.safetensors is our own format, the columns and their description; NAME.npz the same columns for numpy, OGBench's or
NeoRL-2's; NAME.hdf5 and .h5 D4RL's layout (observations, actions, rewards, terminals, timeouts, next_observations); a
FOLDER Minari's local layout (data/main_data.hdf5 and metadata.json) or LeRobot's (meta/info.json and tables in data/),
which is only read, as is minari:ID, a Minari dataset by its package.

Axes: N rows of a column.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from assay.core.errors import AssayError
from assay.datasets.dataset import NEEDED, OPTIONAL, REWARDS, Dataset
from assay.tasks.adapters import hdf5

MINARI = "minari:"
AGENT = ("agent", "step", "score", "share")
"""What a description says under `at` of the agent that made the data."""
HDF5 = (".hdf5", ".h5")
ABOUT, HASH = "assay", "hash"
FLAGS, NUMBERS = ("terminal", "truncated", "success", "acted"), ("reward", "logp")
"""Columns of true or false, and of one number in each row."""


def read(address: str | Path) -> Dataset:
    """Returns the dataset of a file, a Minari folder, or minari:ID; raises AssayError with the address and the
    reason.
    """
    name, path = str(address), Path(address)
    if not name:
        raise AssayError("--data is empty. Name a file, a Minari folder, or minari:ID")
    try:
        found = read_any(name, path)
        check_about(found.about)
        return found
    except AssayError as error:
        raise AssayError(f"data {name}: {error}") from None
    except MemoryError:
        raise AssayError(f"data {name}: it needs more memory than there is. Use a smaller file") from None
    except Exception as error:  # what readers raise at damaged files is no list: errors of C, of zip, of tokens
        told = f"{type(error).__name__}: {error}"
        raise AssayError(f"data {name}: it cannot be read ({told}). Check that it is complete") from error


def read_any(name: str, path: Path) -> Dataset:
    """Returns the dataset of an address, in the layout that it has; raises AssayError without the address."""
    if name.startswith(MINARI):
        from assay.tasks.adapters.minari import minari_episodes

        return from_arrays(*hdf5.join_episodes(minari_episodes(name.removeprefix(MINARI)), name))
    if not path.exists():
        raise AssayError("there is no such file or folder")
    if path.is_dir():
        if not (path / "meta" / "info.json").is_file():
            return from_arrays(*hdf5.read_minari(path))
        from assay.tasks.adapters.lerobot import read_lerobot  # here: other data do not need it

        return from_arrays(*read_lerobot(path))
    if not path.is_file():  # a pipe or a device has no end
        raise AssayError("it is no plain file. Write the data into a file")
    if path.suffix in HDF5:
        return from_arrays(*hdf5.read_file(path))
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    raise AssayError(f"'{path.suffix}' is not a known ending. Use .safetensors, .npz, .hdf5 or a folder")


def check_about(about: Mapping[str, Any]) -> None:
    """Raises AssayError if a description is not in the form in which this library writes it."""
    rules, agent = about.get("altered", []), about.get("at", dict.fromkeys(AGENT, 0))
    if not (isinstance(rules, list) and all(isinstance(one, Mapping) and "rule" in one for one in rules)):
        raise AssayError(f"its description has {short(rules)} as 'altered'. Write a list of rules, or leave it out")
    numbers = [agent.get(name) for name in AGENT[1:]] if isinstance(agent, Mapping) and AGENT[0] in agent else [None]
    if not all(isinstance(number, int | float) for number in numbers):
        raise AssayError(f"its description has {short(agent)} as 'at'. Write {', '.join(AGENT)}, or leave it out")


def short(value: Any) -> str:
    """Returns the beginning of a value's text."""
    return repr(value)[:60]


def write(data: Dataset, path: str | Path) -> Path:
    """Writes the file atomically; the ending selects the layout, and no ending means a Minari folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: column.numpy() for name, column in data.columns()}
    if path.suffix in HDF5:
        with_temporary(path, lambda temp: hdf5.write_d4rl(temp, arrays, json.dumps(dict(data.about))))
    elif path.suffix == ".npz":
        with_temporary(path, lambda temp: write_npz(temp, arrays, data))
    elif path.suffix == ".safetensors":
        words = {ABOUT: json.dumps(dict(data.about)), HASH: data.hash}
        tensors = {name: column.contiguous() for name, column in data.columns()}
        with_temporary(path, lambda temp: temp.write_bytes(save(tensors, words)))
    elif not path.suffix:
        hdf5.write_minari(path, arrays, data.bounds, dict(data.about))
    else:
        ending = f"{path}: '{path.suffix}' is not a known ending"
        raise AssayError(f"{ending}. Use .safetensors, .npz, .hdf5 or none (Minari)")
    return path


def with_temporary(path: Path, write_to: Any) -> None:
    """Writes beside the path, then renames: readers see the old file or the new one."""
    temp = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        write_to(temp)
        os.replace(temp, path)
    finally:
        temp.unlink(missing_ok=True)


# ---------------------------------------------------------------------------------------------------- our own files
def read_safetensors(path: Path) -> Dataset:
    """Reads our own format; raises AssayError if the hash is not that of the contents."""
    try:
        with safe_open(str(path), framework="pt") as file:
            words = file.metadata() or {}
            arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError) as error:
        raise AssayError(f"it cannot be read ({error}). Check that the file is complete") from None
    return verified(from_arrays(arrays, parsed(words.get(ABOUT))), words.get(HASH))


def read_npz(path: Path) -> Dataset:
    """Reads the same columns as arrays; raises AssayError for pickled objects."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise AssayError(f"it cannot be read without unpickling ({error}). Write plain arrays") from None
    about, saved = (str(arrays.pop(name)) if name in arrays else None for name in (ABOUT, HASH))
    if "obs" in arrays and "next_obs" in arrays:
        return from_arrays(hdf5.columns_of_d4rl(hdf5.named_as_d4rl(arrays)), parsed(about))
    if "observation" not in arrays and "observations" in arrays:
        return from_arrays(hdf5.columns_of_d4rl(arrays), parsed(about))
    return verified(from_arrays(arrays, parsed(about)), saved)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], data: Dataset) -> None:
    """Writes the columns, their description, and their hash."""
    words = {ABOUT: np.array(json.dumps(dict(data.about))), HASH: np.array(data.hash)}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays, **words)


def verified(data: Dataset, saved: str | None) -> Dataset:
    """Returns the data; raises AssayError if their hash is not the saved one."""
    if saved is not None and saved != data.hash:
        raise AssayError(f"its hash is {data.hash}, but {saved} was written: the file was changed or damaged")
    return data


def parsed(words: str | None) -> dict[str, Any]:
    """Returns the description of a dataset, empty without one."""
    try:
        found = json.loads(words) if words else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# ---------------------------------------------------------------------------------------------------- columns
def from_arrays(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Dataset:
    """Returns the dataset of named columns, converted to float32 vectors, int64 discrete values and bool ends."""
    found = {name: array for name, array in arrays.items() if name in (*NEEDED, *OPTIONAL)}
    odd = [name for name, array in found.items() if array.dtype.kind not in "biuf"]
    if odd:
        raise AssayError(f"'{odd[0]}' holds {found[odd[0]].dtype}, not numbers. A dataset holds numbers only")
    plain = {name: np.ascontiguousarray(column(name, array)) for name, array in found.items()}
    return from_columns({name: torch.from_numpy(array) for name, array in plain.items()}, about)


def from_columns(columns: Mapping[str, Tensor], about: Mapping[str, Any]) -> Dataset:
    """Returns the dataset; raises AssayError if a required column is missing. Rewards may be: they are zeros then, and
    the description says so.
    """
    for name, values in ((name, columns[name]) for name in (*NEEDED, *OPTIONAL) if name in columns):
        if not values.ndim or (name in (*FLAGS, *NUMBERS) and values.ndim > 1):
            raise AssayError(f"'{name}' has shape {list(values.shape)}. It needs one row per decision")
        if name in FLAGS and values.dtype is not torch.bool:
            raise AssayError(f"'{name}' holds {values.dtype}. It needs true or false in each row")
    if "reward" not in columns and "terminal" in columns:
        columns, about = {**columns, "reward": torch.zeros(len(columns["terminal"]))}, {**about, REWARDS: False}
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        there = ", ".join(sorted(columns)) or "none of them"
        raise AssayError(f"it has no column {', '.join(missing)} (it has {there})")
    known = {name: columns[name] for name in (*NEEDED, *OPTIONAL) if name in columns}
    return Dataset(**known, about=about)


def column(name: str, array: np.ndarray) -> np.ndarray:
    """Returns one column in its shape and number type."""
    if not array.ndim:
        raise AssayError(f"'{name}' has shape []. It needs one row per decision")
    rows = len(array)
    if not rows:
        raise AssayError(f"'{name}' has no rows. Record at least one episode")
    if not array.size:
        raise AssayError(f"'{name}' has shape {array.shape}, no numbers in a row. Record at least one")
    if name in FLAGS:
        return hdf5.flags(name, array)
    if name in NUMBERS:
        if array.size != rows:
            raise AssayError(f"'{name}' has shape {array.shape}. It needs one number per row")
        return array.reshape(rows).astype(np.float32)
    if array.dtype.kind in "biu" and array.size == rows:
        return array.reshape(rows).astype(np.int64)
    return array.reshape(rows, -1).astype(np.float32)
