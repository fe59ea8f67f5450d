"""What looks corrupted in a dataset: outliers, rows that do not follow each other, repeated rows. Axes: N rows."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.datasets.dataset import Dataset

FAR = 5.0
"""Distance from the quartiles, in distances between them, beyond which a number is an outlier."""


def outliers(column: Tensor) -> Tensor:
    """Marks rows with a number more than FAR interquartile ranges outside of the quartiles, bool [N].

    A column most of whose numbers are equal (sparse rewards, a flag) has no range, and no outliers.
    """
    flat = column.reshape(len(column), -1).float()
    ordered = flat.sort(0).values
    low, high = (ordered[round(share * (len(flat) - 1))] for share in (0.25, 0.75))
    span = high - low
    return (((flat < low - FAR * span) | (flat > high + FAR * span)) & (span > 0)).any(1)


def unconnected(data: Dataset) -> Tensor:
    """Marks rows inside an episode whose next observation is not that of the next row, bool [N]."""
    found = torch.zeros(len(data), dtype=torch.bool)
    apart = (data.next_observation[:-1] != data.observation[1:]).reshape(len(data) - 1, -1).any(1)
    found[:-1] = apart & ~(data.terminal | data.truncated)[:-1]
    return found


def repeated(data: Dataset) -> int:
    """Returns how many rows have the observation, action and reward of an earlier one."""
    flat = [one.reshape(len(data), -1).double() for one in (data.observation, data.action, data.reward)]
    return len(data) - len(torch.unique(torch.cat(flat, 1), dim=0))


def flaws(data: Dataset) -> dict[str, float]:
    """Returns the shares of rows that look corrupted, by what is wrong with them; what is at 0 is left out."""
    columns = {"reward": data.reward, "observation": data.observation}
    if data.action.is_floating_point():
        columns["action"] = data.action
    num = len(data)
    found = {f"{name} outliers": float(outliers(column).sum()) / num for name, column in columns.items()}
    found["rows that the next does not follow"] = float(unconnected(data).sum()) / num
    found["repeated rows"] = repeated(data) / num
    found["rows without an action"] = 0.0 if data.acted is None else float((~data.acted).sum()) / num
    return {name: share for name, share in found.items() if share > 0.0}
