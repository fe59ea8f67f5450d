"""A penalty on how far the visited states and actions are from those of a trusted base policy. Axes: B, T, n samples.

reward <- proxy - clip(weight * D, limit),   d = log(mu_pi / mu_base)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.settings import model_name
from assay.core.slots import Choice, ProxyTask, Reward, Scene


# ---------------------------------------------------------------------------------------------------- density ratios
class DensityRatio(Choice, Protocol):
    """log(mu_pi / mu_base) of what was done. Law: no gradient, and nothing but the experience and one model is read."""

    @property
    def model(self) -> str:
        """The model that it reads."""

    def __call__(self, experience: Experience, scene: Scene) -> tuple[Tensor, Tensor]:
        """(d [B, T], bool [B, T]: where there is a sample)."""


@dataclass(frozen=True)
class Discriminated(DensityRatio):
    """d = the logit of a critic that tells decisions of the policy (1) from those of the base (0)."""

    model: str = model_name("discriminator")

    def __call__(self, experience: Experience, scene: Scene) -> tuple[Tensor, Tensor]:
        """One sample for each decision."""
        logit = scene.models.over(
            self.model, experience, lambda critic, rows: critic(rows.context, rows.action).mean(0)
        )
        return logit.to(experience.reward.dtype), experience.mask


@dataclass(frozen=True)
class OfAnswers(DensityRatio):
    """d = log pi(y | x) - log pi_base(y | x), exact: an answer is one step, so there is nothing to learn.

    One sample for each row, on its last decision; as recorded for the policy, computed for the base.
    """

    model: str = model_name("reference")

    def __call__(self, experience: Experience, scene: Scene) -> tuple[Tensor, Tensor]:
        """One sample for each row with a decision."""
        needs, mask = frozenset({Need.LOGP}), experience.mask
        base = scene.models.over(self.model, experience, lambda actor, rows: actor.score(rows, needs).logp)
        total = ((experience.logp - base.to(experience.logp.dtype)) * mask).sum(1, keepdim=True)
        return total.expand(mask.shape), mask & (mask.flip(1).cumsum(1).flip(1) == 1)


# ---------------------------------------------------------------------------------------------------- divergences
class Divergence(Choice, Protocol):
    """What a sample of the policy costs; its mean over samples is the divergence."""

    def __call__(self, d_n: Tensor) -> Tensor:
        """[n] from log density ratios [n]."""


@dataclass(frozen=True)
class Kl(Divergence):
    """D = d: KL(mu_pi || mu_base)."""

    def __call__(self, d_n: Tensor) -> Tensor:
        """d."""
        return d_n


@dataclass(frozen=True)
class ChiSquare(Divergence):
    """D = e^d - 1: chi2(mu_pi || mu_base). Half of its gradient, as in the authors' code: `weight` absorbs the 2."""

    def __call__(self, d_n: Tensor) -> Tensor:
        """e^d - 1."""
        return d_n.exp() - 1.0


@dataclass(frozen=True)
class RootChiSquare(Divergence):
    """D = (e^d - 1) / sqrt(c), c = mean of e^d - 1 without a share `trim` at each end: the gradient of sqrt(chi2).

    Degenerate: c <= 0 divides by nothing; fewer than 1 / trim samples are all kept; infinite ones are not in c.
    """

    trim: float = 0.01

    def __call__(self, d_n: Tensor) -> Tensor:
        """Scaled by the batch."""
        excess = d_n.exp() - 1.0
        kept = excess[excess.isfinite()].sort().values
        cut = int(self.trim * len(kept))
        centre = kept[cut : len(kept) - cut].sum() / max(1, len(kept) - 2 * cut)
        return excess / centre.sqrt() if bool(centre > 0) else excess


# ---------------------------------------------------------------------------------------------------- rewards
@dataclass(frozen=True)
class SeenReward(Reward):
    """reward = the task's proxy of the context after each decision; logs `reward/true` and `reward/proxy`.

    The task's own reward stays what is evaluated. Degenerate: on a task without a proxy the reward stays as it is,
    and is the proxy.
    """

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """The experience with the proxy as its reward."""
        proxy, num = scene.task.proxy if isinstance(scene.task, ProxyTask) else None, float(experience.mask.sum())
        seen = experience
        if proxy is not None:
            after = {name: column.roll(-1, 1) for name, column in experience.context.items()}
            seen = experience.with_columns(reward=proxy(after).to(experience.reward.dtype) * experience.mask)
        for name, one in (("true", experience), ("proxy", seen)):
            scene.log(f"reward/{name}", float((one.reward * one.mask).sum()), num)
        return seen


@dataclass(frozen=True)
class OccupancyPenalty(Reward):
    """reward <- reward + clip(-weight * D, +-limit), where D is infinite or not a number: reward.

    Logs the divergence and how often the clip acts. Episodes of unequal length would be paid for their length by the
    constant in D: use it with a fixed horizon, or on whole answers.
    """

    ratio: DensityRatio = OfAnswers()
    divergence: Divergence = RootChiSquare()
    weight: float = 0.1
    limit: float = 10.0
    breaks: ClassVar[dict[str, str]] = {"alone_in_batch": "the occupancy is that of the whole batch"}

    @property
    def models(self) -> tuple[str, ...]:
        """The one of its ratio."""
        return (self.ratio.model,)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """The experience with the penalised reward."""
        d, there = self.ratio(experience, scene)
        cost = self.divergence(d[there])
        cost = torch.where(cost.isfinite(), cost, 0.0)
        scene.log("occupancy_divergence", float(cost.sum()), len(cost))
        scene.log("occupancy_clipped", float((self.weight * cost.abs() > self.limit).sum()), len(cost))
        reward = experience.reward.clone()
        reward[there] += (-self.weight * cost).clamp(-self.limit, self.limit)
        return experience.with_columns(reward=reward)
