"""fisor: learns from offline data which states can be kept safe; clones by weight; takes the safest candidate.

    harm:   Q_h <- (1 - g) h + g max(h, V_h(s')),   V_h <- low expectile of Q_h in the data;   feasible: V_h <= 0
    reward: Q <- r + g V(s'),                       V <- high expectile of Q
    actor:  loss = w |eps(s, k, a_k) - noise|^2,   w = [Q_h <= 0] exp(b (Q - V)) if V_h <= 0, else exp(c (V_h - Q_h))

Zheng et al. 2024. A worst case is learned instead of a sum, so cost is not traded against reward and no multiplier is
needed; weighted denoising generates behaviour(a|s) * w(s, a). The three losses are independent of each other.

Axes: B sequences, T columns, N critics or rows, C candidates, K denoising steps, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, ActorHead, AssayError, Body, Box, Context, Copy, Draw, Experience, Method
from assay.method import Metric, Need, Preset, Recipe, Scored, Spec, Stage, Target, Task, View, Wrapper
from assay.method import model_name, normal_sample, random, recipes
from assay.models import ActionValue, Critic, OfPaths, PathPolicy, Perceptron, Policy, Timed, feature_size, features
from assay.models import need_box, path_logp, path_noise, walked
from assay.parts import CLIPPED_WEIGHTS, LOST_WEIGHTS, NEGLIGIBLE, Alike, Condition, Denoising, Expectile, Log, Logged
from assay.parts import NextValue, OfAction, OfState, RecordedAction, ReturnRange, Td, Weight, exponential_weight

LOW, HIGH = 0.1, 10.0


def alphas(steps: int) -> Tensor:
    """Returns alpha_1, ..., alpha_K, float64."""
    k = torch.arange(1, steps + 1, dtype=torch.float64)
    return (-LOW / steps - 0.5 * (HIGH - LOW) * (2.0 * k - 1.0) / steps**2).exp()


class DiffusionPolicy(PathPolicy):
    """x_K ~ N(0, I);  x_(k-1) = clip(x_k - (1 - alpha_k) / sqrt(1 - abar_k) * eps(s, k, x_k)) / sqrt(alpha_k)) +
    noise.

    The noise has variance 1 - alpha_k; the last step has none, so that a = x_0 is a function of the path x_K, ...,
    x_1, whose density is known (DDPM, arXiv:2006.11239). Without uniform numbers there is no noise at all.
    """

    alpha: Tensor
    total: Tensor

    def __init__(self, body: Body, num_inputs: int, space: Box, steps: int) -> None:
        # Paths run from K down to 1, so the buffers do too.
        super().__init__(space, steps, torch.arange(steps, 0, -1) / steps)
        self.noise = Timed(body, num_inputs + space.size, space.size)
        alpha = alphas(steps)
        self.register_buffer("alpha", alpha.flip(0).float())
        self.register_buffer("total", alpha.cumprod(0).flip(0).float())

    def denoised(self, seen: Tensor, which: int | slice | Tensor, point: Tensor) -> Tensor:
        """Returns the mean of the point after step `which` (0 is the first taken); seen and point are [..., size]."""
        noise = self.noise(point.shape[:-1], seen, self.times[which], point)
        alpha, total = self.alpha[which].unsqueeze(-1), self.total[which].unsqueeze(-1)
        return ((point - (1.0 - alpha) / (1.0 - total).sqrt() * noise) / alpha.sqrt()).clamp(-1.0, 1.0)

    def walk(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Samples an action; returns it with its path x_K, ..., x_1 [N, K, A] and the path's log-density."""
        seen = features(context)
        log_std = self.log_std(seen)
        noise = path_noise(uniform, self.steps, self.size, seen)
        path, mean = walked(lambda k, point: self.denoised(seen, k, point), log_std, noise)
        action = self.centre + self.half_range * self.denoised(seen, -1, path[:, -1])
        return action, path_logp(path, mean, log_std), path

    def log_std(self, seen: Tensor) -> Tensor:
        """Returns log sqrt(1 - alpha) of the steps with noise, [..., K - 1, A]."""
        spread = 0.5 * (1.0 - self.alpha[:-1]).log()
        return spread.unsqueeze(-1).expand(*seen.shape[:-1], self.steps - 1, self.size)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Returns the log-densities of the recorded paths."""
        path, seen = batch.column("path"), features(batch.context)
        mean = self.denoised(seen.unsqueeze(-2), slice(-1), path[..., :-1, :])
        return Scored(path_logp(path, mean, self.log_std(seen)) * batch.mask)

    def misfit(self, context: Context, action: Tensor, uniform: Tensor) -> Tensor:
        """Returns |eps(s, k, sqrt(abar_k) a + sqrt(1 - abar_k) noise) - noise|^2 at a random step."""
        which = (uniform[..., 0] * self.steps).long().clamp(max=self.steps - 1)
        noise, total = normal_sample(uniform[..., 1:]), self.total[which].unsqueeze(-1)
        goal = (action - self.centre) / self.half_range
        point = total.sqrt() * goal + (1.0 - total).sqrt() * noise
        return (self.noise(point.shape[:-1], features(context), self.times[which], point) - noise).square().sum(-1)


@dataclass(frozen=True)
class Diffusion(OfPaths, ActorHead):
    """A diffusion policy of `steps` steps, at least two: with one step no part of the path has a density."""

    steps: int = 5

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if self.steps < 2:
            raise AssayError(f"Diffusion needs at least 2 steps, got {self.steps}")
        return DiffusionPolicy(body, feature_size(spec), need_box(spec, "a diffusion actor"), self.steps)


@dataclass(frozen=True)
class WorstToCome(Target):
    """y = (1 - discount) h + discount * max(h, V(s')): h if terminal, not a sum of costs.

    h is `harm` if the decision cost something, else -1. A violation that cannot be avoided k decisions ahead has y =
    discount^k (harm + 1) - 1: it is visible up to ln(harm + 1) / -ln(discount) decisions ahead, which is the purpose
    of a large `harm`. V is the critic `value`. Degenerate: where nothing costs it is -1 everywhere.
    """

    discount: float = 0.99
    harm: float = 25.0
    value: str = model_name("harm")

    def harm_of(self, now: Experience) -> Tensor:
        """Returns h [B, T]."""
        safe = torch.full_like(now.reward, -1.0)
        return safe if now.cost is None else torch.where((now.cost > 0).any(-1), self.harm, safe)

    def backed_up(self, now: Experience, value_next: Tensor) -> Tensor:
        """Returns y for decisions with these next values, [B, T]; no gradient."""
        harm = self.harm_of(now)
        later = (1.0 - self.discount) * harm + self.discount * torch.maximum(harm, value_next)
        return torch.where(now.terminal, harm, later).detach()

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        return self.backed_up(batch.now, view.model(self.value)(batch.after.context))


@dataclass(frozen=True)
class Feasible(Weight):
    """Weights by reward among safe decisions, and by least harm where no decision is safe.

        V_h(s) <= 0:  [Q_h(s, a) <= 0] * min(exp(beta * (Q(s, a) - V(s))), limit),  beta = inverse_temperature
        else:         min(exp(caution * (V_h(s) - Q_h(s, a))), harm_limit)

    FISOR (arXiv:2401.10700). Q = min_i, Q_h = max_i; `gain` and `harm` name the critics (Q, V) and (Q_h, V_h).
    Degenerate: a safe state without a safe recorded decision has weight 0. Half of all weights at a limit, or nine
    tenths of them none, raise an alarm.
    """

    inverse_temperature: float = 3.0
    caution: float = 5.0
    limit: float = 100.0
    harm_limit: float = 150.0
    gain: tuple[str, str] = model_name(("q_target", "value"))
    harm: tuple[str, str] = model_name(("harm_q_target", "harm"))
    watches: ClassVar[tuple[Metric, ...]] = (CLIPPED_WEIGHTS, LOST_WEIGHTS)

    def __call__(self, batch: Experience, view: View) -> Tensor:
        context, action = batch.context, batch.action
        (q, value), (harm_q, harm) = ([view.model(name) for name in pair] for pair in (self.gain, self.harm))
        worst, least_worst = harm_q(context, action).amax(0), harm(context)
        gain = q(context, action).amin(0) - value(context)
        safe = exponential_weight(gain, self.inverse_temperature, self.limit) * (worst <= 0)
        least = exponential_weight(least_worst - worst, self.caution, self.harm_limit)
        return torch.where(least_worst <= 0, safe, least)

    def shares(self, weight: Tensor) -> dict[str, Tensor]:
        return {"clipped_weights": weight >= min(self.limit, self.harm_limit), "lost_weights": weight < NEGLIGIBLE}


class Choosing:
    """Draws C actions for each row and takes the one with the best critic value; of equal ones the first.

    The log-probability of the best of C is unknown: it is set to 0 and must not be trained on. Without uniform
    numbers each row uses a hash of its context, so that the action is a function of the context.
    """

    def __init__(self, actor: Any, critic: Any, part: BestOf) -> None:
        self.actor, self.critic, self.part = actor, critic, part
        self.num_draws = part.num * actor.num_draws

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the chosen action of each row."""
        numbers = hashed_uniform(context, self.num_draws) if uniform is None else uniform
        rows, num = len(numbers), self.part.num
        spread = {name: value.repeat_interleave(num, 0) for name, value in context.items()}
        action, logp = self.actor.act(spread, numbers.reshape(rows * num, -1))
        best = self.part.cost(self.critic(spread, action)).view(rows, num).argmin(1)
        return action.view(rows, num, *action.shape[1:])[torch.arange(rows), best], logp.new_zeros(rows)


def hashed_uniform(context: Context, num: int) -> Tensor:
    """Returns uniform numbers [N, num] that are a hash of each row's context."""
    seen = next(iter(context.values()))
    words = [column.numpy() for column in seen.float().contiguous().cpu().view(torch.int32).flatten(1).unbind(1)]
    values = random.uniform(Draw(0, (9,)), *(word[:, None] for word in words), np.arange(num)[None])
    return random.as_open_float32(values).to(seen)


@dataclass(frozen=True)
class BestOf(Wrapper):
    """The best of `num` actions of `actor` by the pessimistic value of `critic`: max_c min_i Q_i(s, a_c).

    If values are harm, `lowest` selects min_c max_i Q_i(s, a_c). Candidates that are `enough` or better count as
    equal, since differences among them are the critic's noise. Degenerate: one candidate is the actor itself.
    """

    num: int = 16
    actor: str = "actor"
    critic: str = "q_target"
    lowest: bool = False
    enough: float | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return self.actor, self.critic

    def cost(self, value_N: Tensor) -> Tensor:
        """Returns the number to minimise over candidates, of values [N critics, rows]."""
        sign = 1.0 if self.lowest else -1.0
        cost = (sign * value_N).amax(0)
        return cost if self.enough is None else cost.clamp(min=sign * self.enough)

    def around(self, models: Mapping[str, Any]) -> Choosing:
        return Choosing(models[self.actor], models[self.critic], self)


@dataclass(frozen=True)
class WithCosts(Condition):
    """Data with a column of costs: without it every state would count as safe."""

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        """Raises AssayError if the column is missing."""
        if any("cost" not in columns for columns in datasets):
            raise AssayError(
                f"fisor learns from costs, and the data of task '{task.name}' have no column 'cost'. Use a task with "
                "costs such as steered-hazards, a file with costs, or iql"
            )


LOGS = (Log(150, noise=0.4), Log(150, noise=0.4, first=1_000, reckless=True))
"""Half cautious, half cost-ignoring expert episodes, both with action noise."""
LEAST_WIDTH = 128
"""Units of each layer, at least."""


def least_harm(level: float = 0.98) -> Td:
    """V_h as a low expectile of the recorded actions' harm: level 1/2 is the mean, level -> 1 the minimum."""
    return Td(RecordedAction("harm_q_target", largest=True), Expectile(1.0 - level), OfState("harm"))


def fisor(preset: Preset = CONTINUOUS, num: int = 16) -> Recipe:
    """FISOR (arXiv:2401.10700): three independent losses, no multiplier; takes the safest of `num` candidates.

    Rewards are scaled by the range of returns; the horizon of harm is half of that of rewards.
    """
    settings, discount = preset.offline, preset.gae.discount
    widths = settings.body.hidden if isinstance(settings.body, Perceptron) else (LEAST_WIDTH, LEAST_WIDTH)
    body, step = Perceptron(tuple(max(LEAST_WIDTH, width) for width in widths)), settings.optimizer
    value, q = Critic(body), Critic(body, ActionValue())
    harm_q = Td(WorstToCome(1.0 - 2.0 * (1.0 - discount), harm=5.0), of=OfAction("harm_q"))
    return Recipe(
        name="fisor",
        actor=Policy(body, Diffusion()),
        critics={"value": value, "q": q, "harm": value, "harm_q": q},
        copies={
            "q_target": Copy(of="q", rate=0.02),
            "harm_q_target": Copy(of="harm_q", rate=0.02),
            "average": Copy(of="actor", rate=0.01),
        },
        source=Logged(LOGS, settings.batch, settings.updates, WithCosts(), ReturnRange(settings.decisions)),
        stages=(
            Stage("actor", trains=("actor",), objective=(Denoising(Feasible()),), optimizer=step),
            Stage("value", ("value",), critic=(Td(RecordedAction(), Expectile(0.9), OfState()),), optimizer=step),
            Stage("q", trains=("q",), critic=(Td(NextValue(discount)),), optimizer=step),
            Stage("harm", trains=("harm",), critic=(least_harm(),), optimizer=step),
            Stage("harm q", trains=("harm_q",), critic=(harm_q,), optimizer=step),
        ),
        wrapper=BestOf(num, "average", "harm_q_target", lowest=True, enough=-0.9),
        steps=settings.steps,
    )


def cloned_diffusion(preset: Preset = CONTINUOUS) -> Recipe:
    """Returns unweighted cloning of the same data by the same actor, one candidate."""
    base = fisor(preset)
    actor = replace(base.stages[0], objective=(Denoising(Alike()),))
    copies = {"average": base.copies["average"]}
    return replace(base, name="cloned", critics={}, copies=copies, stages=(actor,), wrapper=None)


METHOD = Method(
    paper="arXiv:2401.10700",
    recipe=fisor,
    presets=(CONTINUOUS,),
    default_task="steered-hazards",
    family="safe",
    base=recipes.iql,
    variants={"diffusion-bc": cloned_diffusion},
    departures=(
        "a truncated episode bootstraps; the authors treat time limits as ends, which makes doomed states look safe",
        "expectile 0.98 for harm, as the paper says (near 1); the authors' code has 0.9, too far from the minimum here",
        "harm 5 and discount 0.9: violations are seen 17 decisions ahead (0.98 and 89 in mujoco and d4rl); the "
        "authors' 25 and 0.99 see 324",
        "rewards are scaled by the longest episode over the range of returns (theirs as recorded), and the discount of "
        "rewards is the preset's: 0.95, or 0.99",
        "plain perceptrons; a native point, scripted data, not DSRL",
        "candidates of harm below -0.9 (-1 is no harm) count as equal: the authors' minimum picks the critic's noise",
        "means of denoising steps are clipped, not the points; without random numbers candidates hash the observation",
    ),
)
