"""Statistics inside groups of rows, of any sizes. Axes: B rows, G groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.score_range import RIGHT


@dataclass(frozen=True)
class Groups:
    """Rows by group: `index` [B] in 0..num-1, `size` [G] in rows.

    `share` [B]: the weight of a row in statistics. The rows of an episode share a weight of one; a row without a
    decision (an infrastructure fault) is excluded from training and has weight 0.
    """

    index: Tensor
    num: int
    size: Tensor
    share: Tensor


def groups_of(label: Tensor | None, num_rows: int, device: torch.device) -> Groups:
    """Returns groups by equal labels; without labels every row is its own group."""
    if label is None:
        index, num = torch.arange(num_rows, device=device), num_rows
    else:
        distinct, index = torch.unique(label, return_inverse=True)
        num = int(distinct.numel())
    share = torch.ones(num_rows, device=device, dtype=torch.float64)
    return Groups(index, num, torch.bincount(index, minlength=num), share)


def total(value: Tensor, groups: Groups) -> Tensor:
    """Returns the sum of `value` [B] in each group, [G]."""
    return value.new_zeros(groups.num).index_add_(0, groups.index, value)


def mean(value: Tensor, groups: Groups) -> Tensor:
    """Returns the mean over the episodes of each row's group, [B]; 0 if the group has none. That of equal values is
    exactly that value.
    """
    share = groups.share.to(value.dtype)
    weight = total(share, groups)
    found = (total(value * share, groups) / torch.where(weight > 0, weight, 1.0))[groups.index]
    return inside(found, *extremes(value, groups))


def mean_of_others(value: Tensor, groups: Groups) -> Tensor:
    """Returns the mean over the group's other episodes, [B]; 0 for a group of one. An episode's rows have one value."""
    share = groups.share.to(value.dtype)
    others = total(share, groups)[groups.index] - 1
    rest = total(value * share, groups)[groups.index] - value
    return torch.where(others > 0.5, inside(rest / others.clamp(min=1), *extremes(value, groups)), 0.0)


def deviation(value: Tensor, groups: Groups) -> Tensor:
    """Returns the standard deviation (n - 1) over the episodes of each row's group, [B]; 0 for a group of one."""
    share = groups.share.to(value.dtype)
    centred = value - mean(value, groups)
    variance = total(centred.square() * share, groups) / (total(share, groups) - 1).clamp(min=1)
    return variance.sqrt()[groups.index]


def differs(value: Tensor, groups: Groups) -> Tensor:
    """Returns bool [B]: whether the group's episodes have different values; exact, unlike a deviation above 0."""
    smallest, largest = extremes(value, groups)
    return largest > smallest


