"""ro2o: sac with many critics that is smooth and doubtful around its data, offline and online by the same losses.

    critic loss = sum_i (Q_i(s, a) - y)^2 / 2 + smooth * max over j of mean_i w (Q_i(s_j, a) - Q_i(s, a))^2
                  + spread * mean over i, j of (Q_i(s_j, b_j) - [Q_i(s_j, b_j) - doubt * std_k Q_k(s_j, b_j)])^2
    actor loss = sac's + steady * max over j of KL(pi(.|s), pi(.|s_j)) + KL(pi(.|s_j), pi(.|s))

s_1, ..., s_n lie around s, b_j ~ pi(.|s_j); [ ] has no gradient; w is 0.8 where Q rises from s to s_j, 0.2 where it
falls; y has the minimum of all critics. Wen et al. 2023. New experience lies beside the data: where values and policy
change little from the data to what is near, and values are lower the less the critics agree, nothing is lost when the
policy is first trained on it. With weights of 0 it is SAC-N.

Axes: B sequences, T decisions, N critics, n points around a state, A action dimensions.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import CONTINUOUS, AssayError, Choice, Context, Copy, CriticLoss, Experience, Linear, Loss, Method
from assay.method import Phase, Preset, Recipe, Regularizer, Schedule, View, logged, model_name, number, recipes
from assay.models import ActionValue, Critic, Policy, SquashedGaussian, StandardisedByData
from assay.parts import Log, OverTransitions, Retained, SoftTwin, Td

FALLING = Linear(1.0, 0.1, share=0.72)
"""The doubt offline; online it is the last of it."""
LOG = Log(episodes=100, noise=0.8)
"""The dataset where none is named: two of ten actions are an expert's."""
WARMUP = 400
"""Decisions of the policy that data brought, before the first update online."""
HANDED = {name: name for name in ("actor", "q", "q_target", "temperature")}


@dataclass(frozen=True)
class Nearby(Choice):
    """Draws `num` observations around each, uniform in a box of +- `radius` in the units that a model's body reads.

    Those are deviations of the data behind `StandardisedByData`, else the task's own. Degenerate: radius 0 gives the
    observation itself. Assumes vector observations. Source: arXiv:2309.16973.
    """

    num: int = 5
    radius: float = 0.01

    def __post_init__(self) -> None:
        if self.num < 1 or self.radius < 0.0:
            raise AssayError(f"Nearby has num={self.num} and radius={self.radius}. Use 1 or more points and 0 or more")

    def around(self, context: Context, view: View, model: Any, tag: int) -> Context:
        """Returns the contexts [B, T, n, ...] of the points around contexts [B, T, ...], for this model."""
        seen = context["observation"]
        unit = dict(model.named_buffers()).get("body.scale", seen.new_ones(()))
        shift = 2.0 * view.uniform((*seen.shape[:2], self.num, seen.shape[-1]), tag).to(seen.dtype) - 1.0
        return {**self.repeated(context), "observation": seen.unsqueeze(2) + self.radius * unit * shift}

    def repeated(self, context: Context) -> dict[str, Tensor]:
        """Returns columns [B, T, ...], once for each point, [B, T, n, ...]."""
        return {name: one.unsqueeze(2).expand(*one.shape[:2], self.num, *one.shape[2:])
                for name, one in context.items()}  # fmt: skip


