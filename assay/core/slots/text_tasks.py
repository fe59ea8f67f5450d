"""What tasks of text offer besides episodes: prompts, replies, pairs, sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from assay.core.record import Draw, Experience
from assay.core.slots.tasks import Task


@runtime_checkable
class ResumableTask(Task, Protocol):
    """A task whose episodes can start at any point of an episode: after a prefix of tokens, or in a state that given
    actions lead to. Branches, windows and starts inside a stored solution are made of these two calls.

    Law: `resume(begin(starts))` is `play(starts)`, in one call or in several with a limit.
    """

    def begin(self, starts: np.ndarray, split: int) -> Experience:
        """Returns one sequence for each start, without any decision yet."""

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> Experience:
        """Continues after the decisions of `begun` (column `answer`, else its mask), which become context: mask
        false.

        At most `limit` new decisions per row; a row that stops there has not ended. The column `answer` [B, T] is
        true on all decisions of the episode in the row, no matter which policy took them: it is what a verifier
        reads. Random numbers belong to (start, sample, time), time being the column `elapsed` [B] of `begun`, else
        its number of decisions.
        """


@runtime_checkable
class AnsweringTask(Task, Protocol):
    """A task whose episodes are answers or conversations of limited length, shorter than its horizon."""

    @property
    def max_decisions(self) -> int:
        """The most decisions of an episode."""


def has_turns(task: ResumableTask) -> bool:
    """Returns whether episodes are conversations of turns, which are continued as a whole only."""
    return task.begin(np.arange(1), 0).turn is not None


def most_decisions(task: Task) -> int:
    """Returns the most decisions of an episode: the limit of answers, or the horizon."""
    return task.max_decisions if isinstance(task, AnsweringTask) else task.spec.horizon



@runtime_checkable
class SourcedTask(Task, Protocol):
    """A task whose training starts come from several sources, so that a curriculum can choose between them.

    Law: `source_of(start_in(source, place))` is `source`, and starts of different places differ.
    """

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of the sources; none if the task does not tell its starts apart."""

    def start_in(self, source: int, place: int) -> int:
        """Returns the ordinal of start `place` of a source, in the training split."""

    def source_of(self, start: int) -> int:
        """Returns the number of the source that a training start belongs to."""


@runtime_checkable
class TextTask(Task, Protocol):
    """A task whose rows can be read as text without verification: the input of reward functions and judges."""

    def texts(self, experience: Experience, split: int) -> list[dict[str, Any]]:
        """Returns prompt, completion, answer and the prompt's facts (label, source, ...) of each row, as written."""


@runtime_checkable
class ReplayableTask(TextTask, Protocol):
    """A task of answers or conversations that can be played from changed prompts, and in which the policy can be asked
    something: with lessons from earlier episodes. The law of `PromptedTask` holds.
    """

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the task's own prompt of each start."""

    def play_prompts(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int
    ) -> Experience:
        """Plays like `play`, from these prompts; rows still belong to their starts, by which they are verified."""

    def told(self, prompts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of prompts that a part has written; ValueError for a text that it cannot write."""

    def say(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw
    ) -> tuple[list[str], int]:
        """Returns what the actor writes after each prompt, one answer or utterance, and how many tokens it took."""


@runtime_checkable
class PromptedTask(TextTask, Protocol):
    """A task of prompts that can also be played from changed prompts: with a hint, feedback or privileged text.

    Law: `play` and evaluation use the task's own prompts, whatever prompts a rollout used.
    """

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the task's own prompt of each start."""

    def play_prompts(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int
    ) -> Experience:
        """Plays like `play`, from these prompts; rows still belong to their starts, by which they are verified."""

    def onto(self, experience: Experience, prompts: Sequence[str]) -> Experience:
        """Returns the same decisions, with their log-probabilities and other columns, after other prompts."""

    def bare(self, experience: Experience) -> Experience:
        """Returns the same decisions after the start token alone: without a prompt and without a chat template."""


@runtime_checkable
class CheckedTask(TextTask, Protocol):
    """A task whose answers are written in steps, of which it can tell the first wrong one, and what would follow.

    Law: `begun + finish(start, begun)` is right where it is not None, and has no wrong step.
    """

    def first_error(self, start: int, completion: str, split: int) -> int | None:
        """Returns how many characters of a completion stand before its first wrong step; None if no step is wrong."""

    def finish(self, start: int, begun: str, split: int) -> str | None:
        """Returns what makes a completion of its right beginning; None if nothing does, or nothing is known."""

    def first_step(self, start: int, text: str, split: int) -> str:
        """Returns the first step of a text, with what ends it."""

    def followed(self, begun: Experience, more: Sequence[str], is_over: bool) -> Experience:
        """Returns rows in which a text by another, `foreign` [B, T], follows the decisions of `begun`."""


@runtime_checkable
class PairedTask(Task, Protocol):
    """Prompts with a better and a worse completion."""

    def pairs(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the chosen and the rejected completion of pair i as rows 2i and 2i + 1; `chosen` is +1 and -1."""
