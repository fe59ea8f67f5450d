"""The same decisions in another context: with an example in front. Axes: B rows, T columns, L with the example's."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.ops import groups

NONE = -1


def solved_sibling(experience: Experience, threshold: float) -> Tensor:
    """Returns for each row the first other row of its group with an outcome of at least `threshold`, [B]; NONE if all
    failed. A row without a decision (an infrastructure fault) has failed.
    """
    rows, by_group = torch.arange(len(experience), device=experience.mask.device), groups.row_groups(experience)
    solved = (groups.outcome(experience) >= threshold) & experience.mask.any(1)
    first = first_of(solved, rows, by_group)
    second = first_of(solved & (rows != first), rows, by_group)
    sibling = torch.where(rows == first, second, first)
    return torch.where(sibling < len(rows), sibling, NONE)


def first_of(chosen_B: Tensor, rows_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns the first chosen row of each row's group, [B]; B if none is chosen."""
    num = len(rows_B)
    earliest = rows_B.new_full((by_group.num,), num).scatter_reduce(
        0, by_group.index, torch.where(chosen_B, rows_B, num), "amin"
    )
    return earliest[by_group.index]


def with_example(experience: Experience, examples: Experience) -> tuple[Experience, Tensor]:
    """Puts all tokens of the same row of `examples` in front of each row, as context alone: mask false.

    Returns the longer record and by how many columns [B] its decisions moved. Rows are padded at their ends.
    """
    shift, length = examples.context["valid"].sum(1), experience.context["valid"].sum(1)
    column = torch.arange(int((shift + length).max()), device=shift.device)
    is_example = column < shift.unsqueeze(1)
    is_there = column < (shift + length).unsqueeze(1)
    rows = torch.arange(len(experience), device=shift.device).unsqueeze(1)
    mine, theirs = (column - shift.unsqueeze(1)).clamp(0, experience.num_columns - 1), column.expand(len(rows), -1)

    def moved(values: Tensor, shown: Tensor | None) -> Tensor:
        found = values[rows, mine]
        example = torch.zeros_like(found)
        if shown is not None:
            example = shown[rows, theirs.clamp(max=shown.shape[1] - 1)]
        kept = torch.where(widened(is_example, found), example, found)
        return torch.where(widened(is_there, found), kept, torch.zeros_like(found))

    seen = {name: moved(value, examples.context[name]) for name, value in experience.context.items()}
    longer = experience.map(lambda value: moved(value, None) if value.dim() >= 2 else value)
    return longer.with_columns(context=seen, action=moved(experience.action, examples.action)), shift


def moved_back(values_BL: Tensor, shift_B: Tensor, experience: Experience) -> Tensor:
    """Returns values [B, L, ...] of the longer record at the original decisions, [B, T, ...]; 0 elsewhere."""
    column = torch.arange(experience.num_columns, device=shift_B.device) + shift_B.unsqueeze(1)
    rows = torch.arange(len(experience), device=shift_B.device).unsqueeze(1)
    found = values_BL[rows, column.clamp(max=values_BL.shape[1] - 1)]
    return torch.where(widened(experience.mask, found), found, torch.zeros_like(found))


def widened(flag: Tensor, values: Tensor) -> Tensor:
    """Adds axes of size one to flags [B, T], to broadcast with values [B, T, ...]."""
    return flag.view(*flag.shape, *[1] * (values.dim() - 2))
