"""td3-bc: TD3 on an offline dataset with a squared cloning term in the actor loss.

    actor loss = -weight * Q_1(s, mu(s)) / mean |Q_1(s, a)| + mean over dimensions of (mu(s) - a)^2,   weight = 2.5

Fujimoto and Gu 2021. Everything else is TD3. Without the square the actor moves to where the critic extrapolates.

Axes: B sequences, T decisions, D observed numbers, A action dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from assay.method import CONTINUOUS, Annotation, Experience, Loss, Method, Need, Objective, Over, Preset, Recipe
from assay.method import Regularizer, View, logged, model_name, recipes, td3
from assay.models import ActionValue, Critic, Deterministic, Policy, StandardisedByData
from assay.parts import Log, OverTransitions


@dataclass(frozen=True)
class ValueSize(Annotation):
    """Column `q_size`: the mean of |Q_1(s, a)| over the batch's recorded decisions, the same number in every column."""

    model: str = model_name("q")
    column: ClassVar[str] = "q_size"
    means: ClassVar[str] = "BT: mean absolute action value of the batch"
    of_decisions: ClassVar[bool] = False

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns the column [B, T]; 0 without decisions."""
        size = over(experience, lambda q, part: q.first(part.context, part.action).abs())
        mean = (size * experience.weight).sum() / experience.num_decisions.clamp(min=1)
        return mean.expand_as(experience.mask).clone()


@dataclass(frozen=True)
class MaximizeScaledQ(OverTransitions, Objective):
    """loss = -weight * Q_1(s, mu(s)) / mean |Q_1(s, a)| (TD3+BC, arXiv:2106.06860): the same for Q and 10 Q.

    The mean is over the whole update's recorded decisions and has no gradient. Degenerate: a mean below 1e-6 counts
    as 1e-6.
    """

    weight: float = 2.5
    actor: str = model_name("actor")
    q: str = model_name("q")
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critic's gradient, not the column `advantage`"}

    @property
    def needs(self) -> frozenset[Need | Annotation]:  # type: ignore[override]
        """Returns the annotation of the critic's scale."""
        return frozenset({ValueSize(self.q)})

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns minus the first critic's value of the actor's own action, in units of the critic's scale."""
        now = batch.now
        value = view.model(self.q).first(now.context, view.model(self.actor).decide(now.context)) * now.weight
        loss = -self.weight * value / now.column("q_size").detach().clamp(min=1e-6)
        return Loss(loss.sum(), self.count(batch), {"q": (value.detach().sum(), now.num_decisions)})


@dataclass(frozen=True)
class NearRecorded(OverTransitions, Regularizer):
    """coefficient * mean over dimensions of ((mu(s) - a) / half range)^2: TD3+BC's cloning (arXiv:2106.06860).

    Assumes a deterministic actor: twice the loss of `LogLikelihood` over the number of dimensions.
    """

    coefficient: float = 1.0
    actor: str = model_name("actor")
    divergence: ClassVar[bool] = False  # zero at the recorded action, not at the reference

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared distances in units of the range."""
        now, actor = batch.now, view.model(self.actor)
        distance = ((actor.decide(now.context) - now.action) / actor.half_range).square().mean(-1) * now.weight
        metrics = {"distance": (distance.detach().sum(), now.num_decisions)}
        return Loss(self.coefficient * distance.sum(), self.count(batch), metrics)


def td3_bc(preset: Preset = CONTINUOUS, log: Log | None = None, weight: float = 2.5) -> Recipe:
    """TD3+BC (arXiv:2106.06860): TD3 on an offline dataset, its actor regularised towards the recorded actions."""
    base, settings, source = td3(preset), preset.offline, logged(preset, log)
    body = StandardisedByData(settings.body) if settings.standardised else settings.body
    critic, actor = (replace(stage, optimizer=settings.optimizer) for stage in base.stages)
    actor = replace(actor, objective=(MaximizeScaledQ(weight),), regularizers=(NearRecorded(),))
    critics = {"q": Critic(body, ActionValue())}
    base = replace(base, actor=Policy(body, Deterministic()), critics=critics)
    return replace(base, name="td3-bc", rollout=None, source=source, stages=(critic, actor), steps=settings.steps)


METHOD = Method(
    paper="arXiv:2106.06860",
    recipe=td3_bc,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=recipes.td3,
    departures=(
        "mean |Q| is at recorded actions, as in the paper, before the critic's step; its code: at the actor's own",
        "outside the preset d4rl, which files of MuJoCo tasks take: observations are not standardised, networks of 64, "
        "batches of 128, Adam 1e-3 (256, 256, 3e-4)",
        "without --data, data are generated by scripted experts with noise, not D4RL",
    ),
)
