"""Solutions whose prefixes are given. Axes: B problems, N samples of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.settings import model_name
from assay.core.slots import Choice, DemonstratedTask, Scene, Task, TextTask
from assay.core.slots.scene import DISCARDED
from assay.parts.rollouts.episodes import group_rows


class Solutions(Choice, Protocol):
    """Where the solutions of problems come from."""

    def check(self, task: Task) -> None:
        """Raises AssayError if the task has no such solutions."""

    def __call__(self, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns one attempt at each of `scene.starts`, and whether it is a solution, bool [B]."""


@dataclass(frozen=True)
class Demonstrated(Solutions):
    """The task's demonstrations, as from another model or a file of worked answers."""

    def check(self, task: Task) -> None:
        """Raises AssayError if the task has no demonstrations."""
        if not isinstance(task, DemonstratedTask):
            raise AssayError(f"task '{task.name}' has no demonstrations for prefixes. Use prefixrl:own-solutions")

    def __call__(self, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns the demonstrations; all are solutions."""
        task = scene.task
        if not isinstance(task, DemonstratedTask):
            raise AssayError("the scene has no task with demonstrations. Pass one")
        return task.demonstrate(scene.starts, 0), torch.ones(len(scene.starts), dtype=torch.bool)


@dataclass(frozen=True)
class RejectionSampled(Solutions):
    """The first right one of `tries` samples of the base policy, as in the paper (arXiv:2601.18795).

    The base policy is the model `policy`, a copy of the actor that never changes. Right is a score of 1 or more. The
    sampled decisions count as spent (`discarded_decisions`); the metric `solved` is the share of problems with a
    solution. Degenerate: a problem that no try solves has none.
    """

    tries: int = 16
    policy: str = model_name("reference")

    def check(self, task: Task) -> None:
        """Raises AssayError if the task has no verifiable answers."""
        if not isinstance(task, TextTask):
            what = f"RejectionSampled needs verified answers; '{task.name}' has returns"
            raise AssayError(f"{what}. Use Demonstrated() or a language task")

    def __call__(self, scene: Scene) -> tuple[Experience, Tensor]:
        """Returns the first right sample of each problem, or its first sample where none is."""
        rows, samples = group_rows(scene.starts, self.tries)
        base, draw = scene.models.model(self.policy), scene.draw.at(12)
        played = scene.task.judge(scene.task.play(base, rows, samples, draw, split=0, greedy=False), 0)
        is_right = (played.column("score") >= 1.0).view(len(scene.starts), self.tries)
        first = is_right.long().argmax(1) + self.tries * torch.arange(len(is_right))
        scene.log(DISCARDED, float(played.mask.sum()))
        is_solved = is_right.any(1)
        scene.log("solved", float(is_solved.sum()), float(len(is_solved)))
        shown = played.rows(first)
        return shown.add({"sample": torch.zeros_like(shown.column("sample"))}), is_solved
