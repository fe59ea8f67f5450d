"""Offline datasets in HDF5 files: D4RL's flat layout and Minari's folder of episodes, with h5py alone.

Axes: N rows, T decisions of an episode. D4RL has one array for all episodes: `terminals` end them, `timeouts` truncate
them. Minari has one group per episode, with T + 1 observations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require

Arrays = dict[str, np.ndarray]
D4RL = {
    "observations": "observation", "actions": "action", "rewards": "reward", "terminals": "terminal",
    "timeouts": "truncated", "next_observations": "next_observation", "costs": "cost",
    "success": "success", "infos/is_success": "success", "infos/success": "success",
    "infos/action_log_probs": "logp", "achieved_goals": "achieved", "next_achieved_goals": "next_achieved",
    "goals": "goal", "acted": "acted", "origins": "origin",
}  # fmt: skip
"""D4RL's names (`costs` is DSRL's, the last ones are ours) and those of Assay."""
EPISODE = {"observations", "actions", "rewards", "terminations", "truncations"}
INFOS = {"cost": "cost", "action_log_probs": "logp", "is_success": "success", "success": "success"}
"""Infos of a Minari episode that are columns of ours; entry 0 is the reset's. Of two names of a column the last holds,
and is the one that is written.
"""
GOALS = {"achieved_goal": "achieved", "desired_goal": "goal"}
"""Components beside `observation` of what is observed with a goal, as in Gymnasium-Robotics."""


def opened(path: Path, mode: str = "r") -> Any:
    """Opens the file; AssayError if it is not HDF5."""
    h5py = require("h5py", "data", f"the file {path.name}")
    try:
        file = h5py.File(path, mode)
    except OSError as error:
        raise AssayError(f"it is not a readable HDF5 file ({error})") from None
    try:
        check_inside(h5py, file)
    except AssayError:
        file.close()
        raise
    return file


def check_inside(h5py: Any, group: Any) -> None:
    """Raises AssayError if something below a group is in another file: no link leads out of the data."""
    for name in group:
        link = group.get(name, getlink=True)
        item = group[name] if isinstance(link, h5py.HardLink) else None
        is_stored = isinstance(item, h5py.Dataset) and not (item.is_virtual or item.external)
        if isinstance(link, h5py.ExternalLink) or (isinstance(item, h5py.Dataset) and not is_stored):
            raise AssayError(f"'{name}' is kept in another file, which is not read. Copy it into this one")
        if isinstance(item, h5py.Group):
            check_inside(h5py, item)


def read_file(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Returns columns by Assay's names, from either layout: Minari's if the file has groups of episodes."""
    with opened(path) as file:
        if any(name.startswith("episode_") for name in file):
            return join_episodes((episodes_of(file), metadata_of(path.parent)), path.name)
        flat: dict[str, Any] = {}
        file.visititems(lambda name, item: flat.update({name: item}) if shape_of(item) is not None else None)
        about = object_of(file.attrs.get("assay"), "attribute 'assay'")
        return columns_of_d4rl(flat), about  # reads only what it names: pictures beside it may be many


def shape_of(item: Any) -> tuple[int, ...] | None:
    """Returns the shape of an HDF5 dataset inside a file; None for a group."""
    return getattr(item, "shape", None)


# ---------------------------------------------------------------------------------------------------- D4RL
def flags(name: str, array: np.ndarray) -> np.ndarray:
    """Returns a column of 0 and 1, [rows], as bool; AssayError for other values or several numbers a row."""
    if array.ndim == 0 or array.size != len(array):
        raise AssayError(f"'{name}' has shape {array.shape}. It needs one flag per row")
    odd = array.dtype.kind not in "biuf" or array[(array != 0) & (array != 1)].size
    if odd:
        raise AssayError(f"'{name}' has a value that is neither 0 nor 1. Write 1 where it is so, else 0")
    return array.reshape(len(array)).astype(bool)


NEORL2 = {
    "obs": "observations", "action": "actions", "reward": "rewards", "next_obs": "next_observations",
    "done": "terminals", "truncated": "timeouts",
}  # fmt: skip
"""Names of NeoRL-2's arrays (arXiv:2503.19267), and D4RL's."""


