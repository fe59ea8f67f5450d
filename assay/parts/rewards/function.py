"""Rewards from a user's function, in place of the task's own. Axes: B sequences, T decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene, TextTask
from assay.ops import random


@dataclass(frozen=True)
class FromFunction(Reward):
    """Rewards each sequence by a user's function, on its last decision, in place of the rewards so far.

    `function(rows)` gets one dict for each sequence (prompt, completion, answer and the prompt's facts on text tasks;
    return, length, actions, ... on control tasks) and returns one finite number for each. The task's verifier does
    not run.
    """

    function: Callable[[Sequence[dict[str, Any]]], Sequence[float]]
    writes: ClassVar[tuple[str, ...]] = ("score",)

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the function's rewards; raises AssayError unless it gives one number per row."""
        rows = rows_of(experience, scene)
        name = getattr(self.function, "__name__", "the reward function")
        return on_last_decision(experience, checked(self.function(rows), len(rows), name))


def rows_of(experience: Experience, scene: Scene) -> list[dict[str, Any]]:
    """Returns each sequence as a reward function sees it: as text if the task has text, else as the task describes
    it.
    """
    if isinstance(scene.task, TextTask):
        return scene.task.texts(experience, scene.split)
    return [scene.task.describe(experience, row) for row in range(len(experience))]


def checked(values: Any, num_rows: int, name: str) -> Tensor:
    """Returns the values as a tensor [B]; raises AssayError naming the function and the row for anything else."""
    if not isinstance(values, Sequence | Tensor) or isinstance(values, str) or len(values) != num_rows:
        got = f"{len(values)} values" if isinstance(values, Sequence | Tensor) else type(values).__name__
        raise AssayError(f"{name} must return {num_rows} numbers, one for each sequence; it returned {got}")
    for row, value in enumerate(values):
        number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise AssayError(f"{name} returned {value!r} for row {row}; it must return a finite float")
    return torch.tensor([float(value) for value in values])


def on_last_decision(experience: Experience, value_B: Tensor) -> Experience:
    """Writes one number per row as the reward of its last decision; rows without a decision get no reward."""
    num_columns = experience.num_columns
    column = torch.arange(num_columns, device=experience.mask.device)
    last = torch.where(experience.mask, column, -1).max(1).values
    reward = torch.where((column == last.unsqueeze(1)) & experience.mask, value_B.unsqueeze(1), 0.0).to(
        experience.reward.dtype
    )
    return replace(experience, reward=reward, extra={**experience.extra, "score": value_B})


def uniform_of(experience: Experience, scene: Scene) -> Tensor:
    """Returns a uniform number for each (start, sample) at this step, [B] float64."""
    start, sample = (experience.column(name).cpu().numpy() for name in ("start", "sample"))
    drawn = torch.from_numpy(np.asarray(random.uniform(scene.draw, start, sample)))
    return drawn.to(experience.mask.device)
