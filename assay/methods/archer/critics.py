"""Critics of turns: what an utterance is worth, learned from any policy's turns. Axes: B rows, T columns, N critics.

State s_k is what was seen before turn k, its action u_k all decisions of the turn; Q(s_k, u_k) is read at the turn's
last decision, V(s_k) at its first. Where every decision is a turn (control) these are Q(s, a) and V(s).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import CriticLoss, View
from assay.methods.archer import turns
from assay.ops import returns


@dataclass(frozen=True)
class TurnTd(CriticLoss):
    """sum_i (Q_i(s_k, u_k) - R_k - discount * V'(s_(k+1)))^2 / 2, summed over turns; R_k is what the turn earned.

    One-step targets between turns, from whoever's turns they are (ArCHer, arXiv:2402.19446). The discount counts turns,
    not tokens. V' is the copy `value_target`. With every decision a turn it is TD(0) for Q.
    """

    discount: float = 0.95
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Number of turns."""
        return turns.turn_ends(batch).sum()

    def target(self, batch: Experience, view: View) -> Tensor:
        """R_k + discount * V'(s_(k+1)), right at the last decision of each turn, [B, T]."""
        with torch.no_grad():
            value: Tensor = view.model("value_target")(batch.context)
            after, _ = returns.following_value(value, batch.mask, batch.terminal, batch.truncated)
            return (turns.over_turn(batch.reward, batch) + self.discount * after).detach()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors of all critics."""
        weight = turns.turn_ends(batch).to(batch.reward.dtype)
        error = (view.model("q")(batch.context, batch.action) - self.target(batch, view)) * weight
        count = self.count(batch)
        return Loss(0.5 * error.square().sum(), count, {"td_error": (error.detach().abs().mean(0).sum(), count)})


@dataclass(frozen=True)
class TurnValueLoss(CriticLoss):
    """rho_k * (V(s_k) - min_i Q'_i(s_k, u_k))^2 / 2, summed over turns; rho_k = min(1, pi(u_k|s_k) / mu(u_k|s_k)).

    V becomes the mean of Q over the present policy's utterances: u_k was drawn from the policy mu of its time, and its
    weight corrects that, cut at 1 as in V-trace (arXiv:1802.01561). On the policy's own turns rho is 1. Q' is the copy
    `q_target`.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Number of turns."""
        return turns.turn_begins(batch).sum()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors at the first decision of each turn."""
        begins = turns.turn_begins(batch).to(batch.reward.dtype)
        with torch.no_grad():
            worth = view.model("q_target")(batch.context, batch.action).amin(0)
            worth = turns.over_turn(worth * turns.turn_ends(batch), batch)
            logp = view.model("actor").score(batch, frozenset({Need.LOGP})).logp
            likelier = turns.over_turn(logp - batch.logp, batch).clamp(max=0.0).exp()
        value = view.model("value")(batch.context)
        half_square = 0.5 * (value - worth).square() * likelier * begins
        count = self.count(batch)
        metrics = {"turn_value": ((value.detach() * begins).sum(), count), "rho": ((likelier * begins).sum(), count)}
        return Loss(half_square.sum(), count, metrics)