@dataclass(frozen=True)
class SmoothValue(OverTransitions, CriticLoss):
    """weight * max over points s_j around s of mean_i w (Q_i(s_j, a) - Q_i(s, a))^2, w = `rising` where it is higher.

    Where it is lower w = 1 - rising; both sides have a gradient. Degenerate: with radius 0 it is 0. Source:
    arXiv:2309.16973.
    """

    weight: float = 5e-5
    rising: float = 0.8
    near: Nearby = Nearby()
    q: str = model_name("q")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the largest change of each row's values."""
        now, q = batch.now, view.model(self.q)
        action = self.near.repeated({"action": now.action})["action"]
        rise = q(self.near.around(now.context, view, q, tag=31), action) - q(now.context, now.action).unsqueeze(-1)
        change = torch.where(rise > 0.0, self.rising, 1.0 - self.rising) * rise.square()
        change = change.mean(0).amax(-1) * now.weight
        metrics = {"value_change": (change.detach().sum(), now.num_decisions)}
        return Loss(self.weight * change.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class LowerBySpread(OverTransitions, CriticLoss):
    """weight * mean over i and points s_j of (Q_i - [Q_i - doubt * std_k Q_k])^2 at (s_j, b_j), b_j ~ pi(.|s_j).

    What is in brackets and b_j carry no gradient, so that all critics are pushed down alike, by how far they are apart.
    Degenerate: one critic, or critics that agree, give 0. Assumes an actor that can be sampled. Source:
    arXiv:2309.16973.
    """

    weight: float = 0.05
    doubt: float | Schedule = 0.1
    near: Nearby = Nearby()
    actor: str = model_name("actor")
    q: str = model_name("q")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squares, and the mean deviation between critics."""
        now, actor, q = batch.now, view.model(self.actor), view.model(self.q)
        there = self.near.around(now.context, view, q, tag=32)
        with torch.no_grad():
            action = actor.sample(there, view.uniform((*now.mask.shape, self.near.num, actor.num_draws), tag=33))[0]
        values = q(there, action)
        apart = values.detach().std(0) if len(values) > 1 else torch.zeros_like(values[0]).detach()
        gap = values - values.detach() + number(self.doubt) * apart
        loss = gap.square().mean(0).mean(-1) * now.weight
        metrics = {"critics_apart": ((apart.mean(-1) * now.weight).sum(), now.num_decisions)}
        return Loss(self.weight * loss.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class SmoothPolicy(OverTransitions, Regularizer):
    """weight * max over points s_j around s of KL(pi(.|s), pi(.|s_j)) + KL(pi(.|s_j), pi(.|s)), both with gradient.

    The divergences are those of the Gaussians before tanh, which does not change them. Degenerate: with radius 0 it is
    0. Assumes a policy of Gaussians with independent dimensions. Source: arXiv:2309.16973.
    """

    weight: float = 1.0
    near: Nearby = Nearby()
    actor: str = model_name("actor")
    divergence: ClassVar[bool] = False  # zero where the policy is constant, not at the reference

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the largest divergence of each row."""
        now, actor = batch.now, view.model(self.actor)
        mean, log_std = (one.unsqueeze(-2) for one in actor.parameters_of(now.context))
        mean_there, log_std_there = actor.parameters_of(self.near.around(now.context, view, actor, tag=34))
        here, there = (2.0 * log_std).exp(), (2.0 * log_std_there).exp()
        moved = (mean_there - mean).square()
        both = ((here + moved) / there + (there + moved) / here) / 2.0 - 1.0  # the logarithms of both cancel
        change = both.sum(-1).amax(-1) * now.weight
        metrics = {"policy_change": (change.detach().sum(), now.num_decisions)}
        return Loss(self.weight * change.sum(), self.count(batch), metrics)


def learner(
    preset: Preset, smooth: float, spread: float, steady: float, near: Nearby, doubt: float | Schedule
) -> Recipe:
    """Returns sac with ten critics and the three terms; a weight of 0 leaves its term out. Targets follow at 0.4 /
    horizon: 0.02 at the pendulum's 0.95.
    """
    base, body, discount = recipes.sac(preset), StandardisedByData(preset.offline.body), preset.gae.discount
    critic, actor = (replace(stage, optimizer=preset.offline.optimizer) for stage in base.stages)
    value = (SmoothValue(smooth, near=near),) if smooth else ()
    lower = (LowerBySpread(spread, doubt, near),) if spread else ()
    policy = (SmoothPolicy(steady, near),) if steady else ()
    critic = replace(critic, critic=(Td(SoftTwin(discount)), *value, *lower))
    targets = {"q_target": Copy(of="q", rate=round(0.4 * (1.0 - discount), 4))}
    models = {**base.critics, "q": Critic(body, ActionValue(10))}
    return replace(base, name="ro2o", actor=Policy(body, SquashedGaussian()), critics=models,
                   copies=targets, stages=(critic, replace(actor, regularizers=policy)))


def recipe(
    preset: Preset = CONTINUOUS, log: Log = LOG, smooth: float = 5e-5, spread: float = 0.05,
    steady: float = 1.0, near: Nearby = Nearby(), online: bool = True,
) -> Recipe:
    """Returns the learner on a dataset, then in the task on what it finds there; `online` says whether its three terms
    stay there.
    """
    settings, data = preset.off_policy, logged(preset, log)
    data = replace(data, batch=data.batch // 2)
    first = learner(preset, smooth, spread, steady, near, FALLING)
    first = replace(first, rollout=None, source=data, steps=preset.offline.steps * 3 // 2)
    terms = (smooth, spread, steady) if online else (0.0, 0.0, 0.0)
    replay = replace(settings.replay, batch=data.batch, warmup=WARMUP)
    before = (Phase("offline", first, first.steps, HANDED),)
    return replace(learner(preset, *terms, near, FALLING.end), source=Retained(replay, data), before=before,
                   steps=settings.steps // 5)


METHOD = Method(
    paper="arXiv:2309.16973",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline to online",
    base=recipes.sac,
    variants={"sac-n": partial(recipe, smooth=0.0, spread=0.0, steady=0.0),
              "offline-terms": partial(recipe, online=False)},
    departures=(
        "the authors' code for training online leaves all three terms out of the loss (the variant offline-terms); "
        "the paper keeps them",
        "each row has points of its own; their code draws them once for a batch and adds them to every row",
        "weights stand beside half of the squared error, and are half of the paper's there; five points (20)",
        "nothing of the dataset is used online, as in their code; updates begin after 400 decisions",
        "the doubt falls from 1 to 0.1 over 72 % of the offline phase, as theirs over 1.8 of 2.5 million updates",
        "3,000 updates offline, two layers of 64, batches of 64, Adam 1e-3 outside the preset d4rl; discount 0.95 and "
        "targets at rate 0.02 on the pendulum (0.99 and 0.005)",
        "the authors' code for AntMaze also clones, and gives each critic a target of its own",
    ),
)
