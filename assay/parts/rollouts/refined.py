"""Answers that the policy writes again after feedback, as members of their groups on the bare prompt. Axes: B rows.

Feedback appears in rollouts only: the policy is evaluated and exported on the task's own prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Origin, State
from assay.core.slots import Choice, PromptedTask, Rollout, Scene, Task
from assay.core.slots.scene import DISCARDED
from assay.ops import groups
from assay.parts.rollouts.episodes import Around, Episodes
from assay.parts.rollouts.hinted import FIRST_AGAIN, in_order, together, unhinted, with_origin
from assay.parts.rollouts.hints import check_written
from assay.rollouts.text import with_last_message

FORM = "{prompt}\n\n{attempt}\n\n{feedback}\n"
"""What the policy reads before it answers again: the question, its answer, what is wrong with it."""


class Feedback(Protocol):
    """Says what is wrong with answers. Law: what is said of a row depends on that row alone."""

    def check(self, task: Task, who: str) -> None:
        """Raises AssayError, in the name of the part `who`, for a task of whose answers nothing can be said."""

    def __call__(self, rows: Experience, scene: Scene) -> list[str]:
        """Returns what is said of each rewarded row; "" for nothing, and then it is not written again."""


class Chosen(Choice, Protocol):
    """Chooses the answers that are written again."""

    def __call__(self, score_B: Tensor, experience: Experience) -> Tensor:
        """Returns whether each row is, bool [B]."""


@dataclass(frozen=True)
class Every(Chosen):
    """All answers. Source: by definition. Assumes nothing. Degenerate: of no answers none."""

    def __call__(self, score_B: Tensor, experience: Experience) -> Tensor:
        return torch.ones_like(score_B, dtype=torch.bool)


@dataclass(frozen=True)
class Best(Chosen):
    """The best answer of each group but its last member, which would be replaced; of equal ones the first sample.

    If nothing is said of it, the group stays as it is. Source: by definition. Assumes that the last
    member is the one that is replaced. Degenerate: a group of one has no other members.
    """

    def __call__(self, score_B: Tensor, experience: Experience) -> Tensor:
        first = groups.row_groups(experience)
        others = experience.mask.any(1) & ~last_members(experience)
        return best_of(score_B, others, experience, first)


def last_members(experience: Experience) -> Tensor:
    """Marks the row with the largest sample number of each group, bool [B]."""
    sample, by_group = experience.column("sample"), groups.row_groups(experience)
    return sample == -groups.lowest(-sample, by_group)


def best_of(score_B: Tensor, among_B: Tensor, experience: Experience, by_group: groups.Groups) -> Tensor:
    """Marks the row of each group with the highest score among some rows, of equal ones the first sample, bool [B]."""
    sample = experience.column("sample")
    height = torch.where(among_B, -score_B, torch.inf)
    top = among_B & (height == groups.lowest(height, by_group))
    first = torch.where(top, sample, torch.iinfo(sample.dtype).max)
    return top & (first == groups.lowest(first, by_group))


@dataclass(frozen=True)
class TrueAnswer(Feedback):
    """Right or wrong, and the right answer: the released run of Critique-GRPO (arXiv:2506.03106).

    `right` is said of answers with a score above 1/2, `wrong` of the others; both have {answer}.
    """

    right: str = "this is right: the answer is {answer}\n"
    wrong: str = "this is wrong: the right answer is {answer}\n"
    not_a_part: ClassVar[str] = "a setting of Refined"

    def check(self, task: Task, who: str) -> None:
        if not isinstance(task, PromptedTask):
            what = f"{who} writes answers again after a prompt with feedback, and task '{task.name}' has no prompts"
            raise AssayError(f"{what}. Use a language task, or a file of rows with the fields 'prompt' and 'answer'")

    def __call__(self, rows: Experience, scene: Scene) -> list[str]:
        assert isinstance(scene.task, PromptedTask)
        forms = [self.right if is_right else self.wrong for is_right in groups.is_right(rows).tolist()]
        told = scene.task.texts(rows, scene.split)
        return [form.replace("{answer}", str(row["answer"])) for form, row in zip(forms, told, strict=True)]


@dataclass(frozen=True)
class Refined(Around):
    """Gathers and rewards, then lets the policy write chosen answers again with feedback in the prompt.

    The best of a group's new answers (of equal ones the first) takes the place of the group's last member, whatever it
    scores, and is moved onto the task's own prompt: its `source` is HINTED, `hinted` [B] marks it, and its recorded
    log-probability stays that under the feedback (an off-policy sample). Which member goes does not depend on any
    score. All answers that do not stay count as spent. Source: arXiv:2506.03106. Assumes a task with prompts.
    Degenerate: if nothing is chosen it equals `gather`.
    """

    gather: Rollout = Episodes()
    feedback: Feedback = TrueAnswer()
    chosen: Chosen = Every()
    form: str = FORM
    breaks: ClassVar[dict[str, str]] = {
        "recorded": "rows on the bare prompt keep the log-probability that was recorded under the feedback"
    }
    writes: ClassVar[Mapping[str, str]] = {"hinted": "B: the policy saw more than the task's prompt when it acted"}

    @property
    def by_start(self) -> bool:
        return self.gather.by_start

    def init(self, scene: Scene) -> State:
        """Returns the state of the inner rollout; raises AssayError if nothing can be said, or written in this form."""
        task = scene.task
        self.feedback.check(task, "Refined")
        assert isinstance(task, PromptedTask), "the feedback refuses other tasks"
        check_written(task, "Refined.form", self.form, lambda: [self.written("", attempt="", feedback="")])
        return super().init(scene)

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns the groups with their refinements, all rewarded, in the order of the starts."""
        rows = unhinted(scene.reward(self.gather(scene, state)))
        again = self.refined(rows, scene)
        if not len(again):
            return rows
        by_group = groups.row_groups(again)
        best = best_of(groups.outcome(again), again.mask.any(1), again, by_group)
        gone = last_members(rows) & torch.isin(rows.column("start"), again.column("start")[best])
        scene.log("refined_right", float(groups.is_right(again)[best].sum()), float(best.sum()))
        scene.log(DISCARDED, float(rows.mask[gone].sum() + again.mask[~best].sum()))
        return in_order(together(rows.rows(~gone), again.rows(best)), scene.starts)

    def refined(self, rows: Experience, scene: Scene) -> Experience:
        """Returns the new answers of chosen rows on their own prompts, rewarded."""
        task = scene.task
        assert isinstance(task, PromptedTask)
        old = rows.rows((self.chosen(groups.outcome(rows), rows) & rows.mask.any(1)).nonzero().squeeze(1))
        said = self.feedback(old, scene)
        index = [row for row, one in enumerate(said) if one]
        old, starts = old.rows(torch.tensor(index, dtype=torch.int64)), old.column("start").numpy()[index]
        if not index:
            return old
        own = task.prompts(starts, scene.split)
        attempts = [str(row["completion"]) for row in task.texts(old, scene.split)]
        told = [
            with_last_message(prompt, partial(self.written, attempt=at, feedback=note))
            for prompt, at, note in zip(own, attempts, [said[row] for row in index], strict=True)
        ]
        samples = old.column("sample").numpy() + FIRST_AGAIN
        played = task.play_prompts(scene.actor, told, starts, samples, scene.draw, split=scene.split)
        new = scene.reward(played).add({"hinted": torch.ones(len(played), dtype=torch.bool)})
        return with_origin(task.onto(new, own), Origin.HINTED)

    def written(self, prompt: str, attempt: str, feedback: str) -> str:
        """Returns a prompt with an attempt and what is said of it."""
        return self.form.format(prompt=prompt, attempt=attempt, feedback=feedback)
