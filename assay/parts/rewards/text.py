"""Rewards that a rule reads off a completion's text. Axes: B sequences."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene, TextTask
from assay.parts.rewards.function import on_last_decision


@dataclass(frozen=True)
class Matches(Reward):
    """1 if the regular expression `pattern` is found in the completion exactly `times` times, else 0.

    `times` 0 asks for at least once. A dot also matches a newline. The task is not verified.
    """

    pattern: str
    times: int = 1
    writes: ClassVar[tuple[str, ...]] = ("score",)
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"pattern": "1"},)

    def init(self, scene: Scene) -> State:
        """Refuses a pattern that is not a regular expression, and a task without text."""
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise AssayError(f"Matches.pattern {self.pattern!r} is not a regular expression: {error}") from None
        check_text(self, scene)
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with 0 or 1 on each last decision."""
        found = re.compile(self.pattern, re.DOTALL)

        def holds(said: str) -> bool:
            count = sum(1 for _ in found.finditer(said))
            return count == self.times if self.times else count > 0

        return by_text(experience, scene, holds)


def check_text(part: Reward, scene: Scene) -> None:
    """Raises AssayError for a task that has no text; outside of a run there is no task to check."""
    if scene.task is not None and not isinstance(scene.task, TextTask):
        raise AssayError(f"{type(part).__name__} reads text; task '{scene.task.name}' has none. Use one with prompts")


def by_text(experience: Experience, scene: Scene, holds: Callable[[str], bool]) -> Experience:
    """1 on the last decision of rows whose completion satisfies a condition."""
    assert isinstance(scene.task, TextTask), "init refuses other tasks"
    values = [float(holds(row["completion"])) for row in scene.task.texts(experience, scene.split)]
    return on_last_decision(experience, torch.tensor(values, device=experience.mask.device))
