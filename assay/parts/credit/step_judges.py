"""Judges of steps: a reference in the prompt's row, a chat model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from assay.core.errors import AssayError
from assay.core.slots import Chat, Choice, ResumableTask, Task, TextTask
from assay.rollouts.judgements import filled, numbered, numbers_after

NUM_CHECKED = 32
"""Prompts whose rows are checked before a run."""

Opinions = list[list[float] | None]
"""For each row a number from 0 (wrong) to 1 (right) for each of its steps; None if the judge could not be read."""


class StepJudge(Choice, Protocol):
    """Scores the steps of answers. Rows are those of `TextTask.texts`, with the answer's steps under `written`.

    Law: what is said of a row depends on that row alone. Source: arXiv:2305.20050. Degenerate: an answer without a step
    has no score.
    """

    def check(self, task: Task) -> None:
        """Raises AssayError if the task's rows lack what the judge reads."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Opinions:
        """Returns a number for each step of each row, or None for a row."""


def check_rows(task: Task, field: str, example: str, what: str) -> list[dict[str, Any]]:
    """Returns the rows of the task's first prompts; raises AssayError if one of them lacks a field, in a sentence that
    shows a line that has it.
    """
    if not isinstance(task, ResumableTask) or not isinstance(task, TextTask):
        name = getattr(task, "name", None)
        raise AssayError(f"{what} reads '{field}' of each prompt, and task '{name}' has no prompts with fields")
    rows = task.texts(task.begin(np.arange(NUM_CHECKED), 0), 0)
    for row in rows:
        if not row.get(field):
            told = f"{what}, and the prompt '{str(row['prompt'])[:40]}' of task '{task.name}' has no field '{field}'"
            raise AssayError(f"{told}. Write JSON lines such as {example}")
    return rows


NUMBER = re.compile(r"(?:(?<![\d)])-)?\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class FromReference(Choice):
    """A judge by program, with the field `steps` of the prompt's row: 1 for a right step, 0 for a wrong one.

    A list of texts is a worked solution: a step is wrong if its last number is neither a number of the solution nor of
    the answer; a step without a number is right. A list of lists gives what each place may say: the k-th step is right
    if its text is one of the k-th list. Steps beyond such a list are right. Degenerate: of an empty list all are right.
    Source: by definition. Assumes that the prompt has the field.
    """

    def with_judge(self, ask: Chat) -> StepJudge:
        """Returns a chat model as the judge."""
        return ChatSteps(ask)

    def check(self, task: Task) -> None:
        """Raises AssayError if a prompt has no steps."""
        line = '{"prompt": "...", "answer": "72", "steps": ["48/2 = 24", "48+24 = 72"]}'
        check_rows(task, "steps", line, "steps are judged by a reference; give one, or add --judge URL")

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Opinions:
        """Returns the numbers."""
        return [self.judged(row) for row in rows]

    def judged(self, row: Mapping[str, Any]) -> list[float]:
        """Returns a number for each step of the row."""
        reference, written = row.get("steps") or [], [str(one).strip() for one in row["written"]]
        if any(isinstance(one, list | tuple) for one in reference):
            allowed = [*map(set, reference), *[None] * len(written)]
            return [float(may is None or said in may) for said, may in zip(written, allowed, strict=False)]
        known = {one for text in (*reference, row["answer"]) for one in numbers_in(str(text))}
        found = [numbers_in(said) for said in written]
        return [float(not known or not some or some[-1] in known) for some in found]


def numbers_in(said: str) -> list[float]:
    """Returns the numbers of a text."""
    return [float(one.replace(",", "")) for one in NUMBER.findall(said)]


WRONG = """Which steps of this answer are wrong?

Question:
{prompt}

Right answer:
{answer}

Steps:
{steps}

End with the line "Wrong steps: " and their numbers, or "Wrong steps: none"."""


def finds_nothing(prompts: Sequence[str]) -> list[str]:
    """A chat model that finds no wrong step in any answer."""
    return ["Wrong steps: none" for _ in prompts]


@dataclass(frozen=True)
class ChatSteps(Choice):
    """A chat model that lists the wrong steps. An answer without the line is no opinion; numbers of steps that do not
    exist are dropped. `prompt` has {prompt}, {answer} and {steps}.

    Source: arXiv:2306.05685. Assumes that the model follows the form. Degenerate: an empty list finds no step wrong.
    """

    ask: Chat
    prompt: str = WRONG
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"ask": finds_nothing},)

    def check(self, task: Task) -> None:
        """Accepts every task of texts."""

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Opinions:
        """Returns 0 for the steps in the list, 1 for the others."""
        said = self.ask([self.asked(row) for row in rows])
        return [wrong_in(one, len(row["written"])) for one, row in zip(said, rows, strict=True)]

    def asked(self, row: Mapping[str, Any]) -> str:
        """Returns what the model is asked."""
        steps = numbered(str(one).strip() for one in row["written"])
        return filled(self.prompt, {"prompt": row["prompt"], "answer": row["answer"], "steps": steps})


def wrong_in(said: str, num: int) -> list[float] | None:
    """Returns 0 for each step that the last line `Wrong steps: ...` lists, 1 for the others; None without the line."""
    wrong = numbers_after("wrong steps?", said)
    return None if wrong is None else [float(place not in wrong) for place in range(1, num + 1)]
