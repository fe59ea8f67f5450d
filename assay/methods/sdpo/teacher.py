"""The policy's own distributions after a correct answer was shown. Axes: B rows, T columns, K candidates, V actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, State
from assay.core.settings import model_name
from assay.core.slots import DemonstratedTask, Prepare, PromptedTask, Scene, Task
from assay.ops import groups, logits

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
        if isinstance(task, DemonstratedTask):
            one = task.demonstrate(np.arange(1), 0)
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
class SelfTeacher(Prepare):
    """Writes `candidates` [B, T, K, 2]: the `num` likeliest tokens of the policy at each decision, and log q of each,

        q(v | x, f, y_<t): the same answer y, scored by the teacher after a prompt that contains f.

    f is the first other answer of the group with an outcome of at least `threshold` (SDPO, arXiv:2601.20802). Two
    forward passes; nothing is sampled. Degenerate: a row without a correct sibling has no teacher and all zeros; a
    vocabulary of at most `num` tokens is taken whole.
    """

    num: int = 100
    threshold: float = 1.0
    shown: str = SHOWN
    actor: str = model_name("actor")
    teacher: str = model_name("teacher")
    writes: ClassVar[tuple[str, ...]] = ("candidates",)
    not_a_part: ClassVar[str] = "the laws have no prompts and no two models: the method's claims run it"

    def init(self, scene: Scene) -> State:
        """Returns an empty state; raises AssayError if the task has no prompts, or cannot write the teacher's."""
        check_shown(scene.task, "SelfTeacher", self.shown)
        return {}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Adds the column; only rows with a correct sibling are scored."""
        task, sibling = need_prompts(scene.task, "SelfTeacher"), solved_sibling(experience, self.threshold)
        rows = (sibling != NONE).nonzero().squeeze(1)
        if not len(rows):
            return experience.add({"candidates": experience.logp.new_zeros(*experience.mask.shape, 1, 2)})
        taught = experience.rows(rows)
        token = scene.models.over(self.actor, taught, partial(likeliest, num=self.num)).to(taught.logp.dtype)
        taught = taught.add({"candidates": torch.stack((token, torch.zeros_like(token)), -1)})
        prompts = told_prompts(task, taught.column("start"), experience.rows(sibling[rows]), self.shown, scene.split)
        told = task.onto(taught, prompts)
        found = scene.models.over(self.teacher, told, candidates_of)
        logq = torch.zeros_like(token)
        logq[taught.mask] = found[told.mask].to(logq.dtype)
        column = token.new_zeros(len(experience), *token.shape[1:], 2)
        return experience.add({"candidates": column.index_copy(0, rows, torch.stack((token, logq), -1))})


def likeliest(actor: Any, rows: Experience, num: int) -> Tensor:
    """Returns the `num` likeliest tokens of each decision, [B, T, K]; 0 elsewhere."""
    return logits.over_logits(actor, rows, lambda some, _: some.topk(min(num, some.shape[-1])).indices)


def candidates_of(actor: Any, rows: Experience) -> Tensor:
    """Returns the log-probabilities of the candidates, [B, T, K]."""
    logp: Tensor = actor.score(rows, frozenset({Need.LOGP, Need.CANDIDATES})).candidates
    return logp


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
