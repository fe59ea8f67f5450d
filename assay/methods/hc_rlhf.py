"""hc-rlhf: trains for a pessimistic cost bound, then certifies the policy on held-out starts or returns none.

    train:  multiplier <- max(0, multiplier + rate * (mean + factor * deviation - limit)),   A <- A - multiplier C
    test:   return the policy only if an upper bound of its mean cost, which fails with probability delta, is at most
            the limit on m held-out episodes

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
from assay.method import Recipe, Reward, Task, constrained, groups, recipes
from assay.parts import Ascent, BoundedCosts, CostCredit, LengthCost, Multiplier, TaskCost, channel_of
from assay.statistics.student import student_quantile


# ---------------------------------------------------------------------------------------------------- bounds
class UpperBound(Choice, Protocol):
    """An upper bound of a mean that fails with probability at most `failure`."""

    def __call__(self, cost_N: Tensor, failure: float, largest: float) -> float:
        """Returns the bound from independent costs, none of which can be above `largest`; infinite without any."""


@dataclass(frozen=True)
class StudentBound(UpperBound):
    """mean + t(1 - failure, n - 1) s / sqrt(n), the paper's: exact for normal costs. It fails more often than stated
    where costs are rare: a sample of zeros has the bound 0, whatever it did not contain. Infinite for one cost.
    """

    def __call__(self, cost_N: Tensor, failure: float, largest: float) -> float:
        if len(cost_N) < 2:
            return math.inf
        return float(cost_N.mean()) + student_width(failure, len(cost_N)) * float(cost_N.std())


@dataclass(frozen=True)
class ChernoffBound(UpperBound):
    """largest * q with the greatest q for which n kl(mean / largest, q) <= log(1 / failure), kl that of two coins.

    Holds for all costs from 0 to `largest` (Hoeffding 1963, theorem 1), and is nearly the best where they are 0 or
    `largest`. Degenerate: n costs of 0 give largest * (1 - failure^(1 / n)).
    """

    def __call__(self, cost_N: Tensor, failure: float, largest: float) -> float:
        if not len(cost_N) or math.isinf(largest):
            return math.inf
        mean, most = float(cost_N.mean()) / largest, math.log(1.0 / failure) / len(cost_N)
        low, high = mean, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if coin_divergence(mean, middle) <= most else (low, middle)
        return largest * high


@dataclass(frozen=True)
class ProductBound(UpperBound):
    """largest - failure^(1 / n) * geometric mean of (largest - cost): with independent costs the product of
    (largest - cost) / (largest - their mean) has expectation 1, so that it reaches 1 / failure with probability at
    most `failure` (Markov; the bets of Waudby-Smith & Ramdas 2024, all staked).

    About mean + largest * log(1 / failure) / n where all costs are small beside `largest`, which Chernoff's does not
    see. Degenerate: one cost of `largest` gives `largest`.
    """

    def __call__(self, cost_N: Tensor, failure: float, largest: float) -> float:
        if not len(cost_N) or math.isinf(largest):
            return math.inf
        left = (largest - cost_N).clamp(min=0.0).log().mean() + math.log(failure) / len(cost_N)
        return largest - float(left.exp())


@dataclass(frozen=True)
class LowestBound(UpperBound):
    """The lowest of several bounds, each of which may fail with an equal share of `failure`: together they fail at most
    as often as stated. Costs below 0 or above `largest` make it infinite, since then `largest` is wrong.
    """

    bounds: tuple[UpperBound, ...] = (ChernoffBound(), ProductBound())

    def __call__(self, cost_N: Tensor, failure: float, largest: float) -> float:
        if bool((cost_N < 0).any()) or bool((cost_N > largest).any()):
            return math.inf
        return min(bound(cost_N, failure / len(self.bounds), largest) for bound in self.bounds)


def coin_divergence(prob: float, other: float) -> float:
    """Returns kl(p, q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q)), with 0 log 0 = 0."""
    pairs = ((prob, other), (1.0 - prob, 1.0 - other))
    return sum(mine * math.log(mine / theirs) if theirs > 0 else math.inf for mine, theirs in pairs if mine > 0)


def student_width(failure: float, num: float) -> float:
    """Returns t(1 - failure, n - 1) / sqrt(n), for at least two values and a failure below one half."""
    return student_quantile(1.0 - failure, max(1, round(num) - 1)) / math.sqrt(max(2.0, num))


# ---------------------------------------------------------------------------------------------------- certificate
MOST_DOUBLINGS = 9
"""How often the number of episodes is doubled in search of one that would do."""


@dataclass(frozen=True)
class Costs:
    """Which cost is limited: the part that gives it, and its place among an episode's costs."""

    source: Reward = TaskCost()
    channel: int = 0
    not_a_part: ClassVar[str] = "settings of a certificate"