def extremes(value: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest value of each row's group, [B] each, without gradient; inf and -inf if the
    group has none.
    """
    there, value = groups.share > 0, value.detach()
    largest, smallest = (
        value.new_full((groups.num,), -torch.inf).scatter_reduce(0, groups.index, one, "amax")[groups.index]
        for one in (torch.where(there, value, -torch.inf), torch.where(there, -value, -torch.inf))
    )
    return -smallest, largest


def range_of(value: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest of the values that are `there`, without gradient; inf and -inf if there are
    none.
    """
    value, end = value.detach(), value.new_full((1,), torch.inf)  # the end: of no values there is no minimum
    low, high = torch.where(there, value, torch.inf), torch.where(there, value, -torch.inf)
    return torch.cat([low.reshape(-1), end]).min(), torch.cat([high.reshape(-1), -end]).max()


def inside(mean: Tensor, smallest: Tensor, largest: Tensor) -> Tensor:
    """Returns a mean moved into the range of its values, which rounding may leave; with its gradient. As it is if the
    range is empty.

    Otherwise equal values would differ from their mean, and a division by their deviation make that an advantage.
    """
    moved = mean.detach().clamp(smallest, largest) - mean.detach()
    return torch.where((moved != 0) & (smallest <= largest), mean + moved, mean)


def row_groups(experience: Experience) -> Groups:
    """Returns groups by the column `group`."""
    groups = groups_of(experience.group, len(experience), experience.mask.device)
    there = experience.mask.any(1).to(groups.share.dtype)
    if experience.episode is not None:
        episodes = episode_groups(experience)
        there = there / total(there, episodes)[episodes.index].clamp(min=1)
    return replace(groups, share=there)


def episode_label(experience: Experience) -> Tensor | None:
    """Returns labels [B], equal for rows of one episode and player: rewards of players are not added up."""
    if experience.episode is None or experience.player is None or not len(experience):
        return experience.episode
    _, episode = torch.unique(experience.episode, return_inverse=True)
    return episode * (experience.player.max() + 1) + experience.player


def episode_groups(experience: Experience) -> Groups:
    """Returns rows by episode (and player): several segments can belong to one episode."""
    return groups_of(episode_label(experience), len(experience), experience.mask.device)


def game_groups(experience: Experience) -> Groups:
    """Returns rows by the column `episode` alone: all players of a game together."""
    return groups_of(experience.episode, len(experience), experience.mask.device)


def linked_groups(experience: Experience) -> Groups:
    """Returns rows that are kept or dropped together: those of a group and, in a game, of all groups that share an
    episode with it. Labels are the lowest group number among them; without players they are the groups.
    """
    by_group = row_groups(experience)
    if experience.episode is None or experience.player is None:
        return by_group
    games, label = game_groups(experience), by_group.index
    while True:
        linked = lowest(lowest(label, games), by_group)
        if torch.equal(linked, label):
            return replace(groups_of(label, len(experience), label.device), share=by_group.share)
        label = linked


def lowest(value_B: Tensor, groups: Groups) -> Tensor:
    """Returns the smallest of the group's values, on each of its rows, [B]."""
    least = value_B.new_zeros(groups.num).scatter_reduce(0, groups.index, value_B, "amin", include_self=False)
    return least[groups.index]


def any_of(is_so_B: Tensor, groups: Groups) -> Tensor:
    """Returns bool [B]: whether it is true for any row of the group."""
    return total(is_so_B.long(), groups)[groups.index] > 0


def over_episode(row_total_B: Tensor, experience: Experience) -> Tensor:
    """Returns each row's number summed over all rows of its episode (and player), [B]."""
    if experience.episode is None:
        return row_total_B
    episodes = episode_groups(experience)
    return total(row_total_B, episodes)[episodes.index]


def outcome(experience: Experience) -> Tensor:
    """Returns the total reward of each row's whole episode, [B]."""
    return over_episode((experience.reward * experience.mask).sum(1), experience)


def is_right(experience: Experience) -> Tensor:
    """Returns whether each row's answer is right, bool [B]: its outcome is above 1/2, the middle of the range of
    rewards. Rewards with another declared range were mapped to 0..1. Degenerate: an outcome of exactly 1/2 is wrong.
    """
    return outcome(experience) > RIGHT


# ---------------------------------------------------------------------------------------------------- members
def sample_labels(experience: Experience) -> tuple[np.ndarray, np.ndarray]:
    """Returns group and sample number of each row; rows without numbers are numbered in order."""
    rows = torch.arange(len(experience))
    group = rows if experience.group is None else experience.group.cpu()
    return group.numpy(), experience.extra.get("sample", rows).cpu().numpy()


def members(experience: Experience) -> Iterator[list[int]]:
    """Yields the rows that represent the episodes of each group, in the order of their samples."""
    by_group, (_, sample), enters = row_groups(experience), sample_labels(experience), last_rows(experience)
    for group in range(by_group.num):
        rows = ((by_group.index == group) & enters).nonzero().squeeze(1).tolist()
        if rows:
            yield sorted(rows, key=lambda row: int(sample[row]))


def last_rows(experience: Experience) -> Tensor:
    """Marks the last row with a decision of each episode, which represents it, bool [B]."""
    there = experience.mask.any(1)
    episodes = episode_groups(experience)
    row = torch.where(there, torch.arange(len(there), device=there.device), -1)
    last = row.new_full((episodes.num,), -1).scatter_reduce(0, episodes.index, row, "amax")
    return there & (row == last[episodes.index])
