"""famo2o: iql whose policy gets the inverse temperature as an input; a second model chooses it in each state.

    actor loss = -min(exp(c * (min_i Q'_i(s, a) - V(s))), 100) * log pi(a|s, e(c)),   c uniform in [lowest, highest]
    balance loss = temperature * log p(x|s) - min_i Q'_i(s, b),   x ~ p(.|s),   b ~ pi(.|s, e(c(x))) with pi fixed
    c(x) = lowest + (x + 1) / 2 * (highest - lowest),   e(c) = (sin, cos) of c, c / 10000^(1/3), c / 10000^(2/3)

Wang et al. 2023. How far the policy may leave the data is one number in iql, although data are good in one state and
poor in another. Trained on all numbers it is a family; the member that acts is p's mode. Online p's own c replace the
uniform ones. With lowest = highest it is iql.

Axes: B sequences, T decisions, A action dimensions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, ActorHead, Ask, AssayError, Body, Box, Context, Experience, Loss, Method
from assay.method import Objective, Phase, Preset, Recipe, Spec, View, distributions, iql, logged, model_name
from assay.models import GaussianPolicy, Policy, SquashedGaussian, Temperature, feature_size, features, need_box
from assay.parts import Log, OverTransitions, Retained, ScaledReward, exponential_weight

NUM_FEATURES = 6


def embedded(coefficient: Tensor) -> Tensor:
    """Returns e(c) of coefficients [..., 1], [..., 6]."""
    power = torch.arange(NUM_FEATURES // 2, device=coefficient.device, dtype=coefficient.dtype) / 3.0
    angle = coefficient / 10_000.0**power
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


class FamilyPolicy(GaussianPolicy):
    """pi(a|s, e(c)) with the c that `balance`, a policy of coefficients, thinks best in s."""

    def __init__(self, body: nn.Module, space: Box, balance: nn.Module) -> None:
        super().__init__(body, space, 0.0)
        self.balance = balance

    def parameters_of(self, context: Context) -> tuple[Tensor, Tensor]:
        return self.given(context, self.balance.act(context, None)[0])  # type: ignore[operator]

    def given(self, context: Context, coefficient: Tensor) -> tuple[Tensor, Tensor]:
        """Returns mean and log standard deviation of the member with these coefficients, [..., 1]."""
        return self.body({"observation": torch.cat((features(context), embedded(coefficient)), -1)}), self.log_std


@dataclass(frozen=True)
class Family(ActorHead):
    """Gaussian policies for all coefficients from `lowest` to `highest`, and a squashed Gaussian that chooses one."""

    lowest: float = 1.0
    highest: float = 5.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.lowest <= self.highest:
            raise AssayError(f"Family goes from {self.lowest} to {self.highest}. Use 0 or more, such as 1 and 5")

    def on(self, body: Body, spec: Spec) -> nn.Module:
        space, size = need_box(spec, "a family of policies"), feature_size(spec) + NUM_FEATURES
        wide = replace(spec, observation=Box((-math.inf,) * size, (math.inf,) * size), goal=None)
        balance = SquashedGaussian().on(body, replace(spec, action=Box((self.lowest,), (self.highest,))))
        return FamilyPolicy(body.outputs(wide, Ask((space.size,), gain=0.01)), space, balance)


@dataclass(frozen=True)
class FamilyRegression(OverTransitions, Objective):
    """loss = -min(exp(c * (min_i Q'_i(s, a) - V(s))), limit) * log pi(a|s, e(c)), one c for each decision.

    c is uniform between the bounds of the family, or drawn by its balance model where `chosen`. Critics and balance
    model get no gradient. Degenerate: of a family of one c it is `AdvantageRegression`. Assumes a `Family`. Source:
    arXiv:2310.17966.
    """

    chosen: bool = False
    limit: float = 100.0
    actor: str = model_name("actor")
    q: str = model_name("q_target")
    value: str = model_name("value")
    breaks: ClassVar[Mapping[str, str]] = {"zero_credit": "credit is the critics' Q - V, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted negative log-likelihood."""
        now, actor = batch.now, view.model(self.actor)
        with torch.no_grad():
            draw, balance = view.uniform((*now.mask.shape, 1), tag=7), actor.balance
            uniform = balance.centre + balance.half_range * (2.0 * draw - 1.0)
            coefficient = balance.sample(now.context, draw)[0] if self.chosen else uniform
            gain = view.model(self.q)(now.context, now.action).amin(0) - view.model(self.value)(now.context)
            weight = exponential_weight(coefficient.squeeze(-1) * gain, 1.0, self.limit) * now.weight
        mean, log_std = actor.given(now.context, coefficient)
        logp = distributions.normal_logp(actor.units(now.action), mean, log_std)
        metrics = {"gain": ((gain * now.weight).sum(), now.num_decisions)}
        return Loss(-(weight * logp).sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class ChooseBalance(OverTransitions, Objective):
    """loss = temperature * log p(x|s) - min_i Q'_i(s, b) + temperature * (-log p(x|s) - target), b ~ pi(.|s, e(c(x))).

    The temperature has gradient in the last term alone, log p in the first alone; the policies of the family and the
    critics get none, although Q' is differentiated through both. Degenerate: a family of one c has no gradient but the
    entropy's. Assumes a `Family` and critics that are differentiable. Source: arXiv:2310.17966.
    """

    target: float = -0.5
    actor: str = model_name("actor")
    q: str = model_name("q_target")
    temperature: str = model_name("temperature")
    breaks: ClassVar[Mapping[str, str]] = {"zero_credit": "credit is the critic's gradient, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the loss of the balance model and of its temperature."""
        now, actor, temperature = batch.now, view.model(self.actor), view.model(self.temperature)()
        coefficient, logp = actor.balance.sample(now.context, view.uniform((*now.mask.shape, 1), tag=8))
        noise = distributions.normal_sample(view.uniform(now.action.shape, tag=9))

        def worth(coefficient: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_std = actor.given(now.context, coefficient)
            action = actor.units.of_task(mean + log_std.exp() * noise)
            value = view.model(self.q)(now.context, action).amin(0) * now.weight
            return value.sum(), value

        # The slope by c alone, times c, is all that the balance model needs: nothing else is to learn from Q'.
        slope, value = torch.func.grad(worth, has_aux=True)(coefficient.detach())
        raised = (slope.detach() * (coefficient - coefficient.detach())).sum(-1) + value.detach()
        entropy = temperature.detach() * logp - temperature * (logp.detach() + self.target)
        count, picked = now.num_decisions, coefficient.detach().squeeze(-1)
        metrics = {"coefficient": ((picked * now.weight).sum(), count), "q": (value.detach().sum(), count)}
        return Loss((entropy * now.weight - raised).sum(), self.count(batch), metrics)


def recipe(preset: Preset = CONTINUOUS, log: Log | None = None, lowest: float = 1.0, highest: float = 5.0) -> Recipe:
    """Returns iql with a family of policies in the place of one."""
    base = iql(preset, log)
    value, actor, q = base.stages
    family = replace(actor, trains=("actor", "temperature"), objective=(FamilyRegression(), ChooseBalance()))
    models = {**base.critics, "temperature": Temperature(1.0)}
    body = base.actor.body  # type: ignore[attr-defined]
    return replace(base, name="famo2o", actor=Policy(body, Family(lowest, highest)), critics=models,
                   stages=(value, family, q))


def fine_tuned(
    preset: Preset = CONTINUOUS, log: Log | None = None, lowest: float = 1.0, highest: float = 5.0, scale: float = 0.1
) -> Recipe:
    """Returns the same losses on data and replay by half, after the offline phase; rewards times `scale` in both."""
    source, settings = logged(preset, replace(log or preset.offline.log, reward_scale=scale)), preset.off_policy
    first = replace(recipe(preset, log, lowest, highest), source=source)
    value, family, q = first.stages
    online = replace(family, objective=(FamilyRegression(chosen=True), ChooseBalance()))
    replay = replace(settings.replay, warmup=settings.replay.batch // 4)
    names = ("actor", "temperature", "value", "q", "q_target")
    before = (Phase("offline", first, preset.offline.steps, {name: name for name in names}),)
    return replace(first, name="famo2o:fine-tuned", rollout=settings.rollout, source=Retained(replay, source, 0.5),
                   rewards=(*first.rewards, ScaledReward(scale)), stages=(value, online, q), before=before,
                   steps=settings.steps)


METHOD = Method(
    paper="arXiv:2310.17966",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=iql,
    variants={"fine-tuned": fine_tuned, "one-coefficient": partial(fine_tuned, lowest=3.0, highest=3.0)},
    departures=(
        "a decision is weighed by its own coefficient, as the paper writes it; in the authors' code each is weighed by "
        "the mean over all coefficients of the batch, so that members of the family do not differ",
        "coefficients from 1 to 5, the default of the authors' code, which takes 8 to 14 for IQL on AntMaze",
        "the deviation of the balance model depends on the state (one parameter in the authors' code)",
        "balance model, family and temperature take one step together; theirs takes them in this order, which is the "
        "same while coefficients are uniform",
        "online half of each batch are offline rows (one buffer that begins with all of them)",
        "rewards are scaled by the range of returns, and by 0.1 where training goes on online",
        "only the version on iql; the authors have one on cql too",
        "the other departures of iql",
    ),
)