def columns_of_d4rl(flat: Mapping[str, Any]) -> Arrays:
    """Returns D4RL's arrays as Assay's columns.

    Without `next_observations` the observation after a row is the next row's; a truncated row has none and is left
    out, as in D4RL's own reader. Without `timeouts` an episode is truncated where the next row does not continue it.
    Files without `rewards` are play data, whose `terminals` only say where an episode is cut (OGBench's layout).
    """
    missing = [name for name in ("observations", "actions", "terminals") if name not in flat]
    if missing:
        raise AssayError(
            f"it has no '{missing[0]}' (it has: {', '.join(sorted(flat)) or 'nothing'}), so it is not D4RL's layout"
        )
    columns = {ours: np.asarray(flat[name]) for name, ours in D4RL.items() if name in flat}
    if "masks" in flat:
        columns["masks"] = np.asarray(flat["masks"])
    if single := [name for name, column in columns.items() if not column.ndim]:
        raise AssayError(f"'{single[0]}' is a single number. It needs one row for each decision")
    rows = len(columns["terminal"])
    odd = [name for name, column in columns.items() if len(column) != rows]
    if odd:
        raise AssayError(f"'{odd[0]}' has {len(columns[odd[0]])} rows and 'terminal' {rows}. All columns need as many")
    columns |= {name: flags(name, columns[name]) for name in ("terminal", "truncated") if name in columns}
    if "masks" in columns:  # OGBench: `terminals` ends an episode, `masks` is 0 where it does not bootstrap
        ended = ~flags("masks", columns.pop("masks"))
        columns["truncated"], columns["terminal"] = columns["terminal"] & ~ended, ended
    if "reward" not in columns:
        columns["truncated"] = columns["terminal"] | columns.get("truncated", False)
        columns["terminal"] = np.zeros(rows, bool)
    if "truncated" not in columns:
        columns["truncated"] = broken_chain(columns)
    if "next_observation" in columns:
        columns["truncated"] = columns["truncated"].copy()
        columns["truncated"][-1:] |= ~columns["terminal"][-1:]
        return columns
    return without_unknown_ends(columns)


