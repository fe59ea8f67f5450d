"""A teacher that is the policy itself, or a slow copy of it, with a correct answer of the group in its prompt.

Axes: B rows, T columns, K candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Prepare, PromptedTask, ResumableTask, Scene, Task
from assay.ops import groups
from assay.parts.credit.teacher import candidates_of, likeliest_actions

NONE = -1


SHOWN = "{prompt}{solution}\n{prompt}"
"""The teacher's prompt: one text, which the tokenizer puts into its chat template as it does with every prompt."""


def need_prompts(task: Task, who: str) -> PromptedTask:
    """Returns the task as one of prompts; raises AssayError if it is not."""
    if not isinstance(task, PromptedTask):
        name = getattr(task, "name", None)
        raise AssayError(f"{who} shows an answer in the prompt, and '{name}' has no prompts. Use a language task")
    return task


def check_shown(task: Task, who: str, shown: str) -> None:
    """Raises AssayError if the task has no prompts, or its tokenizer cannot write a prompt in this form."""
    prompted = need_prompts(task, who)
    try:
        if isinstance(task, ResumableTask):  # a demonstration may be longer than answers may be
            one = task.begin(np.arange(1), 0)
            prompted.onto(one, told_prompts(prompted, one.column("start"), one, shown))
    except ValueError as error:
        raise AssayError(
            f"{who}.shown is {shown!r}, which task '{task.name}' cannot write: {error}. Choose another form of prompt"
        ) from error


def told_prompts(task: PromptedTask, starts: Tensor, solved: Experience, shown: str, split: int = 0) -> list[str]:
    """Returns the prompt of each start with the completion of the same row of `solved` in it."""
    prompts, rows = task.prompts(starts.cpu().numpy(), split), task.texts(solved, split)
    return [shown.format(prompt=one, solution=row["completion"]) for one, row in zip(prompts, rows, strict=True)]


@dataclass(frozen=True)
class SolvedTeacher(Prepare):
    """Writes `candidates` [B, T, K, 2]: the `num` likeliest tokens of the policy at each decision, and log q of each,

        q(v | x, f, y_<t): the same answer y, scored by the teacher after a prompt that contains f.

    f is the first other answer of the group with an outcome of at least `threshold` (SDPO, arXiv:2601.20802), in the
    form `shown`. Two forward passes; nothing is sampled. Degenerate: a row without f has no teacher and all zeros; a
    vocabulary of at most `num` tokens is taken whole.
    """

    num: int = 100
    threshold: float = 1.0
    shown: str = SHOWN
    actor: str = model_name("actor")
    teacher: str = model_name("teacher")
    writes: ClassVar[Collection[str]] = ("candidates",)
    not_a_part: ClassVar[str] = "the laws have no prompts and no two models: its methods' claims run it"

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no prompts, or cannot write the teacher's."""
        check_shown(scene.task, type(self).__name__, self.shown)
        return {}

    def told(self, experience: Experience, scene: Scene) -> list[str]:
        """Returns the teacher's prompt of each row; "" for a row that has no teacher."""
        task, starts = need_prompts(scene.task, type(self).__name__), experience.column("start")
        sibling = solved_sibling(experience, self.threshold)
        solved = told_prompts(task, starts, experience.rows(sibling.clamp(min=0)), self.shown, scene.split)
        return [one if has_one else "" for one, has_one in zip(solved, (sibling != NONE).tolist(), strict=True)]

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the column; only rows with something to tell the teacher are scored."""
        return self.scored(experience, self.told(experience, scene), scene)

    def scored(self, experience: Experience, told: Sequence[str], scene: Scene) -> Experience:
        """Returns the experience with the column, for the teacher's prompt of each row."""
        rows = torch.tensor([bool(one) for one in told]).to(experience.mask.device).nonzero().squeeze(1)
        if not len(rows):
            return experience.add({"candidates": experience.logp.new_zeros(*experience.mask.shape, 1, 2)})
        taught = experience.rows(rows)
        token = scene.models.over(self.actor, taught, partial(likeliest_actions, num=self.num)).to(taught.logp.dtype)
        taught = taught.add({"candidates": torch.stack((token, torch.zeros_like(token)), -1)})
        logq = self.asked(taught, [one for one in told if one], scene, candidates_of)
        column = token.new_zeros(len(experience), *token.shape[1:], 2)
        return experience.add({"candidates": column.index_copy(0, rows, torch.stack((token, logq), -1))})

    def asked(
        self, taught: Experience, prompts: Sequence[str], scene: Scene, function: Callable[[Any, Experience], Tensor]
    ) -> Tensor:
        """Returns what a function of the teacher is at each decision after these prompts, [B, T, ...]; 0 elsewhere."""
        told = need_prompts(scene.task, type(self).__name__).onto(taught, list(prompts))
        found = scene.models.over(self.teacher, told, function)
        result = found.new_zeros(*taught.mask.shape, *found.shape[2:], dtype=taught.logp.dtype)
        result[taught.mask] = found[told.mask].to(result.dtype)
        return result


def solved_sibling(experience: Experience, threshold: float) -> Tensor:
    """Returns for each row the first other row of its group with an outcome of at least `threshold`, [B]; NONE if all
    failed. A row without a decision (an infrastructure fault) has failed.
    """
    rows, by_group = torch.arange(len(experience), device=experience.mask.device), groups.row_groups(experience)
    solved = (groups.outcome(experience) >= threshold) & experience.mask.any(1)
    first = first_of(solved, rows, by_group)
    second = first_of(solved & (rows != first), rows, by_group)
    sibling = torch.where(rows == first, second, first)
    return torch.where(sibling < len(rows), sibling, NONE)


def first_of(chosen_B: Tensor, rows_B: Tensor, by_group: groups.Groups) -> Tensor:
    """Returns the first chosen row of each row's group, [B]; B if none is chosen."""
    num = len(rows_B)
    earliest = rows_B.new_full((by_group.num,), num).scatter_reduce(
        0, by_group.index, torch.where(chosen_B, rows_B, num), "amin"
    )
    return earliest[by_group.index]
