"""Credit of modes: ranks inside each mode for all tokens, the better mode for the forced ones. Axes: B rows, T."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.slots import Credit, Scene
from assay.ops import groups
from assay.ops.groups import Groups

TIE = 1e-6
"""Scores that differ by less are equal: a margin is a decimal number, means are rounded."""


def standardised(value_B: Tensor, by_group: Groups) -> Tensor:
    """Returns (x - mean) / std of the group, with n - 1, and 0 where all are equal, [B]."""
    centred = value_B - groups.mean(value_B, by_group)
    return centred / groups.deviation(value_B, by_group).clamp(min=TIE)


def is_best(value_B: Tensor, by_group: Groups) -> Tensor:
    """Returns whether a row has the largest value of its group, [B]; all tied ones have it, an excluded row never."""
    there = by_group.share > 0
    value = torch.where(there, value_B, -torch.inf)
    return there & (value >= -groups.lowest(-value, by_group) - TIE)


def halves(experience: Experience, by_group: Groups) -> Groups:
    """Returns the rows of each mode of each group."""
    mode = experience.column("mode")
    own = groups.groups_of(by_group.index * (mode.max() + 1) + mode, len(mode), mode.device)
    return replace(own, share=by_group.share)


def lengths_parity(experience: Experience) -> Tensor:
    """Returns a mode for each row, from the number of decisions of its episode."""
    return groups.over_episode(experience.mask.sum(1), experience) % 2


@dataclass(frozen=True)
class HybridCredit(Credit):
    """A = A_intra + `weight` [forced] A_inter, both standardised: A_intra of [best of its mode] inside the mode,
    A_inter of [in the winning mode] inside the group (arXiv:2505.14631).

    The winner has the largest mean outcome, mode 0 with `margin` added; on a tie the lowest number. All tied best rows
    have rank 1. Degenerate: equal outcomes in a mode give A_intra 0; one mode gives A_inter 0.
    """

    margin: float = 0.2
    weight: float = 1.0
    reads: ClassVar[tuple[str, ...]] = ("forced", "mode")
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "mode": lengths_parity,
        "forced": lambda rows: rows.terminal & rows.mask,
    }

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`; logs how often mode 0 wins."""
        outcome, mode, by_group = groups.outcome(experience), experience.column("mode"), groups.row_groups(experience)
        own = halves(experience, by_group)
        best = is_best(groups.mean(outcome, own) + self.margin * (mode == 0), by_group)
        winner = groups.lowest(torch.where(best, mode, mode.max()), by_group)
        inter = standardised((mode == winner).to(outcome), by_group)
        intra = standardised(is_best(outcome, own).to(outcome), own)
        scene.log("first_mode_wins", float((winner == 0).sum()), float(len(winner)))
        advantage = intra.unsqueeze(1) + self.weight * inter.unsqueeze(1) * experience.column("forced")
        return experience.add({"advantage": advantage * experience.mask})