def named_as_d4rl(flat: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns NeoRL-2's arrays by D4RL's names; `index` holds the first row of each episode, which cuts the one before.

    Its `done` is an end by the task; without `index` and `truncated` an episode is cut where rows do not follow.
    """
    found = {theirs: np.asarray(flat[name]) for name, theirs in NEORL2.items() if name in flat}
    if "index" in flat and "terminals" in found:
        rows, first = len(found["terminals"]), np.asarray(flat["index"]).reshape(-1).astype(np.int64)
        if len(first) and (int(first.min()) < 0 or int(first.max()) >= rows):
            raise AssayError(f"'index' goes from {first.min()} to {first.max()}, and there are {rows} rows")
        cut = np.zeros(rows, bool)
        cut[first[first > 0] - 1] = cut[-1] = True
        found["timeouts"] = cut & ~flags("terminal", found["terminals"])
    return found


def broken_chain(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns where the next row's observation is not the one after this row, and this row is not terminal."""
    if "next_observation" not in columns:
        raise AssayError(
            "it has neither 'timeouts' nor 'next_observations', so truncated episodes cannot be found. Add one of them"
        )
    after, seen = columns["next_observation"][:-1], columns["observation"][1:]
    apart = (after != seen).reshape(len(after), -1).any(1)
    return np.append(apart, True) & ~columns["terminal"]


def without_unknown_ends(columns: Arrays) -> Arrays:
    """Returns the observation after each row; drops rows without one, and marks the row before as truncated."""
    terminal, truncated = columns["terminal"], columns["truncated"].copy()
    unknown = truncated & ~terminal
    unknown[-1:] |= ~terminal[-1:]
    truncated[:-1] |= unknown[1:] & ~terminal[:-1]
    known = columns | {"truncated": truncated}
    for name in ("observation", "achieved"):
        if name in columns:
            known[f"next_{name}"] = after = np.concatenate([columns[name][1:], columns[name][-1:]])
            after[terminal] = columns[name][terminal]
    return {name: column[~unknown] for name, column in known.items()}


def write_d4rl(path: Path, arrays: Mapping[str, np.ndarray], about: str) -> None:
    """Writes one file with D4RL's names."""
    names = {ours: name for name, ours in D4RL.items()}
    with opened(path, "w") as file:
        file.attrs["assay"] = about
        for name, array in arrays.items():
            file.create_dataset(names[name], data=array, compression="gzip")


# ---------------------------------------------------------------------------------------------------- Minari
def metadata_of(folder: Path) -> dict[str, Any]:
    """Returns metadata.json of a Minari folder, or nothing if it has none."""
    path = folder / "metadata.json"
    return object_of(path.read_bytes() if path.is_file() else None, "metadata.json")


def object_of(words: Any, what: str) -> dict[str, Any]:
    """Returns a JSON object; empty for nothing and for other JSON. AssayError for what is not JSON."""
    try:
        found = json.loads(words) if words else {}
    except (ValueError, TypeError, RecursionError) as error:
        raise AssayError(f"{what} is not JSON ({error}). Restore it") from None
    return found if isinstance(found, dict) else {}


def read_minari(folder: Path) -> tuple[Arrays, dict[str, Any]]:
    """Reads a dataset of Minari's local folder, without its package."""
    inner = folder / "data" if (folder / "data").is_dir() else folder
    path = inner / "main_data.hdf5"
    if not path.is_file():
        raise AssayError(f"the folder has no {path.relative_to(folder)}, so it is not Minari's layout")
    return read_file(path)


def episodes_of(file: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the episodes of an open file, in the order of their numbers."""
    names = [name for name in file if name.startswith("episode_")]
    if odd := [name for name in names if not (name[8:].isascii() and name[8:].isdecimal() and len(name) < 40)]:
        raise AssayError(f"group '{odd[0][:60]}' has no number. Name episodes episode_0, episode_1, ...")
    for name in sorted(names, key=lambda name: int(name[8:])):
        group = file[name]
        if not isinstance(group, Mapping):
            raise AssayError(f"{name} is not a group. Write Minari's layout: {', '.join(sorted(EPISODE))} in each")
        if lacking := EPISODE - set(group):
            raise AssayError(f"{name} has no '{sorted(lacking)[0]}' (it has: {', '.join(group)})")
        plain = {key: plain_of(group[key]) for key in EPISODE}
        infos = group.get("infos", {})
        yield plain | {"infos": {key: infos[key][()] for key in infos if shape_of(infos[key]) is not None}}


def plain_of(item: Any) -> Any:
    """Returns an HDF5 dataset as an array, and a group as a mapping of those inside it."""
    if shape_of(item) is not None:
        return item[()]
    return {key: item[key][()] for key in item if shape_of(item[key]) is not None}


def join_episodes(
    found: tuple[Iterable[Mapping[str, Any]], Mapping[str, Any]], name: str
) -> tuple[Arrays, dict[str, Any]]:
    """Returns Minari's episodes one after the other as Assay's columns; discrete actions are numbered from 0."""
    episodes, metadata = found
    parts: dict[str, list[np.ndarray]] = {}
    for number, episode in enumerate(episodes):
        for key, column in rows_of(episode, number).items():
            parts.setdefault(key, []).append(column)
    if not parts:
        raise AssayError("it has no episodes")
    for key, columns in parts.items():
        if len(shapes := sorted({column.shape[1:] for column in columns})) > 1:
            raise AssayError(
                f"'{key}' has the shape {shapes[0]} in one episode and {shapes[1]} in another. Use one task"
            )
    whole = {key: np.concatenate(columns) for key, columns in parts.items()}
    whole = {key: column for key, column in whole.items() if len(column) == len(whole["reward"])}
    for space, keys in (("observation_space", ("observation", "next_observation")), ("action_space", ("action",))):
        first = object_of(metadata.get(space), f"'{space}' of metadata.json").get("start", 0)
        whole |= {key: whole[key] - first for key in keys if isinstance(first, int) and first}
    return whole, about_minari(metadata, name)


def rows_of(episode: Mapping[str, Any], number: int) -> Arrays:
    """Returns one episode's rows; the last one is truncated if it is neither terminated nor truncated."""
    seen, reward = episode["observations"], episode["rewards"]
    goals: Arrays = {}
    if isinstance(seen, Mapping) and set(GOALS) | {"observation"} == set(seen):
        goals = {ours: np.asarray(seen[name]) for name, ours in GOALS.items()}
        seen = np.asarray(seen["observation"])
    for key, column in (("observations", seen), ("actions", episode["actions"])):
        if not isinstance(column, np.ndarray):
            raise AssayError(f"{key} of episode {number} have several components. Flatten them into one vector first")
    single = [key for key in sorted(EPISODE) if key != "observations" and not np.ndim(episode[key])]
    if single or not np.ndim(seen) or not all(np.ndim(column) for column in goals.values()):
        name = (single or ["observations"])[0]
        raise AssayError(f"{name} of episode {number} is a single number. It needs one row for each decision")
    lengths = {key: len(episode[key]) for key in EPISODE - {"observations"}}
    if len(seen) != len(reward) + 1 or set(lengths.values()) != {len(reward)}:
        raise AssayError(f"episode {number} has {len(seen)} observations and {lengths}. T + 1 and T are needed")
    terminal, truncated = (flags(key, np.asarray(episode[key])) for key in ("terminations", "truncations"))
    truncated[-1:] |= ~terminal[-1:]
    if goals:
        goals = {"achieved": goals["achieved"][:-1], "next_achieved": goals["achieved"][1:], "goal": goals["goal"][:-1]}
    infos = {ours: episode["infos"][key] for key, ours in INFOS.items() if key in episode["infos"]}
    return (
        {
            "observation": seen[:-1],
            "action": episode["actions"],
            "reward": reward,
            "terminal": terminal,
            "truncated": truncated,
            "next_observation": seen[1:],
        }
        | goals
        | {ours: column[1:] for ours, column in infos.items() if np.shape(column)[:1] == (len(reward) + 1,)}
    )


def about_minari(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns environment id and author from Minari's metadata, or Assay's own description if it wrote them."""
    if isinstance(own := metadata.get("assay"), Mapping):
        return dict(own)
    spec = object_of(metadata.get("env_spec"), "'env_spec' of metadata.json")
    about = {"task": spec.get("id"), "made": metadata.get("dataset_id", name), "by": metadata.get("algorithm_name")}
    return {key: value for key, value in about.items() if value}


def write_minari(folder: Path, arrays: Arrays, bounds: Sequence[tuple[int, int]], about: Mapping[str, Any]) -> None:
    """Writes a folder in Minari's layout; AssayError if rows do not follow each other."""
    if folder.exists():
        raise AssayError(f"{folder} exists already. Name a new folder")
    seen, after = arrays["observation"], arrays["next_observation"]
    inside = np.ones(len(seen), bool)
    inside[[end - 1 for _, end in bounds]] = False
    inside = inside[:-1]
    if (after[:-1][inside] != seen[1:][inside]).any():
        raise AssayError("rows do not follow each other inside episodes, which Minari needs. Write .hdf5 instead")
    inner = folder / "data"
    inner.mkdir(parents=True)
    with opened(inner / "main_data.hdf5", "w") as file:
        for number, (begin, end) in enumerate(bounds):
            write_episode(file.create_group(f"episode_{number}"), number, {k: v[begin:end] for k, v in arrays.items()})
    seen_space = space_of(seen)
    if has_goals(arrays):
        parts = {"observation": seen_space} | {name: space_of(arrays[ours]) for name, ours in GOALS.items()}
        seen_space = {"type": "Dict", "subspaces": parts}
    spaces = {"observation_space": json.dumps(seen_space), "action_space": json.dumps(space_of(arrays["action"]))}
    metadata = {
        "dataset_id": f"assay/{folder.name}-v0", "data_format": "hdf5", "jpeg_encoding": False,
        "total_episodes": len(bounds), "total_steps": len(seen), "minari_version": "0.5.4", "assay": dict(about),
    }  # fmt: skip
    (inner / "metadata.json").write_text(json.dumps(metadata | spaces))


def has_goals(rows: Mapping[str, Any]) -> bool:
    """Returns whether rows have both positions in goal space and goals."""
    return {"achieved", "next_achieved", "goal"} <= set(rows)


def write_episode(group: Any, number: int, rows: Arrays) -> None:
    """Writes one group."""
    group.attrs["id"], group.attrs["total_steps"] = number, len(rows["reward"])
    names = {"actions": "action", "rewards": "reward", "terminations": "terminal", "truncations": "truncated"}
    name = "observations/observation" if has_goals(rows) else "observations"
    group[name] = np.concatenate([rows["observation"], rows["next_observation"][-1:]])
    if has_goals(rows):
        group["observations/achieved_goal"] = np.concatenate([rows["achieved"], rows["next_achieved"][-1:]])
        group["observations/desired_goal"] = np.concatenate([rows["goal"], rows["goal"][-1:]])
    for name, ours in names.items():
        group[name] = rows[ours]
    for ours, name in {ours: name for name, ours in INFOS.items()}.items():
        if ours in rows:
            group[f"infos/{name}"] = np.concatenate([np.zeros_like(rows[ours][:1]), rows[ours]])


def space_of(column: np.ndarray) -> dict[str, Any]:
    """Returns the space of a column in Minari's format, with the bounds of the data."""
    if column.dtype.kind in "iu":
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": int(column.max()) + 1}
    size = column.shape[1]
    low, high = [float("-inf")] * size, [float("inf")] * size
    return {"type": "Box", "dtype": str(column.dtype), "shape": [size], "low": low, "high": high}
