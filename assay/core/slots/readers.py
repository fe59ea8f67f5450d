"""Protocols of parts and tasks with settings that others decide: the task, or the user's options; and what of the past
policies read.

Axes: N instances, k steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from assay.core.errors import AssayError
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


@dataclass(frozen=True)
class History:
    """The last `steps` observations, the current one included; with the actions and rewards between them.

    Contexts then have, besides the task's own keys, for the k - 1 decisions before the current one, the latest last:

        past               whether the place holds a decision of this episode, bool [N, k-1]; zeros before its first
        past_observation   what was seen before them (`past_state`, `past_image`), [N, k-1, ...]
        past_action        what was done, and `past_reward` what it paid
        received           the sum of all rewards of the episode so far, [N]
        time               decisions of the episode so far, [N]

    Degenerate: 1 step without actions and rewards is no history.
    """

    steps: int = 1
    actions: bool = False
    rewards: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise AssayError(f"a history of {self.steps} steps shows nothing. Use at least 1: the current one")

    def __or__(self, other: History) -> History:
        """Returns the history that shows what both do."""
        steps = max(self.steps, other.steps)
        return History(steps, self.actions or other.actions, self.rewards or other.rewards)


@runtime_checkable
class Recalling(Protocol):
    """A part of a model that reads past decisions. Law: without them it decides as in the first step of an episode."""

    @property
    def reads_history(self) -> History:
        """How much of the past it reads."""


@runtime_checkable
class RememberingTask(Task, Protocol):
    """A task that can show past decisions."""

    def remembering(self, history: History) -> Task:
        """Returns the task whose contexts show this much of the past; equal histories give the same task again."""
