"""Changes of rewards and groups before credit: KL, length penalties, dropped groups, pairs. Axes: B, T."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError, TooLong
from assay.core.record import Experience, Need, State
from assay.core.slots import DemonstratedTask, Prepare, Scene, Select
from assay.core.slots.text_tasks import most_decisions
from assay.ops import groups

NUM_SHOWN = 32
"""Demonstrations whose length is never penalised."""


@dataclass(frozen=True)
class KlInReward(Prepare):
    """r_t <- r_t - coefficient * (log pi(a_t) - log pi_ref(a_t)): the k1 estimator as a reward (usual in RLHF).

    Its expected policy gradient is exactly that of reward - coefficient * KL(pi || ref). Degenerate: coefficient 0, or
    a policy that equals the reference, changes nothing. Source: arXiv:1909.08593. Assumes a copy of the policy as
    reference.
    """

    coefficient: float = 0.05
    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `reward`; `score` keeps the task's own reward."""
        log_ratio = (experience.logp - experience.column("logp_ref")) * experience.mask
        return replace(experience, reward=experience.reward - self.coefficient * log_ratio)


@dataclass(frozen=True)
class OverlongPenalty(Prepare):
    """Penalises long answers softly (DAPO, arXiv:2503.14476, equation 13): 0 up to (1 - margin) * limit tokens, then
    linear to -1 at the limit.

    `limit` 0 is the task's own, 4,096 of whose 20,480 tokens are the paper's margin. Answers that are no longer than
    one of the task's first demonstrations are not penalised; where these fill the limit or exceed it, none is. It comes
    after selection, which therefore sees the task's rewards. Degenerate: without a task and a limit it changes nothing.
    Assumes that the rewards of right answers are about 1.
    """

    limit: int = 0
    margin: float = 0.2

    def __post_init__(self) -> None:
        if self.limit < 0 or not 0.0 < self.margin <= 1.0:
            raise AssayError(f"{self}: use a limit of 0 (the task's) or more tokens, and a margin above 0 and up to 1")

    def init(self, scene: Scene) -> State:
        """Returns the lengths at which the penalty begins and ends."""
        end = self.limit or (0 if scene.task is None else most_decisions(scene.task))
        shown = longest_shown(scene.task, end) if isinstance(scene.task, DemonstratedTask) else 0
        return {"begin": max((1.0 - self.margin) * end, float(shown)), "end": float(end)}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the penalty where an answer ends."""
        begin, end = state["begin"], state["end"]
        if begin >= end:
            return experience
        length = groups.over_episode(experience.mask.sum(1).to(experience.reward.dtype), experience)
        penalty = ((begin - length) / (end - begin)).clamp(-1.0, 0.0).unsqueeze(1)
        ends = (experience.terminal | experience.truncated) & experience.mask
        scene.log("overlong", float((penalty * ends).sum()), float(ends.sum()))
        return replace(experience, reward=experience.reward + penalty * ends)


def longest_shown(task: DemonstratedTask, limit: int) -> int:
    """Returns the tokens of the longest of the task's first demonstrations; `limit` if one has more than the task
    allows for an answer.
    """
    try:
        return int(task.demonstrate(np.arange(NUM_SHOWN), 0).mask.sum(1).max())
    except TooLong:
        return limit


@dataclass(frozen=True)
class Informative(Select):
    """Keeps groups whose outcomes differ; the others have no advantage (DAPO's dynamic sampling, arXiv:2503.14476).

    Samples again, at most `max_rounds` times, until as many groups are kept as were requested. In games, a start at
    which one player's outcomes differ keeps the rows of all players, since credit may read the opponents' rows.
    Degenerate: if outcomes differ in no group of any round, the step has no decisions. Assumes several samples of each
    start.
    """

    max_rounds: int = 3

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        differs = groups.differs(groups.outcome(experience), groups.row_groups(experience))
        return experience.rows(groups.any_of(differs, groups.linked_groups(experience)))


@dataclass(frozen=True)
class RightOrWrong(Prepare):
    """reward <- 1 at the end of a right episode, 0 everywhere else: graded outcomes become labels.

    Right is an outcome above 1/2 (`groups.is_right`). For losses that are defined for right and wrong answers alone.
    Degenerate: outcomes 0 and 1 that stand at the end are unchanged; an episode without an end gets nothing. Source: by
    definition. Assumes outcomes between 0 and 1.
    """

    reads_shares: ClassVar[bool] = True

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        ends = ((experience.terminal | experience.truncated) & experience.mask).to(experience.reward.dtype)
        number = groups.over_episode(ends.sum(1), experience).clamp(min=1)  # 1, but for rows that hold several episodes
        return replace(experience, reward=ends * (groups.is_right(experience) / number).unsqueeze(1))


@dataclass(frozen=True)
class PairUp(Prepare):
    """Pairs the best with the worst member of each group; of equal members the first row counts.

    Writes `chosen` [B]: +1 and -1 for the pair (for every row of an episode), 0 for rows in no pair. Degenerate: groups
    with equal outcomes are masked. Source: arXiv:2305.18290, with pairs by outcome. Assumes several samples of each
    start.
    """

    writes: ClassVar[Mapping[str, str]] = {"chosen": "B"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `chosen` and masks the other rows."""
        outcome = groups.outcome(experience)
        by_group = groups.row_groups(experience)
        chosen = torch.zeros_like(outcome)
        there = by_group.share > 0
        best = first_extreme(torch.where(there, outcome, -torch.inf), by_group)
        worst = first_extreme(torch.where(there, -outcome, -torch.inf), by_group)
        differs = groups.differs(outcome, by_group)
        chosen[best & differs] = 1.0
        chosen[worst & differs] = -1.0
        chosen = groups.over_episode(chosen, experience)
        return replace(experience, mask=experience.mask & (chosen != 0).unsqueeze(1)).add({"chosen": chosen})


def first_extreme(value_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Marks the first row of each group that has the group's largest value, bool [B]."""
    largest = value_B.new_full((by_group.num,), -torch.inf).scatter_reduce(0, by_group.index, value_B, "amax")
    candidate = value_B == largest[by_group.index]
    row = torch.arange(len(value_B), device=value_B.device)
    first = row.new_full((by_group.num,), len(value_B)).scatter_reduce(
        0, by_group.index, torch.where(candidate, row, len(value_B)), "amin"
    )
    return row == first[by_group.index]
