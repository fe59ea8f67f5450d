"""Rollouts beside one greedy answer to each start. Axes: B rows, G greedy rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.columns import merge_columns
from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene, TextTask
from assay.core.slots.scene import DISCARDED
from assay.ops import groups
from assay.parts.rollouts.episodes import Around, Episodes
from assay.rollouts.episodes import masked

GREEDY = "greedy_outcome"


@dataclass(frozen=True)
class WithGreedy(Around):
    """Plays every start once greedily and rewards it, then runs `gather`; the outcome is a column of the group's rows.

    With `skip`, starts whose greedy answer is right (`groups.is_right`) are not sampled. Greedy rows are not returned:
    they neither learn nor count in a group, and their decisions count as spent (`discarded_decisions`). The metric
    `greedy_outcome` is their mean outcome, `greedy_solved` the share of starts left out. `gather` may not use rewards
    itself. Degenerate: if all starts are solved, no row has a decision, and no step is taken. Source: arXiv:2310.10505.
    Assumes that a greedy answer is a fair measure of a prompt.
    """

    gather: Rollout = Episodes()
    skip: bool = False
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"skip": True})

    @property
    def reads_shares(self) -> bool:
        """Whether outcomes are read as right or wrong: only where starts are skipped."""
        return self.skip

    @property
    def writes(self) -> Collection[str]:
        return merge_columns(self.gather.writes, {GREEDY: "B: outcome of the greedy answer to the same start"})

    @property
    def by_start(self) -> bool:
        """Returns whether the inner rollout may be cut; not where starts are skipped, which rows stand in
        for if all are.
        """
        return self.gather.by_start and not self.skip

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if it draws its own starts, or if solved starts are
        to be skipped in a task of returns, where no outcome means solved.
        """
        if not self.gather.num_starts:
            raise AssayError(f"{type(self.gather).__name__} draws its own starts; WithGreedy needs them. Use Episodes")
        if self.skip and not isinstance(scene.task, TextTask):
            what = f"task '{scene.task.name}' has returns, not verified answers, so no start counts as solved"
            raise AssayError(f"{what}. Use a language task")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns the rows of the inner rollout with `greedy_outcome` [B], all rewarded."""
        starts = np.unique(scene.starts)
        played = scene.task.play(scene.actor, starts, np.zeros_like(starts), scene.draw, split=0, greedy=True)
        greedy = scene.reward(played)
        outcome = groups.outcome(greedy)
        wrong = ~groups.is_right(greedy) | (not self.skip)
        left = np.isin(scene.starts, greedy.column("start")[wrong].numpy())
        scene.log(DISCARDED, float(greedy.mask.sum()))
        scene.log(GREEDY, float(outcome.sum()), float(len(outcome)))
        scene.log("greedy_solved", float((~left).sum()), float(len(left)))
        if not left.any():
            return masked(replace(greedy, mask=torch.zeros_like(greedy.mask))).add({GREEDY: outcome})
        own = scene.reward(self.gather(scene.given(starts=scene.starts[left]), state))
        return own.add({GREEDY: outcome_of_group(own, greedy, outcome)})


def outcome_of_group(own: Experience, greedy: Experience, outcome_G: Tensor) -> Tensor:
    """Returns the outcome of the greedy row with the group of each own row, [B]."""
    assert own.group is not None
    assert greedy.group is not None
    label, order = greedy.group.sort(stable=True)
    return outcome_G[order[torch.searchsorted(label, own.group)]]
