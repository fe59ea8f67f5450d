"""Which regime of an uncertain task a phase of a program is to learn in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Scene, Task, TaskChange, UncertainTask


def uncertain(task: Task) -> UncertainTask:
    """The task as one with several regimes."""
    if isinstance(task, UncertainTask):
        return task
    raise AssayError(f"task '{task.name}' has one regime of its transitions; take an uncertain one: uncertain-cartpole")


def discounted_return(experience: Experience, discount: float) -> Tensor:
    """sum_t discount^t r_t of each row, [B]; rows are whole episodes."""
    time = experience.mask.long().cumsum(1) - 1
    return (experience.reward * experience.mask * discount**time).sum(1)


@dataclass(frozen=True)
class WorstRegime(TaskChange):
    """The regime in which the policy so far earns least; the nominal one where there is none yet.

    Nothing, when that is what the policy itself expects: the mean over `starts` of max_a of its values, which are the
    lowest of all regimes solved so far, is at most `tolerance` above the worst mean return, both discounted.
    """

    discount: float = 0.99
    starts: int = 16
    tolerance: float = 0.0

    @torch.no_grad()
    def __call__(self, scene: Scene) -> Task | None:
        """The phase's task."""
        task, policy, draw = scene.task, scene.actor, scene.draw
        several = uncertain(task)
        if policy is None:
            return several.under(several.regimes[0])
        starts, expected, returns = np.arange(self.starts), 0.0, []
        for regime in several.regimes:
            played = several.under(regime).play(policy, starts, np.zeros_like(starts), draw, split=0, greedy=True)
            first = {name: column[:, 0] for name, column in played.context.items()}
            expected = float(policy.values(first).amax(-1).mean())
            returns.append(float(discounted_return(played, self.discount).mean()))
        worst = int(np.argmin(returns))
        return None if returns[worst] >= expected - self.tolerance else several.under(several.regimes[worst])


@dataclass(frozen=True)
class AnyRegime(TaskChange):
    """A regime drawn for each episode: domain randomisation."""


    def __call__(self, scene: Scene) -> Task:
        """The phase's task."""
        return uncertain(scene.task).mixed()
