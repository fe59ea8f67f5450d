"""Which behaviour or format answers have, read off their text by a grammar: a measurement, nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.core.answers import AnswerFormat, answer_format_of
from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Prepare, Scene, TextTask

OTHER = "other"
"""The class of answers that no expression matches."""


@dataclass(frozen=True)
class CountModes(Prepare):
    """Logs `mode/NAME`, the share of answers in each class, `mode_score/NAME`, their mean score, `largest_mode`, the
    largest share of a class but `other`, and `stopped_length`, the mean length of answers that were not cut.

    `modes` are the classes, or a function that reads them from the task's `AnswerFormat`. A class is a regular
    expression for the whole answer; the first that matches counts, and the rest is `other`, so that shares add up to 1.
    A dot also matches a newline. A behaviour is a class of its own: ".*wait.*". Classes do not depend on whether an
    answer is right. Tasks without text are refused. Degenerate: if no row has a decision, all shares are 0, and neither
    scores nor a length are logged. Source: arXiv:2504.07912. Assumes a task with text.
    """

    modes: Mapping[str, str] | Callable[[AnswerFormat], Mapping[str, str]]
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"modes": {"one": "1.*"}},)
    not_a_part: ClassVar[str] = "it changes nothing, and refuses the tasks of the laws, which have no text"

    def __post_init__(self) -> None:
        if isinstance(self.modes, Mapping):
            check_modes(self.modes)

    def init(self, scene: Scene) -> State:
        if scene.task is not None and not isinstance(scene.task, TextTask):
            raise AssayError(f"CountModes reads text; task '{scene.task.name}' has none. Use one with prompts")
        check_modes(self.modes_of(scene.task))
        return {}

    def modes_of(self, task: Any) -> Mapping[str, str]:
        """Returns the classes on a task."""
        return self.modes if isinstance(self.modes, Mapping) else self.modes(answer_format_of(task))

    @staticmethod
    def mode_of(answer: str, modes: Mapping[str, str]) -> str:
        """Returns the class of an answer."""
        found = (name for name, pattern in modes.items() if re.fullmatch(pattern, answer, re.DOTALL))
        return next(found, OTHER)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        if not isinstance(scene.task, TextTask):
            return experience
        rows, modes = scene.task.texts(experience, scene.split), self.modes_of(scene.task)
        scores, there = experience.column("score").tolist(), experience.mask.any(1).tolist()
        pairs = [(self.mode_of(row["completion"], modes), score) for row, score in zip(rows, scores, strict=True)]
        found = [pair for pair, is_there in zip(pairs, there, strict=True) if is_there]
        counts = {name: [score for mode, score in found if mode == name] for name in (*modes, OTHER)}
        for name, own in counts.items():
            scene.log(f"mode/{name}", len(own), len(found))
            if own:
                scene.log(f"mode_score/{name}", sum(own), len(own))
        scene.log("largest_mode", max(len(counts[name]) for name in modes), len(found))
        ended = ~(experience.truncated & experience.mask).any(1) & experience.mask.any(1)
        if bool(ended.any()):
            scene.log("stopped_length", float(experience.mask.sum(1)[ended].sum()), float(ended.sum()))
        return experience


def check_modes(modes: Mapping[str, str]) -> None:
    """Raises AssayError unless the classes have names of their own and regular expressions."""
    if OTHER in modes or not modes:
        raise AssayError(f"CountModes.modes is {dict(modes)}. Name at least one class, none of them '{OTHER}'")
    for name, pattern in modes.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise AssayError(f"CountModes.modes: '{name}' is not a regular expression: {error}") from None
