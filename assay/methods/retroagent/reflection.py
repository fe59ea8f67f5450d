"""What is learned from an attempt, as a text: a solved example, or what a model writes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.method import DISCARDED, AssayError, Chat, Choice, ReplayableTask, Scene, filled

Rows = Sequence[Mapping[str, Any]]


Reflect = Callable[[Scene, Rows, Sequence[bool]], list[str]]
"""(scene, attempts at different prompts, whether each won) -> the lesson of each; "" for none."""


REFLECTED = """{prompt}
{completion}
this attempt {verdict}. say in one sentence what helps with tasks of this kind, without the answer of this one."""


def said_in(row: Mapping[str, Any]) -> str:
    """What was said after the prompt: the completion, or all turns of a conversation, one in a line."""
    turns = row.get("messages")
    return "\n".join(turn["content"].strip() for turn in turns[1:]) if turns else str(row["completion"])


def solved_example(scene: Scene, rows: Rows, won: Sequence[bool]) -> list[str]:
    """The prompt with what was said where it won, no lesson where it did not."""
    return [f"{row['prompt']}{said_in(row)}" if is_won else "" for row, is_won in zip(rows, won, strict=True)]


def asked_about(rows: Rows, won: Sequence[bool]) -> list[str]:
    """What a model is asked about each attempt, of whole conversations where there are turns."""
    verdict = ["was right" if is_won else "was wrong" for is_won in won]
    return [
        filled(REFLECTED, {"prompt": row["prompt"], "completion": said_in(row), "verdict": said})
        for row, said in zip(rows, verdict, strict=True)
    ]


@dataclass(frozen=True)
class ChatReflection(Choice):
    """A judge writes the lesson; it is told the attempt and whether it was right."""

    ask: Chat

    def __call__(self, scene: Scene, rows: Rows, won: Sequence[bool]) -> list[str]:
        """The judge's answers, without spaces around them."""
        return [one.strip() for one in self.ask(asked_about(rows, won))]


@dataclass(frozen=True)
class OwnReflection(Choice):
    """The acting policy writes the lesson, sampled like an answer; these tokens are not trained on."""

    def check(self, task: ReplayableTask) -> None:
        """Raises AssayError if the task cannot write the question."""
        try:
            task.told(asked_about([{"prompt": "", "completion": ""}], [True]))
        except ValueError as error:
            raise AssayError(f"task '{task.name}' cannot write a question about an attempt: {error}") from None

    def __call__(self, scene: Scene, rows: Rows, won: Sequence[bool]) -> list[str]:
        """What the policy writes."""
        task, starts = scene.task, np.arange(len(rows))
        assert isinstance(task, ReplayableTask)
        said, num = task.say(scene.actor, asked_about(rows, won), starts, starts * 0, scene.draw.at(9))
        scene.log(DISCARDED, float(num))  # they count as sampled
        return [one.strip() for one in said]
