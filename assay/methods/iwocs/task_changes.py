"""The regime of an uncertain task in which a phase trains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Scene, Task, TaskChange, UncertainTask


def uncertain(task: Task) -> UncertainTask:
    """Returns the task as one with several regimes; raises AssayError if it has one only."""
    if isinstance(task, UncertainTask):
        return task
    what = f"task '{task.name}' has only one regime of its transitions"
    raise AssayError(f"{what}. Use an uncertain task: uncertain-cartpole")


def discounted_return(experience: Experience, discount: float) -> Tensor:
    """Returns sum_t discount^t r_t of each row, [B]; assumes that rows are whole episodes."""
    time = experience.mask.long().cumsum(1) - 1
    return (experience.reward * experience.mask * discount**time).sum(1)


@dataclass(frozen=True)
class WorstRegime(TaskChange):
    """The regime in which the policy so far has the lowest return; the nominal one if there is no policy yet.

    Returns None (stop) if that return is what the policy predicts: the mean over `starts` of max_a of its values,
    which are the lowest of all regimes solved so far, is at most `tolerance` above the worst mean return, both
    discounted.
    """

    discount: float = 0.99
    starts: int = 16
    tolerance: float = 0.0

    @torch.no_grad()
    def __call__(self, scene: Scene) -> Task | None:
        """Returns the phase's task."""
        several, policy = uncertain(scene.task), scene.actor
        if policy is None:
            return several.under(several.regimes[0])
        starts, expected, returns = np.arange(self.starts), 0.0, []
        for regime in several.regimes:
            played = several.under(regime).play(policy, starts, np.zeros_like(starts), scene.draw, split=0, greedy=True)
            first = {name: column[:, 0] for name, column in played.context.items()}
            expected = float(policy.values(first).amax(-1).mean())
            returns.append(float(discounted_return(played, self.discount).mean()))
        worst = int(np.argmin(returns))
        return None if returns[worst] >= expected - self.tolerance else several.under(several.regimes[worst])


@dataclass(frozen=True)
class AnyRegime(TaskChange):
    """A regime drawn for each episode: domain randomisation."""

    def __call__(self, scene: Scene) -> Task:
        """Returns the phase's task."""
        return uncertain(scene.task).mixed()
