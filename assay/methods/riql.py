"""riql: iql for corrupted data: Huber errors, and a low quantile of five critics in place of the minimum of two.

    Q loss = h(r + discount V(s') - Q_i(s, a)),   h(d) = d^2 / 2b if |d| < b, else |d| - b / 2,   b = 1 / sigma^2
    V loss = |0.7 - 1(u < 0)| u^2,  u = quantile over i of Q'_i(s, a) - V(s);   actor loss = -min(e^3u, 100) log pi(a|s)

Yang et al. 2024. Corrupted rewards and next states make the targets of Q heavy-tailed: squared errors follow the
outliers, and the minimum the critic that does so most. Errors beyond b all have the same gradient, and the quantile
leaves the lowest critics out. Huber errors fit a median, so rewards that are rare but right are outvoted too.

Axes: B sequences, T decisions, N critics.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import CONTINUOUS, CONTROL, TABLE, Experience, Loss, Method, Need, Objective, Preset, Recipe, Target
from assay.method import View, iql, logged, model_name
from assay.models import ActionValue
from assay.parts import Expectile, Huber, Log, NextValue, OfState, OverTransitions, Td, exponential_weight


@dataclass(frozen=True)
class QuantileOfCritics(Target):
    """y = the quantile `level` over critics Q_i(s, a) of the recorded action. Degenerate: level 0 is the minimum."""

    level: float = 0.25
    q: str = model_name("q_target")

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T], interpolated between neighbouring critics."""
        return torch.quantile(view.model(self.q)(batch.now.context, batch.now.action), self.level, dim=0)


@dataclass(frozen=True)
class RegressionByGain(OverTransitions, Objective):
    """loss = -min(exp(beta * (y - V(s))), 100) * log pi(a|s): `AdvantageRegression` with any target y of the action.

    The critics get no gradient. Degenerate: beta = 0 is behaviour cloning.
    """

    inverse_temperature: float = 3.0
    of: Target = QuantileOfCritics()
    value: str = model_name("value")
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critics' y - V, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted negative log-likelihood."""
        now = batch.now
        with torch.no_grad():
            gain = self.of(batch, view) - view.model(self.value)(now.context)
            weight = exponential_weight(gain, self.inverse_temperature, 100.0) * now.weight
        return Loss(-(weight * view.scored.logp[:, :-1]).sum(), self.count(batch))


def recipe(
    preset: Preset = CONTROL, log: Log | None = None, critics: int = 5, level: float = 0.25, sigma: float = 1.0
) -> Recipe:
    """Returns iql with Huber errors, a quantile over critics, and rewards in the units of the data."""
    base, lower = iql(preset, log), QuantileOfCritics(level)
    value, actor, q = base.stages
    value = replace(value, critic=(Td(lower, Expectile(0.7), OfState()),))
    actor = replace(actor, objective=(RegressionByGain(of=lower),))
    stages = (value, actor, replace(q, critic=(Td(NextValue(), Huber(sigma)),)))
    models = {**base.critics, "q": replace(preset.value, head=ActionValue(critics))}
    # A corrupted reward would set the range of returns: rewards stay in the units of the data.
    return replace(base, name="riql", critics=models, stages=stages, source=logged(preset, log))


METHOD = Method(
    paper="arXiv:2310.12955",
    recipe=recipe,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="offline",
    base=iql,
    departures=(
        "observations are not standardised by the data's moments; targets are not clipped to [-100, 1000], which the "
        "authors' code does",
        "the actor is a distribution; in their code it is deterministic by default, and its rate falls",
        "u and Q's targets have V after its step, as in iql here (before it); the losses of critics are summed (mean)",
        "networks of 64, batches of 128, Adam 1e-3 (256, 256, 3e-4) outside the preset d4rl",
        "not measured: corrupted observations, actions and dynamics; the testbed corrupts rewards",
    ),
)
