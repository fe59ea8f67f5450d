"""Two kinds of noise in demonstrations, which look alike in the states and differ in what is written as the action.

    action noise    the expert's action gets noise, and so it is recorded:   a = expert(s) + sigma_p n,  s' ~ P(s, a)
    system noise    the system adds it to the action that is recorded:       a = expert(s),   s' ~ P(s, a + sigma_s n)

n is normal, sigma in half-ranges; actions are clipped to their bounds before and after. With equal sigma both have the
same states, in distribution, and only the first has actions that the expert did not mean (arXiv:2306.02437).

Axes: N instances, A numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Simulation
from assay.core.spaces import Box, Context
from assay.ops.distributions import normal_sample
from assay.ops.random import as_open_float32, uniform
from assay.tasks.control.stepping import SteppedTask


def blurred(action: Tensor, noise: Tensor, scale: float, space: Box) -> Tensor:
    """Returns actions [N, A] with normal noise of `scale` half-ranges, inside their bounds."""
    low, high = torch.tensor(space.low), torch.tensor(space.high)
    return (action + scale * (high - low) / 2 * noise).clamp(low, high)


class DisturbedSimulation:
    """Instances that add noise to every action; it is a function of the instance's seed and its decisions so far."""

    def __init__(self, inner: Simulation, scale: float, space: Box) -> None:
        self.inner, self.scale, self.space = inner, scale, space
        self.seeds, self.time = np.zeros(0, np.int64), 0

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        self.seeds, self.time = np.asarray(seeds, np.int64), 0
        return self.inner.reset(seeds)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Any]:
        """Takes one decision of every instance, with noise."""
        drawn = uniform(Draw(0, (53,)), self.seeds[:, None], self.time, np.arange(self.space.size))
        self.time += 1
        noise = normal_sample(as_open_float32(drawn))
        return self.inner.step(blurred(action, noise, self.scale, self.space))

    def snapshot(self) -> State:
        """Returns the inner snapshot, the seeds and the decisions so far."""
        return {"inner": self.inner.snapshot(), "seeds": torch.from_numpy(self.seeds.copy()), "time": self.time}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        self.inner.restore(state["inner"])
        self.seeds, self.time = state["seeds"].numpy().copy(), state["time"]


@dataclass(frozen=True)
class MakeDisturbed:
    """Makes simulations that add noise to every action."""

    plain: Callable[[int], Simulation]
    scale: float
    space: Box

    def __call__(self, num: int) -> DisturbedSimulation:
        """Returns N instances."""
        return DisturbedSimulation(self.plain(num), self.scale, self.space)


def disturbed(task: SteppedTask, scale: float) -> SteppedTask:
    """Returns the task with system noise of `scale` half-ranges in every episode; with 0 it is the task."""
    if not scale:
        return task
    space, other = box_of(task), task.held_out
    held_out = None if other is None else MakeDisturbed(other, scale, space)
    return replace(task, make=MakeDisturbed(task.make, scale, space), held_out=held_out, on_device=None)


@dataclass(frozen=True)
class ShakyExpert:
    """The task's expert with action noise of `scale` half-ranges, which is recorded."""

    expert: Callable[[Context], Tensor]
    scale: float
    space: Box

    @property
    def num_draws(self) -> int:
        """Number of uniform random numbers that one decision uses."""
        return self.space.size

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns actions and log-probability 0."""
        action = self.expert(context)
        if uniform is not None:
            action = blurred(action, normal_sample(uniform), self.scale, self.space)
        return action, torch.zeros(len(action))


def demonstrated(
    task: SteppedTask, starts: np.ndarray, action_noise: float, system_noise: float, draw: Draw
) -> Experience:
    """Returns episodes of the task's expert with both kinds of noise from training starts."""
    space, expert = box_of(task), task.expert
    for name, scale in (("action_noise", action_noise), ("system_noise", system_noise)):
        if scale < 0:
            raise AssayError(f"{name} is {scale:g}. Use 0 or more half-ranges of the actions")
    if expert is None:
        raise AssayError(f"task '{task.name}' has no scripted expert. Name an offline dataset: --data FILE")
    actor, noisy = ShakyExpert(expert, action_noise, space), disturbed(task, system_noise)
    played = noisy.play(actor, starts, np.zeros_like(starts), draw, split=0, greedy=False)
    return noisy.judge(played, 0)


def box_of(task: SteppedTask) -> Box:
    """Returns the task's actions; AssayError if they are not numbers."""
    if isinstance(task.spec.action, Box):
        return task.spec.action
    what = f"noise is added to actions that are numbers, and task '{task.name}' has {task.spec.action}"
    raise AssayError(f"{what}. Use scripted data with a share of random actions (--noise)")
