"""Statistics inside groups of rows, whatever their sizes. Axes: B rows, G groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.types import Experience


@dataclass(frozen=True)
class Groups:
    """Rows by group: `index` [B] in 0..num-1, `size` [G]."""

    index: Tensor
    num: int
    size: Tensor


def groups_of(label: Tensor | None, num_rows: int, device: torch.device) -> Groups:
    """Groups by equal labels; without labels every row is alone."""
    if label is None:
        index, num = torch.arange(num_rows, device=device), num_rows
    else:
        distinct, index = torch.unique(label, return_inverse=True)
        num = int(distinct.numel())
    return Groups(index, num, torch.bincount(index, minlength=num))


def total(value: Tensor, groups: Groups) -> Tensor:
    """Sum of `value` [B] in each group, [G]."""
    return value.new_zeros(groups.num).index_add_(0, groups.index, value)


def mean(value: Tensor, groups: Groups) -> Tensor:
    """Mean of each row's group, [B]."""
    return (total(value, groups) / groups.size)[groups.index]


def mean_of_others(value: Tensor, groups: Groups) -> Tensor:
    """Mean of the other rows of the group, [B]; 0 for a group of one."""
    others = (groups.size[groups.index] - 1).to(value.dtype)
    return torch.where(
        others > 0, (total(value, groups)[groups.index] - value) / others.clamp(min=1), torch.zeros_like(value)
    )


def deviation(value: Tensor, groups: Groups) -> Tensor:
    """Standard deviation (n - 1) of each row's group, [B]; 0 for a group of one."""
    centred = value - mean(value, groups)
    variance = total(centred.square(), groups) / (groups.size - 1).clamp(min=1)
    return variance.sqrt()[groups.index]


def row_groups(experience: Experience) -> Groups:
    """Groups by the column `group`."""
    return groups_of(experience.group, len(experience), experience.mask.device)


def episode_groups(experience: Experience) -> Groups:
    """Rows by the column `episode`: several segments can belong to one episode."""
    return groups_of(experience.episode, len(experience), experience.mask.device)


def outcome(experience: Experience) -> Tensor:
    """Total reward of each row's whole episode, [B]."""
    row_total = (experience.reward * experience.mask).sum(1)
    if experience.episode is None:
        return row_total
    episodes = episode_groups(experience)
    return total(row_total, episodes)[episodes.index]
