"""Beginnings of solutions that a policy is shown, in its prompt or as the beginning of its answer. Axes: B rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import (
    DemonstratedTask,
    PromptedTask,
    RepeatingTask,
    ResumableTask,
    Scene,
    Task,
    TextTask,
    has_turns,
)
from assay.rollouts.resumed_episodes import first_decisions
from assay.rollouts.text import with_last_message

HINT = "{prompt}\n\nhint: {hint}\n"
"""A prompt with the beginning of a solution."""

MEASURED = 64
"""Rows of a file that are searched for solutions before a run."""


# ------------------------------------------------------------------------------------------------ solutions
def states(answer: str, text: str) -> re.Match[str] | None:
    """Returns where a text first states an answer as a word; None if it does not."""
    return re.search(rf"(?<!\w){re.escape(answer.strip())}(?!\w)", text)


def statement(answer: str, solution: str) -> float:
    """Returns the place in a solution where it first states the answer as a word; infinity if it never does, or if the
    solution is nothing but the answer, of which any part may be given.
    """
    found = states(answer, solution)
    return math.inf if found is None or solution.strip() == answer.strip() else float(found.start())


def before_answer(task: TextTask, shown: Experience, given_B: Tensor, split: int = 0) -> Tensor:
    """Returns the largest number of first decisions, at most `given_B`, whose text ends before the answer is stated."""
    ends = [statement(row["answer"], row["completion"]) for row in task.texts(shown, split)]
    return decisions_within(task, shown, given_B, ends, split)


def decisions_within(
    task: TextTask, shown: Experience, given_B: Tensor, ends: Sequence[float], split: int = 0
) -> Tensor:
    """Returns the largest number of first decisions, at most `given_B`, whose text has at most `ends` characters."""
    low, high = torch.zeros_like(given_B), given_B.clone()
    while bool((low < high).any()):  # by halving: a longer prefix has a longer text
        middle = (low + high + 1) // 2
        texts = task.texts(first_decisions(shown, middle), split)
        fits = torch.tensor([len(row["completion"]) <= end for row, end in zip(texts, ends, strict=True)])
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle - 1)
    return low


def check_solutions(task: Task, who: str) -> None:
    """Raises AssayError if the task has no demonstrations, or if those of a file are nothing but the answers."""
    if not isinstance(task, DemonstratedTask) or not isinstance(task, TextTask):
        what = f"{who} shows beginnings of solutions, and task '{task.name}' has none"
        raise AssayError(f"{what}. Use a language task, or a file of rows with the fields 'prompt' and 'answer'")
    rows = min(MEASURED, task.num_training) if isinstance(task, RepeatingTask) else 0
    if not rows:
        return
    told = task.texts(task.demonstrate(np.arange(rows), 0), 0)
    if all(row["completion"].strip() == str(row["answer"]).strip() for row in told):
        raise AssayError(
            f"{who} shows beginnings of solutions, and field 'answer' of '{task.name}' holds the answers alone. Write "
            'the steps before "####", in JSON lines such as {"prompt": "...", "answer": "first ... then ...\\n#### 18"}'
        )


# ------------------------------------------------------------------------------------------------ hints
class Hint(Protocol):
    """Shows each start a share of its solution and lets the policy go on from there.

    Laws: what is shown depends on the start and the share alone; share 0 shows nothing. Source: GHPO, 2025. Degenerate:
    share 0 is the start itself.
    """

    def check(self, task: Task, who: str) -> None:
        """Raises AssayError, in the name of the part `who`, for a task of which nothing can be shown."""

    def play(self, scene: Scene, starts: np.ndarray, shares: np.ndarray, samples: np.ndarray) -> Experience:
        """Returns an episode for each (start, share, sample), not yet rewarded."""


def check_written(task: Task, setting: str, form: str, prompts: Callable[[], Sequence[str]]) -> None:
    """Raises AssayError if a task cannot write prompts of a form, or the form has other places than these prompts fill;
    `setting` is its name.
    """
    try:
        task.told(prompts())  # type: ignore[attr-defined]
    except (ValueError, LookupError) as error:
        raise AssayError(
            f"{setting} is {form!r}, which task '{task.name}' cannot write: {error}. Choose another form"
        ) from error


@dataclass(frozen=True)
class InPrompt(Hint):
    """The first `share` of the characters of the task's demonstration, in the user's last message, by the `form`.

    With `hides_answer` it ends before the solution first states the answer, since copying that would be no solution.
    Loss and ratio are of the answer alone. Degenerate: share 0 is the task's own prompt.
    Source: GHPO, 2025. Assumes that prompts are chats or texts.
    """

    form: str = HINT
    hides_answer: bool = True
    not_a_part: ClassVar[str] = "a setting of rollouts that show solutions"

    def check(self, task: Task, who: str) -> None:
        if not isinstance(task, PromptedTask):
            raise AssayError(f"task '{task.name}' has no prompts to put a hint into. Use a language task")
        check_solutions(task, who)
        check_written(task, f"{who}.hint.form", self.form, lambda: self.prompts(Scene(task), np.arange(1), np.ones(1)))

    def prompts(self, scene: Scene, starts: np.ndarray, shares: np.ndarray) -> list[str]:
        """Returns the prompt of each start with its share of the solution."""
        task = scene.task
        assert isinstance(task, DemonstratedTask)
        assert isinstance(task, PromptedTask)
        told = task.texts(task.demonstrate(starts, scene.split), scene.split)
        hints = [self.hint(row, share) for row, share in zip(told, shares.tolist(), strict=True)]
        own = task.prompts(starts, scene.split)
        return [one if not hint else self.written(one, hint) for one, hint in zip(own, hints, strict=True)]

    def hint(self, row: Mapping[str, Any], share: float) -> str:
        """Returns the beginning of the solution of a row."""
        solution = str(row["completion"])
        end = statement(str(row["answer"]), solution) if self.hides_answer else math.inf
        return solution[: min(round(share * len(solution)), int(min(end, len(solution))))]

    def written(self, prompt: str, hint: str) -> str:
        """Returns a prompt with a hint in its last message."""
        return with_last_message(prompt, lambda content: self.form.format(prompt=content, hint=hint))

    def play(self, scene: Scene, starts: np.ndarray, shares: np.ndarray, samples: np.ndarray) -> Experience:
        task, told = scene.task, self.prompts(scene, starts, shares)
        assert isinstance(task, PromptedTask)
        return task.play_prompts(scene.actor, told, starts, samples, scene.draw, split=scene.split)


@dataclass(frozen=True)
class InAnswer(Hint):
    """The first `share` of the decisions of the task's demonstration, as the beginning of the answer.

    They are context: mask false. At least one decision is left, and they end before the answer is stated. Degenerate:
    share 0 is `Episodes`. Source: arXiv:2402.05808. Assumes demonstrations in the policy's own tokens.
    """

    not_a_part: ClassVar[str] = "a setting of rollouts that show solutions"

    def check(self, task: Task, who: str) -> None:
        check_solutions(task, who)
        if not isinstance(task, ResumableTask) or has_turns(task):
            what = f"{who} begins answers, and task '{task.name}' is played in turns"
            raise AssayError(f"{what}. Use a hint in the prompt")

    def play(self, scene: Scene, starts: np.ndarray, shares: np.ndarray, samples: np.ndarray) -> Experience:
        task = scene.task
        assert isinstance(task, DemonstratedTask)
        assert isinstance(task, ResumableTask)
        shown = task.demonstrate(starts, scene.split)
        length = shown.mask.sum(1)
        given = torch.minimum((torch.from_numpy(shares) * length).long(), (length - 1).clamp(min=0))
        if isinstance(task, TextTask):
            given = before_answer(task, shown, given, scene.split)
        return task.resume(scene.actor, first_decisions(shown, given), samples, scene.draw, split=scene.split)
