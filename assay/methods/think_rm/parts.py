"""Credit from the pairwise verdicts of a judge. Axes: B rows, T decisions, G members of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, State
from assay.core.slots import Credit, Reward, Scene
from assay.ops import groups
from assay.parts.rewards.function import on_last_decision
from assay.parts.rewards.judges import OutcomeJudge, PairwiseJudge, margins


@dataclass(frozen=True)
class PairwiseCredit(Credit):
    """Writes the mean verdict of each episode's matches as the advantage of its decisions (arXiv:2505.16265).

        A_i = mean_j d_ij / sqrt(sum_ij d_ij^2 / (2 G (G - 1)) + epsilon)

    d_ij is the judge's score of i minus that of j if `graded`, else its sign: 1, 0 (a tie) or -1. No score is fitted;
    where one explains all verdicts, d_ij = r_i - r_j, A is (r_i - mean) / std of the group. Rows without a decision are
    in no match. Degenerate: a perfect cycle, a group of ties and a group of one have advantages of 0.
    """

    judge: PairwiseJudge = OutcomeJudge()
    graded: bool = False
    epsilon: float = 1e-6
    centred: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the column `advantage`."""
        scores = self.judge.scores(experience, scene.task)
        of_rows = torch.zeros(len(experience), dtype=torch.float64)
        for rows_G in map(torch.tensor, groups.members(experience)):
            above = margins(scores, rows_G)
            verdict, ordered = above if self.graded else above.sign(), max(len(rows_G) * (len(rows_G) - 1), 1)
            of_rows[rows_G] = verdict.mean(1) / (verdict.square().sum() / (2 * ordered) + self.epsilon).sqrt()
        advantage = groups.over_episode(of_rows.to(experience.reward), experience).unsqueeze(1)
        return experience.add({"advantage": advantage * experience.mask})


@dataclass(frozen=True)
class Refitted(Reward):
    """Rewards each episode by its Bradley-Terry score, fitted to the matches of its own group: the rival that has a
    score, and as fresh a one as the verdicts are.

    P(i beats j) = (1 + d_ij) / 2 = sigmoid(s_i - s_j), by 60 steps of gradient. Assumes margins from -1 to 1.
    Degenerate: a group of one, and a group of ties, has scores of 0.
    """

    judge: PairwiseJudge = OutcomeJudge()
    compares_group: ClassVar[bool] = True

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with scores as rewards."""
        scores, value = self.judge.scores(experience, scene.task), experience.reward.new_zeros(len(experience))
        for rows_G in map(torch.tensor, groups.members(experience)):
            won, score = (1.0 + margins(scores, rows_G)) / 2, torch.zeros(len(rows_G), dtype=torch.float64)
            for _ in range(60):
                score = score + 2.0 * (won - (score.unsqueeze(1) - score).sigmoid()).mean(1)
            value[rows_G] = score.to(value)
        return on_last_decision(experience, value)
