"""Rewards that a rule reads off a completion's text. Axes: B sequences."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from assay.core.answers import AnswerFormat, answer_format_of
from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene, TextTask
from assay.parts.rewards.function import on_last_decision


class OfText(Reward, Protocol):
    """A reward that reads completions alone: tasks without text are refused, the task is not verified.

    Source: by definition. Assumes a task with text. Degenerate: an empty completion is read too.
    """

    writes: ClassVar[Mapping[str, str]] = {"score": "B"}

    def init(self, scene: Scene) -> State:
        """Returns no state; refuses a task without text. Outside of a run there is no task to check."""
        if scene.task is not None and not isinstance(scene.task, TextTask):
            name = type(self).__name__
            raise AssayError(f"{name} reads text; task '{scene.task.name}' has none. Use one with prompts")
        return {}


@dataclass(frozen=True)
class Matches(OfText):
    """1 if the regular expression `pattern` is found in the completion exactly `times` times, else 0.

    `pattern` may be a function that reads it from the task's `AnswerFormat`, such as `marked_once`. `times` 0 gives 1 -
    decay^n if it is found n times: with `decay` 0 it asks for at least once, with a larger one each further place pays
    less. A dot also matches a newline. Degenerate: a completion without the pattern gets 0, whatever `times` is.
    Source: arXiv:2501.12948, format rewards. Assumes a task with text.
    """

    pattern: str | Callable[[AnswerFormat], str]
    times: int = 1
    decay: float = 0.0
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"pattern": "1"}, {"pattern": "1", "times": 0, "decay": 0.5})

    def __post_init__(self) -> None:
        if not 0.0 <= self.decay < 1.0:
            raise AssayError(f"Matches.decay is {self.decay}; give a number from 0 to below 1")

    def init(self, scene: Scene) -> State:
        """Refuses a pattern that is not a regular expression, and a task without text."""
        started = super().init(scene)
        if isinstance(self.pattern, str) or scene.task is not None:
            self.pattern_on(scene.task)
        return started

    def pattern_on(self, task: Any) -> str:
        """Returns the pattern on a task; raises AssayError if it cannot be read, or the task does not say it."""
        try:
            pattern = self.pattern if isinstance(self.pattern, str) else self.pattern(answer_format_of(task))
            re.compile(pattern)
        except re.error as error:
            raise AssayError(f"Matches.pattern {pattern!r} is not a regular expression: {error}") from None
        except AssayError as error:
            raise AssayError(f"task '{task.name}': {error}") from None
        return pattern

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the reward on each last decision."""
        found = re.compile(self.pattern_on(scene.task), re.DOTALL)

        def worth(said: str) -> float:
            count = sum(1 for _ in found.finditer(said))
            return float(count == self.times) if self.times else 1.0 - self.decay**count

        return by_text(experience, scene, worth)


def by_text(experience: Experience, scene: Scene, worth: Callable[[str], float]) -> Experience:
    """Returns the experience with what each row's completion is worth on its last decision."""
    assert isinstance(scene.task, TextTask), "init refuses other tasks"
    values = [float(worth(row["completion"])) for row in scene.task.texts(experience, scene.split)]
    return on_last_decision(experience, torch.tensor(values, device=experience.mask.device))
