"""LeRobot's layout of recorded episodes: meta/info.json, and tables of frames in data/**/*.parquet. Axes: N rows.

A frame has `observation.state`, `action`, `episode_index` and `frame_index`, perhaps `next.reward`, `next.done` and
`next.success`. Images and videos are not read. The observation after an episode's last frame is not recorded, so that
frame is left out and the one before it is cut; `next.done` only says where an episode ends, and is never terminal,
since a demonstration that stops is not a failure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require

STATE, ACTION, EPISODE, FRAME = "observation.state", "action", "episode_index", "frame_index"
PLAIN = {"next.reward": "reward", "next.success": "success"}


def read_lerobot(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the columns of all episodes, one after the other, and what the folder says about itself."""
    parquet = require("pyarrow.parquet", "data", str(folder))
    paths = sorted((folder / "data").rglob("*.parquet"))
    if not paths:
        raise AssayError("it has no table data/**/*.parquet. Name the folder that holds meta/ and data/")
    wanted = (STATE, ACTION, EPISODE, FRAME, *PLAIN)
    parts: dict[str, list[np.ndarray]] = {}
    for path in paths:
        try:
            there = [name for name in wanted if name in parquet.read_schema(path).names]
            table = parquet.read_table(path, columns=there)
        except (OSError, ValueError) as error:  # pyarrow's errors are one of these
            raise AssayError(f"{path.name} cannot be read ({error}). Check that the file is complete") from None
        for name in there:
            parts.setdefault(name, []).append(np.asarray(table.column(name).to_pylist()))
    if missing := [name for name in (STATE, ACTION, EPISODE, FRAME) if name not in parts]:
        raise AssayError(f"its tables have no column '{missing[0]}'. Record states and actions with each frame")
    if odd := [name for name, column in parts.items() if len(column) != len(paths)]:
        raise AssayError(f"only some of its tables have the column '{odd[0]}'. Read tables of one kind")
    columns = {name: np.concatenate(column) for name, column in parts.items()}
    info = json.loads((folder / "meta" / "info.json").read_text(encoding="utf-8"))
    about = {"kind": "lerobot", "version": info.get("codebase_version"), "robot": info.get("robot_type")}
    return rows_of(columns), about


def rows_of(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the frames as rows in the order of their episodes, each with the observation after it."""
    order = np.lexsort((columns[FRAME], columns[EPISODE]))
    found = {name: column[order] for name, column in columns.items()}
    follows = found[EPISODE][1:] == found[EPISODE][:-1]
    kept = np.append(follows, False)
    if not kept.any():
        raise AssayError("no episode has two frames, so there is no observation after any action")
    last = kept & ~np.append(kept[1:], False)
    after = np.concatenate([found[STATE][1:], found[STATE][-1:]])
    rows = {"observation": found[STATE], "action": found[ACTION], "next_observation": after}
    rows |= {ours: found[name] for name, ours in PLAIN.items() if name in found}
    rows |= {"terminal": np.zeros(len(kept), bool), "truncated": last}
    return {name: column[kept] for name, column in rows.items()}
