"""Rewards from a user's function, in place of the task's own. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.calls import rewards_of
from assay.core.record import Experience, State
from assay.core.score_range import declared_range, is_inside, refuse_outside, share_of_range, shown_row
from assay.core.slots import DemonstratedTask, Reward, Scene, TextTask
from assay.ops import random

NUM_TRIED = 8
"""Demonstrations that a function is tried on before a run."""


@dataclass(frozen=True)
class FromFunction(Reward):
    """Rewards each sequence by a user's function, on its last decision, in place of the rewards so far.

    `function(rows)` gets one dict for each sequence (prompt, completion, answer and the prompt's facts on text tasks;
    return, length, actions, ... on control tasks) and returns one finite number for each; a function of columns works
    too (see `assay.core.calls`). A None, which means that it does not apply, counts as 0 here. Numbers of a function
    with an attribute `range` are mapped from it to 0..1; one outside is an error. The task's verifier does not run.
    Degenerate: a row without a decision gets no reward, whatever the function returns. Source: by definition. Assumes a
    function of rows without side effects.
    """

    function: Callable[..., Any]
    writes: ClassVar[Mapping[str, str]] = {"score": "B"}

    def init(self, scene: Scene) -> State:
        """Returns no state; a function that fails on one of the first demonstrations of a text task fails before the
        run begins.
        """
        if isinstance(scene.task, TextTask) and isinstance(scene.task, DemonstratedTask):
            self.apply(scene.task.demonstrate(np.arange(NUM_TRIED), 0), scene.given(split=0), {})
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with the function's rewards; raises AssayError unless it gives one number per row."""
        rows = rows_of(experience, scene)
        name = getattr(self.function, "__name__", "the reward function")
        values = [0.0 if value is None else value for value in rewards_of(self.function, rows, name)]
        bounds = declared_range(self.function, name)
        if bounds is not None:
            for place, value in enumerate(values):
                if not is_inside(value, bounds):
                    raise refuse_outside(f"reward {name}", value, shown_row(place, rows[place]), bounds)
            values = [share_of_range(value, bounds) for value in values]
        return on_last_decision(experience, torch.tensor(values, device=experience.mask.device))


def rows_of(experience: Experience, scene: Scene) -> list[dict[str, Any]]:
    """Returns each sequence as a reward function sees it: as text if the task has text, else as the task describes
    it.
    """
    if isinstance(scene.task, TextTask):
        return scene.task.texts(experience, scene.split)
    return [scene.task.describe(experience, row) for row in range(len(experience))]


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
