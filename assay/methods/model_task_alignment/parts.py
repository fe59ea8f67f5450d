"""Labels that the policy votes for, and a training set of one example. Axes: B sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Curriculum, Scene, Task, TextTask
from assay.evidence.passk import majority_vote
from assay.ops import groups
from assay.parts.rewards.combine import placed
from assay.parts.rewards.text import OfText
from assay.tasks.language.arithmetic import final_answer
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import Rows


@dataclass(frozen=True)
class Majority(OfText):
    """reward <- 1 if the row's final answer is the commonest of its group, else 0, on the last decision.

    The label is the policy's own: no right answer is read. Answers that tie for the first place are all paid; a row
    without an answer, such as one without a decision, is paid 0 and does not vote. Test-time labels: arXiv:2504.16084.
    Degenerate: a group whose answers all differ, or are all equal, is paid alike, so that a group mean leaves nothing.
    """

    compares_group: ClassVar[bool] = True

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the votes as rewards; `score` stays the task's own if it is set."""
        assert isinstance(scene.task, TextTask), "init refuses other tasks"
        answer, group = answers_of(scene.task), groups.row_groups(experience).index.tolist()
        said = [answer(row["completion"]) for row in scene.task.texts(experience, scene.split)]
        ballots: dict[int, list[str | None]] = {}
        for one, own in zip(said, group, strict=True):
            ballots.setdefault(own, []).append(one)
        winners = {own: majority_vote(each) for own, each in ballots.items()}
        paid = [float(one in winners[own]) for one, own in zip(said, group, strict=True)]
        return placed(experience, torch.tensor(paid, device=experience.mask.device))


def answers_of(task: Task) -> Callable[[str], str | None]:
    """Returns the function from a completion to its answer: what the verifier of a file compares, else the final answer
    of the text; None for a completion without one.
    """
    items = task.items if isinstance(task, PromptTask) else None
    return items.stated if isinstance(items, Rows) else lambda said: final_answer(said) or None


@dataclass(frozen=True)
class OneStart(Curriculum):
    """Proposes the start `start` for every place of every batch: a training set of one example (arXiv:2504.20571).

    In a file it is the training row of that number, from 0. The rollout must tell visits of a start apart (`Revisits`).
    Degenerate: if no start is requested, it proposes none.
    """

    start: int = 0

    def __post_init__(self) -> None:
        if self.start < 0:
            raise AssayError(f"OneStart.start is {self.start}; give the number of a training prompt, 0 or more")

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        """Returns the start, as often as starts are requested."""
        return np.full(scene.num_starts, self.start, dtype=np.int64)

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        """Does nothing."""
