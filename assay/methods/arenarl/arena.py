"""Rewards from ranks within a group: a judge compares two members, a tournament ranks them. Axes: B, T, M matches.

reward_i = 1 - rank_i / (n - 1)   rank 0 is the best of the n members of a group; equal standings share their mean
rank
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience, State
from assay.core.slots import Choice, Reward, Scene, Task
from assay.methods.arenarl.tournaments import Pairs, SeededElimination, Topology
from assay.ops import distributions, groups, random

Scores = Callable[[Tensor, Tensor], Tensor]
"""scores(first_M, second_M): [M, 2], of the rows `first_M` and `second_M`; the larger one wins."""


class PairwiseJudge(Choice, Protocol):
    """Compares two sequences of one group. Law: scores depend on the rows' contents, not on their positions."""

    def scores(self, experience: Experience, task: Task) -> Scores:
        """Returns a function that scores pairs of these rows; work shared by all pairs is done once."""

    def __call__(self, experience: Experience, task: Task, first_M: Tensor, second_M: Tensor) -> Tensor:
        """Returns the scores [M, 2] of pairs of rows."""
        return self.scores(experience, task)(first_M, second_M)


# ---------------------------------------------------------------------------------------------------- judges
@dataclass(frozen=True)
class OutcomeJudge(PairwiseJudge):
    """A judge by program: each side's total reward plus noise of standard deviation `noise`.

    The noise is a function of (group, own sample, other sample): a repeated match gives the same scores, and both
    orders of a pair are one match, so there is no position bias.
    """

    noise: float = 0.0
    seed: int = 0

    def scores(self, experience: Experience, task: Task) -> Scores:
        """Returns a function that gives two scores per match."""
        outcome = groups.outcome(experience).double()
        label, sample = labels(experience)

        def scores(first_M: Tensor, second_M: Tensor) -> Tensor:
            sides = []
            for own, other in ((first_M.numpy(), second_M.numpy()), (second_M.numpy(), first_M.numpy())):
                uniform = random.uniform(Draw(self.seed, (8,)), label[own], sample[own], sample[other])
                sides.append(outcome[own] + self.noise * distributions.normal_sample(torch.from_numpy(uniform)))
            return torch.stack(sides, 1)

        return scores


@dataclass(frozen=True)
class FunctionJudge(PairwiseJudge):
    """A user's judge: `function(a, b)` gets two descriptions (a dict with prompt, completion, ...) and returns two
    numbers.

    It is called in both orders and the scores are averaged, against position bias.
    """

    function: Callable[[dict[str, Any], dict[str, Any]], tuple[float, float]]

    def scores(self, experience: Experience, task: Task) -> Scores:
        """Returns a function that gives two scores per match."""

        def scores(first_M: Tensor, second_M: Tensor) -> Tensor:
            found = []
            for one, other in zip(first_M.tolist(), second_M.tolist(), strict=True):
                a, b = task.describe(experience, one), task.describe(experience, other)
                forth, back = self.function(a, b), self.function(b, a)
                found.append(((forth[0] + back[1]) / 2, (forth[1] + back[0]) / 2))
            return torch.tensor(found, dtype=torch.float64).view(-1, 2)

        return scores


def labels(experience: Experience) -> tuple[np.ndarray, np.ndarray]:
    """Returns group and sample number of each row; rows without numbers are numbered in order."""
    rows = torch.arange(len(experience))
    group = rows if experience.group is None else experience.group.cpu()
    return group.numpy(), experience.extra.get("sample", rows).cpu().numpy()


# ---------------------------------------------------------------------------------------------------- the reward
@dataclass(frozen=True)
class Arena(Reward):
    """Replaces the reward by the quantile of each episode's rank in its group, on its last decision.

    `score` keeps the task's own reward. Members are numbered by their `sample`. Degenerate: a group of one gets 1/2;
    rows without a decision are left out.
    """

    judge: PairwiseJudge = OutcomeJudge()
    topology: Topology = SeededElimination()

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with quantiles as rewards."""
        reward = torch.zeros_like(experience.reward)
        scores = self.judge.scores(experience, scene.task)
        for rows in members(experience):

            def match(pairs: Pairs, rows: list[int] = rows) -> list[tuple[float, float]]:
                first, second = (
                    torch.tensor([rows[pair[side]] for pair in pairs], dtype=torch.long) for side in (0, 1)
                )
                return [(one, other) for one, other in scores(first, second).tolist()]

            for row, rank in zip(rows, self.topology(len(rows), match), strict=True):
                last = int(experience.mask[row].nonzero()[-1])
                reward[row, last] = 1.0 - rank / (len(rows) - 1) if len(rows) > 1 else 0.5
        return replace(experience, reward=reward)


def members(experience: Experience) -> Iterator[list[int]]:
    """Yields the rows that represent the episodes of each group, in the order of their samples."""
    by_group, (_, sample), enters = groups.row_groups(experience), labels(experience), last_rows(experience)
    for group in range(by_group.num):
        rows = ((by_group.index == group) & enters).nonzero().squeeze(1).tolist()
        if rows:
            yield sorted(rows, key=lambda row: int(sample[row]))


def last_rows(experience: Experience) -> Tensor:
    """Marks the last row with a decision of each episode, which represents it, bool [B]."""
    there = experience.mask.any(1)
    episodes = groups.episode_groups(experience)
    row = torch.where(there, torch.arange(len(there), device=there.device), -1)
    last = row.new_full((episodes.num,), -1).scatter_reduce(0, episodes.index, row, "amax")
    return there & (row == last[episodes.index])


@dataclass(frozen=True)
class JudgedAlone(Reward):
    """Rewards each episode by the mean of `calls` scores of the judge, on its last decision: the pointwise baseline of
    Arena, which sees 2 (n - 1) matches of two scores in a group of n.

    The scores are those of matches with itself and the next members, so that both methods see the same noise.
    """

    judge: PairwiseJudge = OutcomeJudge()
    calls: int = 4

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the judge's scores as rewards."""
        reward, scores = torch.zeros_like(experience.reward), self.judge.scores(experience, scene.task)
        for rows in map(torch.tensor, members(experience)):
            found = torch.stack([scores(rows, rows.roll(-place))[:, 0] for place in range(self.calls)]).mean(0)
            for row, score in zip(rows.tolist(), found.tolist(), strict=True):
                reward[row, int(experience.mask[row].nonzero()[-1])] = score
        return replace(experience, reward=reward)
