"""How the completions of a task are written: what ends their reasoning, what sets an answer apart, their classes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from assay.core.errors import AssayError


@dataclass(frozen=True)
class AnswerFormat:
    """How the completions of one task are written; an empty text means that the task does not say.

    `mark` ends the reasoning, `gap` stands between it and the answer. Regular expressions: `box` of what sets an answer
    apart, `step` of one step of search, `form` of a completion that is written as asked, `refusal` of one that refuses.
    `modes` are (name, regular expression of the whole completion), `openings` a text that completions of each mode
    begin with.
    """

    mark: str = ""
    gap: str = ""
    box: str = ""
    step: str = ""
    form: str = ""
    refusal: str = ""
    modes: tuple[tuple[str, str], ...] = ()
    openings: tuple[str, ...] = ()

    def need_mark(self) -> str:
        """Returns the mark; raises AssayError if the task has none."""
        if not self.mark:
            raise AssayError("nothing says what ends the reasoning of its answers. Add --mark TEXT, such as '####'")
        return self.mark


@runtime_checkable
class FormattedTask(Protocol):
    """A task that says how its completions are written."""

    @property
    def answer_format(self) -> AnswerFormat:
        """How completions are written."""


def answer_format_of(task: Any) -> AnswerFormat:
    """Returns the task's own format; an empty one for a task that declares none, and without a task."""
    return task.answer_format if isinstance(task, FormattedTask) else AnswerFormat()


# ---------------------------------------------------------------------------------------------------- patterns of it
def marked_once(answers: AnswerFormat) -> str:
    """Returns the pattern of the task's mark, to be found once; raises AssayError without a mark."""
    return re.escape(answers.need_mark())


def reasoned_answer(answers: AnswerFormat) -> str:
    """Returns the pattern of reasoning, the mark once and an answer after it; raises AssayError without a mark."""
    mark = re.escape(answers.need_mark())
    other = f"(?:(?!{mark}).)"
    return rf"\A{other}*{mark}{other}+\Z"


# ---------------------------------------------------------------------------------------------------- of a file
MARKS = ("####", "</think>")
"""What ends the reasoning in files that were seen: GSM8K's mark, and the end of a thinking model's tag."""


def found_format(demonstrations: Sequence[str]) -> AnswerFormat:
    """Returns the format that all demonstrations share: a known mark that each has once, with something after it.

    Degenerate: without demonstrations, and where they differ, an empty format.
    """
    for mark in MARKS:
        parts = [one.split(mark) for one in demonstrations]
        if parts and all(len(two) == 2 and two[1].strip() for two in parts):
            gaps = {two[1][: len(two[1]) - len(two[1].lstrip())] for two in parts}
            return AnswerFormat(mark, gaps.pop() if len(gaps) == 1 else "")
    return AnswerFormat()
