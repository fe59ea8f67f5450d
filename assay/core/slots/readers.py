"""Protocols of parts and tasks with settings that others decide: the task, or the user's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.core.slots.tasks import Task


@runtime_checkable
class LimitReader(Protocol):
    """A part with a setting that is the most decisions of an episode unless the user sets it."""

    def with_limit(self, limit: int) -> Any:
        """Returns the part with the setting filled in."""


@runtime_checkable
class TaskReader(Protocol):
    """A part with settings that the task decides unless the user sets them."""

    def with_task(self, task: Task) -> Any:
        """Returns the part with these settings filled in; raises AssayError if the task cannot say them."""


Chat = Callable[[Sequence[str]], Sequence[str]]
"""What a chat model answers to each of some prompts."""


@runtime_checkable
class JudgeReader(Protocol):
    """A part or a task that can ask a judge of the user's (`--judge`) in place of its own program."""

    def with_judge(self, ask: Chat) -> Any:
        """Returns the part or the task that asks this chat model."""


@runtime_checkable
class RubricReader(Protocol):
    """A part that pays by a rubric of the user's (`--rubric`)."""

    def with_rubric(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        """Returns the part with these criteria; raises AssayError for a row that it cannot read."""
