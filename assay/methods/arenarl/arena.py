"""Rewards from ranks within a group: a judge compares two members, a tournament ranks them. Axes: B, T, M matches.

reward_i = 1 - rank_i / (n - 1)   rank 0 is the best of the n members of a group; equal standings share their mean
rank
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene
from assay.methods.arenarl.tournaments import Pairs, SeededElimination, Topology
from assay.ops import groups
from assay.parts.rewards.judges import OutcomeJudge, PairwiseJudge


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
        for rows in groups.members(experience):

            def match(pairs: Pairs, rows: list[int] = rows) -> list[tuple[float, float]]:
                first, second = (
                    torch.tensor([rows[pair[side]] for pair in pairs], dtype=torch.long) for side in (0, 1)
                )
                return [(one, other) for one, other in scores(first, second).tolist()]

            for row, rank in zip(rows, self.topology(len(rows), match), strict=True):
                last = int(experience.mask[row].nonzero()[-1])
                reward[row, last] = 1.0 - rank / (len(rows) - 1) if len(rows) > 1 else 0.5
        return replace(experience, reward=reward)


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
        for rows in map(torch.tensor, groups.members(experience)):
            found = torch.stack([scores(rows, rows.roll(-place))[:, 0] for place in range(self.calls)]).mean(0)
            for row, score in zip(rows.tolist(), found.tolist(), strict=True):
                reward[row, int(experience.mask[row].nonzero()[-1])] = score
        return replace(experience, reward=reward)
