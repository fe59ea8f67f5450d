"""dual-rl: derives offline RL (XQL, f-DVL) and imitation from any data (ReCOIL) from one convex conjugate.

    max over visits d of <d, r> - w D_f(d | data) = min over V of (1 - g) <start, V> + w E_data[f*((r + g V' - V) / w)]
    f-DVL:  V-loss = level * F(Q - V) - (1 - level) * (Q - V);   Q-loss = (r + g V' - Q)^2 / 2;  cloning by exp(b (Q-V))
    ReCOIL: Q-loss = -share * E_expert[Q] + E_mix[(g V' - Q)^2] / 4, no reward

Sikchi et al. 2024. XQL is F = exp, whose gradient on V is unbounded; chi-square and total variation bound its order.

Axes: B sequences, T decisions, N critics.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from assay.method import CONTINUOUS, CONTROL, TABLE, Adam, Choice, Copy, CriticLoss, Experience, Loss, Method, Origin
from assay.method import Prediction, Preset, Recipe, Regressed, Regression, Stage, View, model_name, recipes
from assay.models import ActionValue
from assay.parts import AdvantageRegression, Log, Logged, NextValue, OfState, OverTransitions, RecordedAction, Td


class Conjugate(Choice, Protocol):
    """The conjugate of a divergence, elementwise."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns F(y): convex, not decreasing."""


@dataclass(frozen=True)
class ChiSquare(Conjugate):
    """f(t) = (t - 1)^2;  f*_p(y) = max(y/2 + 1, 0)^2 - 1;  F(y) = y+ + y+^2 / 4."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns y+ + y+^2 / 4."""
        above = y.clamp(min=0.0)
        return above + 0.25 * above.square()


@dataclass(frozen=True)
class TotalVariation(Conjugate):
    """f(t) = |t - 1| / 2;  f*_p(y) = max(y, -1/2) up to 1/2 and infinite above;  F(y) = y+, linear growth."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns y+."""
        return y.clamp(min=0.0)


@dataclass(frozen=True)
class ReverseKl(Conjugate):
    """f(t) = t log t;  f*_p(y) = exp(y - 1);  F(y) = exp(y), whose implicit maximum is XQL's log E exp."""

    def surrogate(self, y: Tensor) -> Tensor:
        """Returns exp(y)."""
        return y.exp()


@dataclass(frozen=True)
class MatchMixture(OverTransitions, CriticLoss):
    """ReCOIL's critic with chi-square (arXiv:2302.08560), rewards ignored, y = discount * V(s') - Q(s, a):

        -share * E_expert[Q(s, a)] + E_mix[y^2] / 4,   mix = share * expert + (1 - share) * others

    Raises Q on expert decisions and asks for consistency everywhere, so that visitations match as mixtures and the
    other data need not contain expert states. Rows whose `source` is TEACHER are the expert's; an update holds
    equally many of both kinds. Degenerate: without expert rows only the consistency term is left.
    """

    share: float = 0.5
    discount: float = 0.99
    q: str = model_name("q")
    value: str = model_name("value")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns contrast and consistency, summed over the critics."""
        now = batch.now
        expert = torch.zeros(len(batch), 1) if now.source is None else (now.source == Origin.TEACHER).unsqueeze(1)
        expert = expert.to(now.weight) * now.weight
        with torch.no_grad():
            value_next = view.model(self.value)(batch.after.context)
        q = view.model(self.q)(now.context, now.action)
        error = self.discount * value_next * (~now.terminal) - q
        # An expectation over half of the rows is twice their share of the mean over all rows.
        mixed = 2.0 * (self.share * expert + (1.0 - self.share) * (now.weight - expert))
        loss = (0.25 * mixed * error.square() - 2.0 * self.share * expert * q).sum()
        return Loss(loss, self.count(batch), {"q": ((q.detach().mean(0) * now.weight).sum(), now.num_decisions)})


@dataclass(frozen=True)
class ImplicitMaximum(Regression):
    """level * F(z) - (1 - level) * z,  z = (y - V(s)) / scale, at most `clip`.

    With y = min_i Q'_i(s, a), V converges to an implicit maximum over recorded actions (f-DVL, arXiv:2302.08560).
    With F of total variation it is the quantile of level (2 level - 1) / level; with reverse KL and level 1/2 it is
    XQL's (arXiv:2301.02328) scale * log E exp(Q / scale), where `clip` cuts the gradient as its authors do.
    Degenerate: with total variation V falls to the lowest value at level 1/2, and without bound below it.
    """

    divergence: Conjugate = TotalVariation()
    level: float = 0.8
    scale: float = 1.0
    clip: float = 1e9

    def __call__(self, of: Prediction, rows: Experience, target: Tensor, view: View) -> Regressed:
        """Returns the loss of the dual."""
        value = of(view.model(of.model), rows)
        z = ((target - value) / self.scale).clamp(max=self.clip)
        return Regressed(self.level * self.divergence.surrogate(z) - (1.0 - self.level) * z, value)


XQL = ImplicitMaximum(ReverseKl(), level=0.5, clip=7.0)
"""Gumbel regression with its authors' bound."""


