"""Values of turns: what an utterance is worth, learned from any policy's turns. Axes: B rows, T columns, N critics.

State s_k is what was seen before turn k, its action u_k all decisions of the turn; Q(s_k, u_k) is read at the turn's
last decision, V(s_k) at its first. Where every decision is a turn (control) these are Q(s, a) and V(s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, Regressed
from assay.core.settings import model_name
from assay.core.slots import Aggregation, Prediction, Regression, Target, View
from assay.methods.archer import turns
from assay.ops import returns
from assay.parts.critics.td import Td
from assay.parts.predictions import OfState


# ---------------------------------------------------------------------------------------------------- what counts
@dataclass(frozen=True)
class TurnEnds(Aggregation):
    """The last decision of every turn counts 1."""

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """1 at ends."""
        return turns.turn_ends(batch).to(batch.reward.dtype)

    def count(self, batch: Experience) -> Tensor:
        """Number of turns."""
        return turns.turn_ends(batch).sum()


@dataclass(frozen=True)
class TurnBegins(Aggregation):
    """The first decision of every turn counts 1."""

    together: ClassVar[str | None] = None

    def weigh(self, batch: Experience) -> Tensor:
        """1 at first decisions."""
        return turns.turn_begins(batch).to(batch.reward.dtype)

    def count(self, batch: Experience) -> Tensor:
        """Number of turns."""
        return turns.turn_begins(batch).sum()


# ---------------------------------------------------------------------------------------------------- targets
@dataclass(frozen=True)
class NextTurn(Target):
    """y = R_k + discount * V'(s_(k+1)), right at the last decision of turn k; R_k is what the turn earned.

    One-step targets between turns, whichever policy took them (ArCHer, arXiv:2402.19446). The discount counts turns,
    not tokens. With every decision a turn it is the target of TD(0) for Q.
    """

    discount: float = 0.95
    value: str = model_name("value_target")

    def rows(self, batch: Experience) -> Experience:
        """All decisions."""
        return batch

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """[B, T]."""
        value: Tensor = view.model(self.value)(batch.context)
        after, _ = returns.following_value(value, batch.mask, batch.terminal, batch.truncated)
        return (turns.over_turn(batch.reward, batch) + self.discount * after).detach()


@dataclass(frozen=True)
class WorthOfTurn(Target):
    """y = min_i Q'_i(s_k, u_k) on every decision of turn k."""

    q: str = model_name("q_target")

    def rows(self, batch: Experience) -> Experience:
        """All decisions."""
        return batch

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """[B, T]."""
        worth = view.model(self.q)(batch.context, batch.action).amin(0)
        return turns.over_turn(worth * turns.turn_ends(batch), batch)


# ---------------------------------------------------------------------------------------------------- fit
@dataclass(frozen=True)
class CorrectedSquared(Regression):
    """rho_k * (V(s_k) - y)^2 / 2,  rho_k = min(1, pi(u_k|s_k) / mu(u_k|s_k)).

    u_k was drawn from the policy mu of its time; the weight corrects that, cut at 1 as in V-trace (arXiv:1802.01561),
    so that V becomes the mean over the present policy's utterances. On the policy's own turns rho is 1.
    """

    actor: str = model_name("actor")

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Weighted squared errors."""
        with torch.no_grad():
            logp = view.model(self.actor).score(rows, frozenset({Need.LOGP})).logp
            likelier = turns.over_turn(logp - rows.logp, rows).clamp(max=0.0).exp()
        value = of(view.model(of.model), rows)
        return Regressed(0.5 * (value - target).square() * likelier, value, {"rho": likelier})


def turn_td(discount: float = 0.95) -> Td:
    """The loss of Q(s_k, u_k): one-step errors between turns."""
    return Td(NextTurn(discount), aggregate=TurnEnds())


TURN_VALUE = Td(WorthOfTurn(), CorrectedSquared(), OfState(), TurnBegins())
"""The loss of V(s_k): the present policy's mean of Q over utterances."""
