"""Values of turns, trained off-policy. Axes: B rows, T columns, N critics.

State s_k is the context before turn k, its action u_k all decisions of the turn; Q(s_k, u_k) is read at the turn's
last decision, V(s_k) at its first. If every decision is a turn (control) these are Q(s, a) and V(s).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import Aggregation, Experience, Target, View, model_name, returns
from assay.methods.archer import turns
from assay.parts import OfState, Td


# ---------------------------------------------------------------------------------------------------- aggregations
@dataclass(frozen=True)
class TurnEnds(Aggregation):
    """Gives the last decision of every turn weight 1, the others 0."""

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """Returns 1 at ends of turns."""
        return turns.turn_ends(batch).to(batch.reward.dtype)

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of turns."""
        return turns.turn_ends(batch).sum()


@dataclass(frozen=True)
class TurnBegins(Aggregation):
    """Gives the first decision of every turn weight 1, the others 0."""

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """Returns 1 at first decisions."""
        return turns.turn_begins(batch).to(batch.reward.dtype)

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of turns."""
        return turns.turn_begins(batch).sum()


# ---------------------------------------------------------------------------------------------------- targets
@dataclass(frozen=True)
class NextTurn(Target):
    """y = R_k + discount * V'(s_(k+1)), valid at the last decision of turn k; R_k is the reward of the turn.

    One-step targets between turns, for any behaviour policy (ArCHer, arXiv:2402.19446). The discount applies per
    turn, not per token. If every decision is a turn it is the TD(0) target for Q.
    """

    discount: float = 0.95
    value: str = model_name("value_target")

    def rows(self, batch: Experience) -> Experience:
        return batch

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        value: Tensor = view.model(self.value)(batch.context)
        after, _ = returns.following_value(value, batch.mask, batch.terminal, batch.truncated)
        return (turns.over_turn(batch.reward, batch) + self.discount * after).detach()


@dataclass(frozen=True)
class WorthOfTurn(Target):
    """y = min_i Q'_i(s_k, u_k) on every decision of turn k."""

    q: str = model_name("q_target")

    def rows(self, batch: Experience) -> Experience:
        return batch

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        worth = view.model(self.q)(batch.context, batch.action).amin(0)
        return turns.over_turn(worth * turns.turn_ends(batch), batch)


def turn_td(discount: float = 0.95) -> Td:
    """Returns the loss of Q(s_k, u_k): one-step errors between turns."""
    return Td(NextTurn(discount), aggregate=TurnEnds())


TURN_VALUE = Td(WorthOfTurn(), of=OfState(), aggregate=TurnBegins())
"""The loss of V(s_k): towards the mean of min Q over the utterances in the batch, which are the current policy's."""
