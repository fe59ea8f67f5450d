"""Batches of groups, and the rows of each group one by one."""

from __future__ import annotations

from torch import Tensor

from assay.core.record import Experience


def members(batch: Experience) -> dict[int, dict[int, list[int]]]:
    """Rows with a decision, by group and by episode."""
    found: dict[int, dict[int, list[int]]] = {}
    for row in range(len(batch)):
        if bool(batch.mask[row].any()):
            episode = row if batch.episode is None else 1000 + int(batch.episode[row])
            group = row if batch.group is None else int(batch.group[row])
            found.setdefault(group, {}).setdefault(episode, []).append(row)
    return found


def total(value_BT: Tensor, batch: Experience, rows: list[int]) -> float:
    return sum(float(value_BT[row, t]) for row in rows for t in range(batch.num_columns) if batch.mask[row, t])
