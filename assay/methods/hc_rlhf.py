"""hc-rlhf: trains for a pessimistic cost bound, then certifies the policy on held-out starts or returns none.

    train:  multiplier <- max(0, multiplier + rate * (mean + factor * deviation - limit)),   A <- A - multiplier C
    test:   return the policy only if  mean + t(1 - delta, m - 1) s / sqrt(m) <= limit  on m held-out episodes

Chittepu et al. 2025. A multiplier holds the cost near the limit, so about half of its policies are unsafe. The test
bounds that share by delta, however training went; pessimism makes trained policies pass the test.

Axes: B sequences, N episodes, T decisions, K costs.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.method import CONTROL, EVERY, Annotation, Certificate, Certified, Choice, Experience, Method, Need, Preset
from assay.method import Recipe, Reward, constrained, groups, recipes
from assay.parts import Ascent, CostCredit, LengthCost, Multiplier, TaskCost, channel_of
from assay.statistics.student import student_quantile


# ---------------------------------------------------------------------------------------------------- bounds
class UpperBound(Choice, Protocol):
    """An upper bound of a mean that fails with probability at most `failure`."""

    def __call__(self, cost_N: Tensor, failure: float) -> float:
        """Returns the bound from independent costs; infinite if there are too few."""


@dataclass(frozen=True)
class StudentBound(UpperBound):
    """mean + t(1 - failure, n - 1) s / sqrt(n): exact for normal costs, approximate for many; infinite for one."""

    def __call__(self, cost_N: Tensor, failure: float) -> float:
        """Returns the bound, s with n - 1."""
        if len(cost_N) < 2:
            return math.inf
        return float(cost_N.mean()) + student_width(failure, len(cost_N)) * float(cost_N.std())


@dataclass(frozen=True)
class HoeffdingBound(UpperBound):
    """mean + largest sqrt(log(1 / failure) / 2n): valid for all costs between 0 and `largest`.

    Degenerate: a cost outside that range makes the bound infinite.
    """

    largest: float = 1.0

    def __call__(self, cost_N: Tensor, failure: float) -> float:
        """Returns the bound: wider than Student's, but never wrong more often than stated."""
        if not len(cost_N) or bool((cost_N < 0).any()) or bool((cost_N > self.largest).any()):
            return math.inf
        return float(cost_N.mean()) + self.largest * math.sqrt(math.log(1.0 / failure) / (2 * len(cost_N)))


def student_width(failure: float, num: float) -> float:
    """Returns t(1 - failure, n - 1) / sqrt(n), for at least two values and a failure below one half."""
    return student_quantile(1.0 - failure, max(1, round(num) - 1)) / math.sqrt(max(2.0, num))


# ---------------------------------------------------------------------------------------------------- certificate
@dataclass(frozen=True)
class CostCertificate(Certificate):
    """Certifies that an episode costs at most `limit` on average, by an upper bound on `num_starts` held-out starts.

        holds if  bound(costs, failure) <= limit,   else no solution

    A policy whose true cost is above the limit passes with probability at most `failure` (delta), as far as the bound
    is valid: HC-RLHF's safety test (arXiv:2506.08266). This holds for one policy tested once, not for training again
    until one passes. Episodes without a decision (infrastructure faults) are left out. Degenerate: one episode is
    never enough.
    """

    limit: float = 1.0
    failure: float = 0.1
    num_starts: int = 200
    bound: UpperBound = StudentBound()
    channel: int = 0

    def __call__(self, experience: Experience) -> Certified:
        """Returns the verdict on whole episodes."""
        episodes = groups.episode_groups(experience)
        decided = groups.total(experience.mask.sum(1), episodes) > 0
        cost_N = groups.total(channel_of(experience, self.channel).sum(1).double(), episodes)[decided]
        upper, mean = self.bound(cost_N, self.failure), float(cost_N.mean()) if len(cost_N) else 0.0
        said = "at most" if upper <= self.limit else "not shown to be at most"
        statement = (
            f"with confidence {1.0 - self.failure:g} the mean cost of an episode is {said} {self.limit:g} "
            f"(mean {mean:.3g}, upper bound {upper:.3g}, {len(cost_N)} held-out episodes)"
        )
        numbers = {"mean": mean, "upper": upper, "limit": self.limit, "episodes": float(len(cost_N))}
        return Certified(upper <= self.limit, statement, numbers)