@dataclass(frozen=True)
class CostCertificate(Certificate):
    """Certifies that an episode costs at most `limit` on average, by an upper bound on `num_starts` held-out starts.

        holds if  bound(costs, failure) <= limit,   else no solution

    A policy whose true cost is above the limit passes with probability at most `failure` (delta): HC-RLHF's safety test
    (arXiv:2506.08266). This holds for one policy tested once, not for training again until one passes. `largest` is the
    most that an episode can cost; None is what `cost` says of the task. Where that is not known nothing is certified,
    since no sample excludes a cost that is large and rare. Episodes without a decision (infrastructure faults) are
    left out. Degenerate: no episode certifies nothing.
    """

    limit: float = 1.0
    failure: float = 0.1
    num_starts: int = 200
    bound: UpperBound = LowestBound()
    largest: float | None = None
    cost: Costs = Costs()

    def __call__(self, experience: Experience, task: Task | None = None) -> Certified:
        """Returns the verdict on whole episodes."""
        episodes = groups.episode_groups(experience)
        decided = groups.total(experience.mask.sum(1), episodes) > 0
        cost_N = groups.total(channel_of(experience, self.cost.channel).sum(1).double(), episodes)[decided]
        largest, mean = self.most(task), float(cost_N.mean()) if len(cost_N) else 0.0
        upper = self.bound(cost_N, self.failure, largest)
        said = "at most" if upper <= self.limit else "not shown to be at most"
        statement = (
            f"with confidence {1.0 - self.failure:g} the mean cost of an episode is {said} {self.limit:g} "
            f"(mean {mean:.3g}, upper bound {upper:.3g}, {len(cost_N)} held-out episodes, {self.told(cost_N, largest)})"
        )
        statement += "" if upper <= self.limit else self.needed(cost_N, largest)
        numbers = {"mean": mean, "upper": upper, "limit": self.limit, "episodes": float(len(cost_N))}
        return Certified(upper <= self.limit, statement, numbers)

    def needed(self, cost_N: Tensor, largest: float) -> str:
        """Returns how many episodes with such costs would show the limit, in words; "" where the bound is infinite for
        another reason than their number.
        """
        if not len(cost_N) or math.isinf(self.bound(cost_N, self.failure, largest)):
            return ""
        if float(cost_N.mean()) >= self.limit:
            return ". At this mean no number of episodes shows it: train longer, or raise the limit"
        for doubled in range(1, MOST_DOUBLINGS):
            if self.bound(cost_N.repeat(2**doubled), self.failure, largest) <= self.limit:
                num = len(cost_N) * 2**doubled
                return f". With such costs {num:,} episodes would show it: --set certificate.num_starts={num}"
        return f". With such costs even {len(cost_N) * 2 ** (MOST_DOUBLINGS - 1):,} episodes do not show it"

    def most(self, task: Task | None) -> float:
        """Returns the most that an episode of the task can cost; infinite if it is not known."""
        if self.largest is not None:
            return self.largest
        source = self.cost.source
        return source.most(task) if task is not None and isinstance(source, BoundedCosts) else math.inf

    def told(self, cost_N: Tensor, largest: float) -> str:
        """Returns what the bound assumes, or why nothing is bounded, in words."""
        if math.isinf(largest):
            why = "the most that an episode can cost is not known, so that rare costs cannot be excluded"
            return f"{why}: state it with --set certificate.largest=NUMBER"
        if len(cost_N) and float(cost_N.max()) > largest:
            why = f"one cost {float(cost_N.max()):g}, more than the {largest:g} that were stated as the most"
            return f"{why}: raise certificate.largest"
        if len(cost_N) and float(cost_N.min()) < 0:
            return f"one cost {float(cost_N.min()):g}: a bound needs costs from 0 on"
        return f"none of which can cost more than {largest:g}"


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
    return Multiplier(test.limit, Ascent(rate), Pessimistic(test, now, later), channel=test.cost.channel)


def recipe(preset: Preset = CONTROL, test: CostCertificate | None = None, now: float = 4.0, later: float = 2.0,
           rate: float = 0.01, cost: Reward = TaskCost()) -> Recipe:  # fmt: skip
    """Returns rloo under a pessimistic limit of costs, twice as long, and certified at the end."""
    test = test or CostCertificate(num_starts=200 if preset.tokens else 2000)
    test = replace(test, cost=replace(test.cost, source=cost))
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
        "the test bounds costs from 0 to a largest one that is stated, which holds for rare costs too; the paper's is "
        "Student's, which passes a policy that costs 100 in 1.1 % of episodes 72 times in 100 at 30 prompts (limit 1)",
        "2,000 held-out episodes where actions are no tokens: a cost of up to 60 an episode needs as many",
        "training inflates the cost by Student's bound, as in the paper, not by that of the test",
        "a certificate needs 30 held-out prompts that no evaluation uses; each counts once",
        "no KL to a reference; the multiplier itself is updated instead of its logarithm",
    ),
    results=(
        "on hazards the default run (seed 0, 200 steps) ends with no solution: a mean cost of 0.994 in 2,000 episodes, "
        "upper bound 1.1, limit 1. A bound that holds is wider than the one that training inflates the cost by; the "
        "verdict says how many episodes would do",
        "a multiplier of rate 0.03 does not help: seeds 0 and 1 end at mean costs of 0.981 and 0.986 with multipliers "
        "of 8.9 and 8.2, seed 0 with a reward of 5.2 instead of 12. The costs of late batches are multiples of 1/8, "
        "one start of eight, in all runs: copies of a start seem to cost the same. A baseline over the "
        "batch (seed 0) changes nothing; a detour without cost exists for every start, and is not explored",
    ),
)
