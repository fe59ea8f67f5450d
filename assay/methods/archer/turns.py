"""Turns: runs of decisions that form one larger action, such as an utterance. Axes: B sequences, T decisions.

The column `turn` numbers them: equal numbers on neighbouring decisions of a row are one turn, and an episode's end
always ends one. Without the column every decision is a turn of its own, as in control.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.method import Experience
from assay.parts import decision_after, decision_before


def turn_begins(experience: Experience) -> Tensor:
    """Marks the first decision of each turn, bool [B, T]."""
    mask, turn = experience.mask, experience.turn
    if turn is None:
        return mask
    there, place = decision_before(mask)
    is_over = (experience.terminal | experience.truncated).gather(1, place)
    return mask & ~(there & ~is_over & (turn.gather(1, place) == turn))


def turn_ends(experience: Experience) -> Tensor:
    """Marks the last decision of each turn, bool [B, T]."""
    mask, begins = experience.mask, turn_begins(experience)
    return mask & pad(begins, (0, 1), value=True).gather(1, decision_after(mask))


def over_turn(values_BT: Tensor, experience: Experience) -> Tensor:
    """Returns the sum of a turn's values on each of its decisions; zero where masked."""
    place = (turn_begins(experience).long().cumsum(1) - 1).clamp(min=0)
    own = torch.where(experience.mask, values_BT, 0.0)
    return torch.where(experience.mask, torch.zeros_like(own).scatter_add(1, place, own).gather(1, place), 0.0)
