"""Episodes as members of their groups, each by one of its rows. Axes: B rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Experience
from assay.ops import groups


def labels(experience: Experience) -> tuple[np.ndarray, np.ndarray]:
    """Returns group and sample number of each row; rows without numbers are numbered in order."""
    rows = torch.arange(len(experience))
    group = rows if experience.group is None else experience.group.cpu()
    return group.numpy(), experience.extra.get("sample", rows).cpu().numpy()


def members(experience: Experience) -> Iterator[list[int]]:
    """Yields the rows that represent the episodes of each group, in the order of their samples."""
    by_group, (_, sample), enters = groups.row_groups(experience), labels(experience), last_rows(experience)
    for group in range(by_group.num):
        rows = ((by_group.index == group) & enters).nonzero().squeeze(1).tolist()
        if rows:
            yield sorted(rows, key=lambda row: int(sample[row]))


def last_rows(experience: Experience) -> Tensor:
    """Marks the last row with a decision of each episode, which represents it, bool [B]."""
    there = experience.mask.any(1)
    episodes = groups.episode_groups(experience)
    row = torch.where(there, torch.arange(len(there), device=there.device), -1)
    last = row.new_full((episodes.num,), -1).scatter_reduce(0, episodes.index, row, "amax")
    return there & (row == last[episodes.index])