def f_dvl(preset: Preset = CONTROL, maximum: ImplicitMaximum = ImplicitMaximum(), reward_scale: float = 1.0) -> Recipe:
    """f-DVL (arXiv:2302.08560): an implicit maximum of Q, one-step targets, advantage-weighted regression.

    `reward_scale` multiplies rewards and everything in reward units: inverse temperature, and the step size of tables.
    """
    settings = preset.offline
    critic = Adam(0.05 * reward_scale, clip_norm=0.0) if preset.tabular else settings.optimizer
    return Recipe(
        name="dual-rl",
        actor=preset.actor,
        critics={"value": preset.value, "q": replace(preset.value, head=ActionValue())},
        copies={"q_target": Copy(of="q", rate=0.05 if preset.tabular else 0.005)},
        source=Logged((Log(reward_scale=reward_scale),), settings.batch, settings.updates),
        stages=(
            Stage("value", trains=("value",), critic=(Td(RecordedAction(), maximum, OfState()),), optimizer=critic),
            Stage("actor", ("actor",), (AdvantageRegression(3.0 / reward_scale),), optimizer=settings.optimizer),
            Stage("q", trains=("q",), critic=(Td(NextValue()),), optimizer=critic),
        ),
        steps=settings.steps,
    )


def shown(num: int) -> Log:
    """Describes `num` episodes of the expert itself, from starts that no other dataset uses."""
    return Log(num, noise=0.0, first=10_000, origin=int(Origin.TEACHER))


def recoil(preset: Preset = CONTROL, expert: int = 1, others: int = 50) -> Recipe:
    """ReCOIL (arXiv:2302.08560): f-DVL with a critic that matches mixtures of expert and other data; no rewards."""
    base = f_dvl(preset)
    stages = (*base.stages[:2], replace(base.stages[2], critic=(MatchMixture(),)))
    source = Logged((Log(others), shown(expert)), preset.offline.batch, preset.offline.updates)
    return replace(base, name="recoil", source=source, stages=stages)


METHOD = Method(
    paper="arXiv:2302.08560",
    recipe=f_dvl,
    presets=(CONTROL, CONTINUOUS, TABLE),
    default_task="gridworld",
    family="offline",
    base=recipes.iql,
    aliases=("f-dvl",),
    variants={"recoil": recoil, "xql": partial(f_dvl, maximum=XQL)},
    departures=(
        "chi-square's surrogate is 0 below 0; the authors' code lets it rise again below -4, which loses the maximum",
        "XQL has its authors' clip but not their rescaling by the batch's largest exponent; squared, not Huber, errors",
        "ReCOIL is the paper's loss with V for Q(s, pi), on both halves; the authors' code regresses to fixed targets",
        "data are generated by scripted experts with noise, not D4RL; ReCOIL's other data are random alone, where the "
        "authors' contain 200 expert trajectories",
    ),
    pilots=(
        "ReCOIL failed on cartpole at 1,000 updates (92 on seed 900, cloning 431): its critics were far from their "
        "fixed point, Q = discount * V' + 2 on expert rows and discount * V' elsewhere: the mean of Q was 6 there, 17 "
        "after 3,000 updates (191), 28 after 5,000 and 34 after 6,000, with the full score of 500 at both. The claim "
        "has 6,000 since then",
    ),
)
