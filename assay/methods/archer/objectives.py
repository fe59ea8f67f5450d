"""The policy gradient of turns from two critics. Axes: B sequences, T decisions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.method import Annotation, Experience, Loss, Need, Objective, View
from assay.methods.archer import turns
from assay.parts import ActionValues


def turn_advantage(batch: Experience) -> Tensor:
    """Returns A_k = min_i Q_i(s_k, u_k) - V(s_k) on all decisions of turn k, [B, T]: Q at its last decision, V at its
    first.
    """
    worth = turns.over_turn(batch.column("q") * turns.turn_ends(batch), batch)
    baseline = turns.over_turn(batch.column("value") * turns.turn_begins(batch), batch)
    return ((worth - baseline) * batch.mask).detach()


@dataclass(frozen=True)
class TurnGradient(Objective):
    """-mean over turns of A_k * sum_t log pi(u_k,t | s_k, u_k,<t), A_k = min_i Q_i(s_k, u_k) - V(s_k), no gradient.

    ArCHer (arXiv:2402.19446). Assumes that the turns are the current policy's own, so there is no ratio. Rewards enter
    through the critics only: with exact ones the expected gradient is exact, and what happens after the turn adds no
    variance. Degenerate: without the column `turn` it is actor-critic with Q(s, a) - V(s).
    """

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({Need.LOGP, Need.VALUE, ActionValues()})
    first_order: ClassVar[bool] = False
    together: ClassVar[str | None] = None
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "q": lambda batch: 1.0 + batch.reward,
        "value": lambda batch: 0.5 * batch.reward,
    }
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is Q - V, not the column `advantage`"}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of turns."""
        return turns.turn_begins(batch).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the sum over all turns."""
        advantage = turn_advantage(batch)
        size = {"turn_advantage": (advantage.abs().sum(), batch.num_decisions)}
        return Loss(-(advantage * view.scored.logp * batch.weight).sum(), self.count(batch), size)
