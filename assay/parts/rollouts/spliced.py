"""Wrong answers cut before their first wrong step and continued by another. Axes: B rows, T columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State, concatenate
from assay.core.slots import CheckedTask, Rollout, Scene, Task
from assay.core.slots.scene import DISCARDED
from assay.ops import groups
from assay.parts.rollouts.episodes import Around, Episodes
from assay.parts.rollouts.hinted import unhinted
from assay.parts.rollouts.hints import check_solutions, decisions_within
from assay.rollouts.resumed_episodes import first_decisions
from assay.rollouts.text import hash_of_text

NO_ERROR = -1
"""The number of right decisions of a row that has no wrong step, or of which it is not known."""


def need_steps(task: Task, who: str) -> CheckedTask:
    """Returns the task as one that checks steps; raises AssayError if it does not, or if its rows have no steps."""
    if not isinstance(task, CheckedTask):
        what = f"{who} cuts answers at their first wrong step, and task '{task.name}' does not tell it"
        raise AssayError(f"{what}. Use a language task of single answers")
    check_solutions(task, who)
    return task


def right_decisions(rows: Experience, scene: Scene) -> Tensor:
    """Returns how many decisions of each wrong row stand before its first wrong step, [B]; NO_ERROR for right rows,
    rows without a decision, and where the task finds no wrong step.
    """
    task = scene.task
    assert isinstance(task, CheckedTask)
    wrong = ~groups.is_right(rows) & rows.mask.any(1)
    told, starts = task.texts(rows, scene.split), rows.column("start").tolist()
    found = [
        task.first_error(start, str(row["completion"]), scene.split) if is_wrong else None
        for start, row, is_wrong in zip(starts, told, wrong.tolist(), strict=True)
    ]
    ends = [0 if one is None else one for one in found]
    right = decisions_within(task, rows, rows.mask.sum(1), ends, scene.split)
    return torch.where(torch.tensor([one is None for one in found]), NO_ERROR, right)


def longest_right(rows: Experience, right_B: Tensor, least: int, most: int, scene: Scene) -> Tensor:
    """Returns the rows of each group with the most right decisions, at least `least`: at most `most` of a group.

    Of equally good ones the first by a hash of what they say, whatever their order.
    """
    task = scene.task
    assert isinstance(task, CheckedTask)
    said = [hash_of_text(str(row["completion"])) for row in task.texts(rows, scene.split)]
    order = sorted(range(len(rows)), key=lambda row: (-int(right_B[row]), said[row], row))
    label, taken, chosen = groups.row_groups(rows).index.tolist(), dict[int, int](), []
    for row in order:
        if int(right_B[row]) >= least and taken.get(label[row], 0) < most:
            taken[label[row]] = taken.get(label[row], 0) + 1
            chosen.append(row)
    return torch.tensor(sorted(chosen), dtype=torch.long)


@dataclass(frozen=True)
class Spliced(Around):
    """Gathers and rewards, then finishes wrong answers after their right steps and lets those take their places.

    In each group the `most` wrong rows with the longest right beginnings, of at least `least` decisions, are cut before
    their first wrong step; the task says how a right answer goes on. If the whole is right, it replaces the row, else
    the row stays. `foreign` [B, T] marks the decisions that the policy did not take; its own keep their recorded
    log-probabilities. Steps say where to cut and are no reward. Replaced rows were sampled and count as spent; what
    follows was not. Source: arXiv:2602.24110. Assumes a task that locates the first wrong step. Degenerate: without a
    wrong answer, or a located error, it equals `gather`.
    """

    gather: Rollout = Episodes()
    most: int = 1
    least: int = 1
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"most": 2, "least": 0})
    writes: ClassVar[Mapping[str, str]] = {
        "foreign": "BT: another than the policy decided",
        "hinted": "B: the policy saw more than the task's prompt when it acted",
    }

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if answers cannot be cut."""
        need_steps(scene.task, "Spliced")
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns all groups at their size, rewarded, with rows in their places."""
        rows = unhinted(scene.reward(self.gather(scene, state)))
        rows = rows.add({"foreign": torch.zeros_like(rows.mask)})
        right = right_decisions(rows, scene)
        chosen = longest_right(rows, right, self.least, self.most, scene)
        whole, of = self.finished(rows.rows(chosen), right[chosen], scene)
        if not len(of):
            return rows
        whole = scene.reward(whole).add({"hinted": torch.zeros(len(of), dtype=torch.bool)})
        is_right = groups.is_right(whole)
        place = chosen[of][is_right]
        scene.log("spliced", float(len(place)), float(len(rows)))
        scene.log(DISCARDED, float(rows.mask[place].sum()))
        order = torch.arange(len(rows))
        order[place] = len(rows) + is_right.nonzero().squeeze(1)
        return concatenate([rows, whole]).rows(order)

    def finished(self, rows: Experience, right_B: Tensor, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns right beginnings with what follows, and the rows that they are of."""
        task = scene.task
        assert isinstance(task, CheckedTask)
        begun = first_decisions(rows, right_B)
        told, starts = task.texts(begun, scene.split), begun.column("start").tolist()
        more = [
            task.finish(start, str(row["completion"]), scene.split) for start, row in zip(starts, told, strict=True)
        ]
        of = torch.tensor([row for row, one in enumerate(more) if one is not None], dtype=torch.long)
        return task.followed(begun.rows(of), [one for one in more if one is not None], is_over=True), of
