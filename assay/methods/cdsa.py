"""cdsa: the score of the data's actions moves the decision of a finished policy towards them before it is executed.

    D = argmin E |D(s, a + sigma_k z, k) - a|^2,   score_k(s, x) = grad log p_k(x|s) = (D(s, x, k) - x) / sigma_k^2
    x_0 = pi(s),   x_k = clip(x_(k-1) + strength * sigma_k^2 * score_k(s, x_(k-1)));   a = x_K, sigma falls

Liu et al. 2024. What keeps decisions near the data is no part of learning: one score corrects any policy, as much as is
asked for when it acts. p_k is the data's density, smoothed by noise of size sigma_k: wide at first, so that actions far
from all data are drawn back too, then narrow. At strength 0 it is the policy; at 1 every step ends at D, as a clone's.

Axes: B sequences, T decisions, N rows, K levels of noise, A action dimensions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, AssayError, Body, Context, Correcting, CriticHead, Method, Preset, Recipe, Spec
from assay.method import Stage, iql, model_name, normal_sample, td3_bc
from assay.models import ActionUnits, Critic, Perceptron, Timed, feature_size, features, need_bounds, time_features
from assay.parts import Denoising, Log


class ActionDenoiser(nn.Module):
    """D(s, x, k): the mean of recorded actions, in half-ranges, that noise of size sigma_k moved to x."""

    sigma: Tensor
    times: Tensor

    def __init__(self, body: Body, spec: Spec, sigma: Tensor) -> None:
        super().__init__()
        space = need_bounds(spec, "a score of actions")
        self.units, self.num_misfit_draws = ActionUnits(space), 1 + space.size
        self.net = Timed(body, feature_size(spec) + space.size, space.size)
        self.register_buffer("sigma", sigma)
        self.register_buffer("times", time_features(torch.arange(1, len(sigma) + 1) / len(sigma)))

    def denoised(self, context: Context, which: int | Tensor, point: Tensor) -> Tensor:
        """Returns D at a level, counted from 0, of points [..., A]."""
        found: Tensor = self.net(point.shape[:-1], features(context), self.times[which], point)
        return found

    def score(self, context: Context, which: int | Tensor, point: Tensor) -> Tensor:
        """Returns the gradient of the log-density of recorded actions with noise of that level, [..., A]."""
        return (self.denoised(context, which, point) - point) / self.sigma[which].unsqueeze(-1).square()

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns D at the smallest noise, of actions of the task, [A, ...]."""
        return self.denoised(context, -1, self.units(action)).movedim(-1, 0)

    def misfit(self, context: Context, action: Tensor, uniform: Tensor) -> Tensor:
        """Returns |D(s, a + sigma_k z, k) - a|^2 at a random level."""
        which = (uniform[..., 0] * len(self.sigma)).long().clamp(max=len(self.sigma) - 1)
        goal = self.units(action)
        point = goal + self.sigma[which].unsqueeze(-1) * normal_sample(uniform[..., 1:])
        return (self.denoised(context, which, point) - goal).square().sum(-1)


@dataclass(frozen=True)
class DensityOfActions(CriticHead):
    """The score of recorded actions with noise of `levels` sizes, geometric from `high` to `low`, in half-ranges."""

    high: float = 0.5
    low: float = 0.05
    levels: int = 10

    def __post_init__(self) -> None:
        if not (0.0 < self.low <= self.high and self.levels >= 1):
            found = f"{self.levels} levels from {self.high} to {self.low}"
            raise AssayError(f"DensityOfActions has {found}. Use at least 1, of falling sizes above 0")

    def on(self, body: Body, spec: Spec) -> nn.Module:
        share = torch.linspace(0.0, 1.0, self.levels, dtype=torch.float64)
        return ActionDenoiser(body, spec, (self.high * (self.low / self.high) ** share).float())


class Corrected:
    """An actor whose decisions climb the log-density of recorded actions, one step for each level of noise."""

    def __init__(self, part: "DensityCorrection", actor: Any, density: Any) -> None:
        self.part, self.actor, self.density, self.num_draws = part, actor, density, actor.num_draws

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the corrected decision; its log-probability is not known, and set to 0."""
        density = self.density
        with torch.no_grad():
            action, logp = self.actor.act(context, uniform)
            point = density.units(action)
            for k, sigma in enumerate(density.sigma):
                step = self.part.strength * sigma.square() * density.score(context, k, point)
                point = (point + step).clamp(-1.0, 1.0)
            return density.units.of_task(point), torch.zeros_like(logp)


@dataclass(frozen=True)
class DensityCorrection(Correcting):
    """Moves `actor`'s decision by steps of `strength` * sigma^2 along the score of `density`, from its largest level
    of noise to its smallest, inside the bounds.

    Degenerate: where data have density of one height it changes nothing. Assumes bounded actions; steps of strength
    above 1 + (spread of the data / sigma)^2 jump over what they climb. Source: arXiv:2406.07541.
    """

    strength: float = 0.3
    actor: str = model_name("actor")
    density: str = model_name("density")

    @property
    def reads(self) -> tuple[str, ...]:
        return self.actor, self.density

    def around(self, models: Mapping[str, Any]) -> Any:
        return Corrected(self, models[self.actor], models[self.density]) if self.strength else models[self.actor]


def recipe(
    preset: Preset = CONTINUOUS, log: Log | None = None, correction: DensityCorrection = DensityCorrection(),
    density: DensityOfActions = DensityOfActions(), base: Callable[[Preset, Log | None], Recipe] = td3_bc,
) -> Recipe:
    """Returns an offline recipe as it is, with a score of its data learned beside it and a correction around it."""
    learner = base(preset, log)
    stage = Stage("density", ("density",), (Denoising(actor="density"),), optimizer=preset.offline.optimizer)
    critics = {**learner.critics, "density": Critic(Perceptron((128, 128)), density)}
    return replace(learner, name="cdsa", critics=critics, stages=(*learner.stages, stage), wrapper=correction)


METHOD = Method(
    paper="arXiv:2406.07541",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="steered-hazards",
    family="offline",
    base=td3_bc,
    variants={"iql": partial(recipe, base=iql)},
    departures=(
        "the score of actions given the state alone; the paper's second half, an action that a model of inverse "
        "dynamics finds towards denser next states, is left out: how both are combined is not known to us",
        "the network predicts the clean action, which is the score up to its known scale; every level of noise counts "
        "alike in those units (sigma^4 of the score's own error)",
        "ten levels from 0.5 to 0.05, a step at each, strength 0.3: no code and no such numbers were found",
        "actions are in half-ranges and not standardised by the data",
        "data are generated by scripted experts with noise, not D4RL; quantiles of returns are not claimed",
    ),
    pilots=(
        "steered-hazards, seed 1000, 20 episodes with a random action in ten, td3-bc of weight 40, strength 0, 0.03, "
        "0.1, 0.3, 1: return 0.04, 0.04, 1.0, 7.6, 11.5, share far from the log 0.98, 0.98, 0.97, 0.90, 0.41",
        "pendulum, the same with weight 2.5, where td3-bc is far better than a clone: -203, -197, -360, -720, -856: "
        "what is drawn to the data is drawn to what a clone does",
    ),
)
