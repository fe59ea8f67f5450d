"""Advantage-weighted regression on two levels. Axes: B sequences, T decisions, N heads, R numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import Objective, View
from assay.core.spaces import Context
from assay.parts.aggregations import OverTransitions
from assay.parts.objectives.weighted import exponential_weight


def gains(batch: Experience, view: View, critic: str) -> Tensor:
    """Returns mean_i V_i(s', g) - mean_i V_i(s, g), [B, T - 1], without gradient."""
    with torch.no_grad():
        value = view.model(critic)
        gain: Tensor = value(batch.after.context).mean(0) - value(batch.now.context).mean(0)
    return gain


@dataclass(frozen=True)
class TowardsSubgoal(OverTransitions, Objective):
    """-min(exp(beta * A), limit) * log low(a | s, phi(s, g)),  A = V(s', g) - V(s, g): HIQL's low level.

    phi is that of `critic` and gets no gradient. Assumes rows with the subgoal as goal and a jump of one step.
    beta is `inverse_temperature`; 0 is behaviour cloning.
    """

    inverse_temperature: float = 3.0
    limit: float = 100.0
    critic: str = model_name("value")
    actor: str = model_name("actor")
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is how much the value rises, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted negative log-likelihood of the low level."""
        now, gain = batch.now, gains(batch, view, self.critic)
        with torch.no_grad():
            subgoal = view.model(self.critic).represent(now.context)
        logp = view.model(self.actor).score_towards(now, subgoal, frozenset({Need.LOGP})).logp
        weight = exponential_weight(gain, self.inverse_temperature, self.limit) * now.weight
        return Loss(-(weight * logp).sum(), self.count(batch), {"gain": ((gain * now.weight).sum(), now.num_decisions)})


@dataclass(frozen=True)
class ProposeSubgoal(OverTransitions, Objective):
    """-min(exp(beta * A), limit) * log N(phi(s, s'); mean(s, g), 1),  A = V_h(s', g) - V_h(s, g): the high
    level, without the normal's constant.

    Rows jump k steps to s', whose position in goal space is `achieved`; phi is that of the model `phi`, V_h that of
    `critic`. beta is `inverse_temperature`; 0 clones the subgoals of the data. If distances are known, `right_signs` is
    the share of rows, among those further than `far` from the goal, on which A has the sign of the true change.
    """

    inverse_temperature: float = 3.0
    limit: float = 100.0
    critic: str = model_name("high_value")
    far: float = 0.0
    phi: str = model_name("value")
    actor: str = model_name("actor")
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is how much the value rises, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted squared distance of the proposed subgoal from the one reached in the data."""
        now, gain = batch.now, gains(batch, view, self.critic)
        there: Context = {"observation": now.context["observation"], "goal": batch.after.context["achieved"]}
        with torch.no_grad():
            reached = view.model(self.phi).represent(there)
        apart = 0.5 * (view.model(self.actor).propose(now.context) - reached).square().sum(-1)
        weight = exponential_weight(gain, self.inverse_temperature, self.limit) * now.weight
        return Loss((weight * apart).sum(), self.count(batch), self.signs(now, gain))

    def signs(self, now: Experience, gain: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Returns how often the advantage's sign is correct."""
        if "nearer" not in now.extra:
            return {}
        nearer = now.extra["nearer"]
        told = now.mask & (nearer != 0) & (now.extra["distance"] > self.far)
        return {"right_signs": ((((gain > 0) == (nearer > 0)) & told).sum(), told.sum())}