def episode_costs(experience: Experience, channel: int) -> Tensor:
    """Returns the total cost of each row's episode, [B]."""
    return groups.over_episode(channel_of(experience, channel).sum(1), experience)


# ---------------------------------------------------------------------------------------------------- constraint
def augmented_cost(cost: Tensor, mean: float, deviation: float, factor: float) -> Tensor:
    """Returns costs whose expected score-function gradient is that of mean + factor * deviation:

    c + factor (c^2 - 2 c mean) / (2 deviation);   c alone if the deviation is 0.
    """
    if deviation < 1e-8:
        return cost
    return cost + factor * (cost.square() - 2.0 * mean * cost) / (2.0 * deviation)


@dataclass(frozen=True)
class Pessimistic(CostCredit):
    """Holds an inflated bound of the cost at the limit instead of its mean, so that a later test passes.

        bound = mean + factor * s
        factor = now * t(1 - failure, n - 1) / sqrt(n) + later * t(1 - failure, m - 1) / sqrt(m)

    HC-RLHF (arXiv:2506.08266). n episodes are in this batch, m = `test.num_starts` in the later test. The deviation s
    has a gradient too: the cost advantage is that of `augmented_cost`, minus the mean of the group's others (of the
    batch's if there are no groups), the same on every decision. Assumes that rows are whole episodes. Degenerate:
    with now = later = 0 the mean itself is held.
    """

    test: CostCertificate = CostCertificate()
    now: float = 4.0
    later: float = 2.0
    needs: ClassVar[frozenset[Need | Annotation]] = frozenset()
    writes: ClassVar[tuple[str, ...]] = ("cost_advantage",)
    not_a_part: ClassVar[str] = "a setting of a constraint"

    def statistics(self, experience: Experience, channel: int) -> tuple[float, float, float]:
        """Returns mean and deviation of the episodes' costs in this batch, and the factor of the deviation."""
        cost = episode_costs(experience, channel).double()
        share = groups.row_groups(experience).share
        num = float(share.sum())
        mean = float((cost * share).sum()) / max(1.0, num)
        deviation = math.sqrt(float(((cost - mean).square() * share).sum()) / max(1.0, num - 1.0))
        return mean, deviation, self.factor(num)

    def factor(self, num: float) -> float:
        """Returns by how many deviations the bound exceeds the mean, for a batch of `num` episodes."""
        failure = self.test.failure
        return self.now * student_width(failure, num) + self.later * student_width(failure, self.test.num_starts)

    def __call__(self, experience: Experience, channel: int) -> dict[str, Tensor]:
        """Returns each episode's augmented cost relative to the others'."""
        cost = augmented_cost(episode_costs(experience, channel), *self.statistics(experience, channel))
        alone = experience.with_columns(group=torch.zeros_like(experience.mask[:, 0], dtype=torch.long))
        others = groups.row_groups(experience if experience.group is not None else alone)
        return {"cost_advantage": (cost - groups.mean_of_others(cost, others)).unsqueeze(1) * experience.mask}

    def level(self, experience: Experience, channel: int) -> tuple[float, dict[str, float]]:
        mean, deviation, factor = self.statistics(experience, channel)
        bound = mean + factor * deviation
        return bound, {"cost": mean, "cost_bound": bound}


def pessimistic(
    test: CostCertificate = CostCertificate(), now: float = 4.0, later: float = 2.0, rate: float = 0.01
) -> Multiplier:
    """Returns a multiplier that holds the bound at the limit of the test."""
    return Multiplier(test.limit, Ascent(rate), Pessimistic(test, now, later), channel=test.channel)


def recipe(preset: Preset = CONTROL, test: CostCertificate = CostCertificate(), now: float = 4.0, later: float = 2.0,
           rate: float = 0.01, cost: Reward = TaskCost()) -> Recipe:  # fmt: skip
    base = constrained(recipes.rloo(preset), pessimistic(test, now, later, rate), cost)
    return replace(base, name="hc-rlhf", certificate=test, steps=2 * preset.steps)


METHOD = Method(
    paper="arXiv:2506.08266",
    recipe=recipe,
    presets=EVERY,
    default_task="hazards",
    family="safe",
    base=recipes.rloo,
    variants={"certified-length": partial(recipe, cost=LengthCost())},
    departures=(
        "reward and cost are the task's own, not models of preferences; the guarantee is of that cost",
        "a certificate needs 30 held-out prompts that no evaluation uses; each counts once",
        "no KL to a reference; the multiplier itself is updated instead of its logarithm",
    ),
)
