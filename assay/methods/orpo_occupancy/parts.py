"""A penalty on how far the visited states and actions are from those of a trusted base policy. Axes: B, T, N samples.

reward <- proxy - clip(weight * D, limit),   d = log(mu_pi / mu_base)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.settings import model_name
from assay.core.slots import Choice, ProxyTask, Reward, Scene
from assay.playing.text import is_last_true


@dataclass(frozen=True)
class OfAnswers(Choice):
    """d = log pi(y | x) - log pi_base(y | x), exact: an answer is one step, so there is nothing to learn.

    On the last decision of each row, not a number elsewhere; as recorded for the policy, computed for the base.
    """

    model: str = model_name("reference")

    def __call__(self, critic: Any, rows: Experience) -> Tensor:
        """[B, T]."""
        base = critic.score(rows, frozenset({Need.LOGP})).logp.to(rows.logp.dtype)
        total = ((rows.logp - base) * rows.mask).sum(1, keepdim=True)
        return torch.where(is_last_true(rows.mask), total, torch.nan)


def chi_square(d_N: Tensor) -> Tensor:
    """D = e^d - 1: chi2(mu_pi || mu_base). Half of its gradient, as in the authors' code: `weight` absorbs the 2."""
    return d_N.exp() - 1.0


def root_chi_square(d_N: Tensor, trim: float = 0.01) -> Tensor:
    """D = (e^d - 1) / sqrt(c), c = mean of e^d - 1 without a share `trim` at each end: the gradient of sqrt(chi2).

    Degenerate: c <= 0 divides by nothing; fewer than 1 / trim samples are all kept; infinite ones are not in c.
    """
    excess = chi_square(d_N)
    kept = excess[excess.isfinite()].sort().values
    cut = int(trim * len(kept))
    centre = kept[cut : len(kept) - cut].sum() / max(1, len(kept) - 2 * cut)
    return excess / centre.sqrt() if bool(centre > 0) else excess


@dataclass(frozen=True)
class Penalty(Choice):
    """clip(-weight * D(d), +-limit), and 0 where D is infinite or not a number; D is the KL with `ops.divergences.k1`.

    Logs the divergence and how often the clip acts. Episodes of unequal length would be paid for their length by the
    constant in D: use it with a fixed horizon, or on whole answers.
    """

    divergence: Callable[[Tensor], Tensor] = root_chi_square
    weight: float = 0.1
    limit: float = 10.0
    breaks: ClassVar[dict[str, str]] = {"alone_in_batch": "the occupancy is that of the whole batch"}

    def __call__(self, d_N: Tensor, scene: Scene) -> Tensor:
        """[N]."""
        cost = self.divergence(d_N)
        num, cost = float(cost.isfinite().sum()), torch.where(cost.isfinite(), cost, 0.0)
        scene.log("occupancy_divergence", float(cost.sum()), num)
        scene.log("occupancy_clipped", float((self.weight * cost.abs() > self.limit).sum()), num)
        return (-self.weight * cost).clamp(-self.limit, self.limit)


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
