"""Turns: runs of decisions that form one larger action, such as an utterance. Axes: B sequences, T decisions.

The column `turn` numbers them: equal numbers on neighbouring decisions of a row are one turn, and an episode's end
always ends one. Without the column every decision is a turn of its own, as in control.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.core.record import Experience


def turn_begins(experience: Experience) -> Tensor:
    """Marks the first decision of each turn, bool [B, T]."""
    mask, turn = experience.mask, experience.turn
    if turn is None:
        return mask
    column = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, column, -1).cummax(1).values
    before = pad(last[:, :-1], (1, 0), value=-1)
    place = before.clamp(min=0)
    is_over = (experience.terminal | experience.truncated).gather(1, place)
    return mask & ~((before >= 0) & ~is_over & (turn.gather(1, place) == turn))


def turn_ends(experience: Experience) -> Tensor:
    """Marks the last decision of each turn, bool [B, T]."""
    mask, begins = experience.mask, turn_begins(experience)
    column = torch.arange(mask.shape[1], device=mask.device)
    here = torch.where(mask, column, len(column)).flip(1).cummin(1).values.flip(1)
    following = pad(here[:, 1:], (0, 1), value=len(column))
    return mask & pad(begins, (0, 1), value=True).gather(1, following)


def over_turn(values_BT: Tensor, experience: Experience) -> Tensor:
    """Returns the sum of a turn's values on each of its decisions; zero where masked."""
    place = (turn_begins(experience).long().cumsum(1) - 1).clamp(min=0)
    own = torch.where(experience.mask, values_BT, 0.0)
    return torch.where(experience.mask, torch.zeros_like(own).scatter_add(1, place, own).gather(1, place), 0.0)
