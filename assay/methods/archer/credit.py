"""Credit of turns from two critics. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Credit, Scene
from assay.methods.archer import turns
from assay.parts.credit.judged import ActionValues


@dataclass(frozen=True)
class TurnAdvantage(Credit):
    """A_k = min_i Q_i(s_k, u_k) - V(s_k), the same on all decisions of turn k (ArCHer, arXiv:2402.19446).

    Q is read at the turn's last decision, V at its first. Rewards enter through the critics only. With exact critics
    the expected gradient is exact, and what happens after the turn adds no variance; with one turn per episode it is
    then the outcome minus V(start). Degenerate: without the column `turn` it is Q(s, a) - V(s).
    """

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({Need.VALUE, ActionValues()})
    centred: ClassVar[bool] = False
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"q": lambda batch: batch.reward * batch.mask}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        worth = turns.over_turn(experience.column("q") * turns.turn_ends(experience), experience)
        baseline = turns.over_turn(experience.column("value") * turns.turn_begins(experience), experience)
        return experience.add({"advantage": (worth - baseline) * experience.mask})
