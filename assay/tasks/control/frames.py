"""Frame stacking: the last observations of an episode side by side. Axes: N instances, K frames, C channels.

Before K observations have been seen, the first one of the episode fills the others, so a stack never spans episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.slots import Simulation
from assay.core.spaces import Box, Context, Image, Spec
from assay.tasks.control.stepping import SteppedTask


class Frames:
    """A simulation that shows the last `num` observations, oldest first: channels of images, numbers of vectors."""

    def __init__(self, simulation: Simulation, num: int, names: tuple[str, ...]) -> None:
        self.simulation, self.num, self.names = simulation, num, names
        self._seen: dict[str, Tensor] = {}
        self._ended = torch.zeros(0, dtype=torch.bool)

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        first = self.simulation.reset(seeds)
        self._ended = torch.zeros(len(seeds), dtype=torch.bool)
        self._seen = {name: self._repeated(first[name]) for name in self.names}
        return {**first, **self._shown()}

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps every instance; the step after an end shows the first observation of the next episode."""
        context, reward, terminal, truncated, cost = self.simulation.step(action)
        for name in self.names:
            new, old = context[name], self._seen[name]
            moved = torch.cat((old[:, 1:], new.unsqueeze(1)), 1)
            begins = self._ended.view(-1, *[1] * (old.dim() - 1))
            self._seen[name] = torch.where(begins, self._repeated(new), moved)
        self._ended = terminal | truncated
        return {**context, **self._shown()}, reward, terminal, truncated, cost

    def snapshot(self) -> State:
        """Returns the inner snapshot and the frames."""
        return {"inner": self.simulation.snapshot(), "seen": dict(self._seen), "ended": self._ended}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        self.simulation.restore(state["inner"])
        self._seen, self._ended = dict(state["seen"]), state["ended"]

    def _repeated(self, value: Tensor) -> Tensor:
        return value.unsqueeze(1).repeat(1, self.num, *[1] * (value.dim() - 1))

    def _shown(self) -> dict[str, Tensor]:
        return {name: value.flatten(1, 2) for name, value in self._seen.items()}


@dataclass(frozen=True)
class Framed:
    """Makes simulations with stacked frames."""

    make: Callable[[int], Simulation]
    num: int
    names: tuple[str, ...]

    def __call__(self, num: int) -> Simulation:
        """Returns N instances."""
        return Frames(self.make(num), self.num, self.names)


def with_frames(task: SteppedTask, num: int) -> SteppedTask:
    """Returns the task with its last `num` observations shown; scripted policies and exact models are dropped, since
    they read single observations.
    """
    space = task.spec.observation
    if isinstance(space, Image):
        seen: Box | Image = replace(space, channels=num * space.channels, numbers=num * space.numbers)
        names: tuple[str, ...] = ("image", "observation") if space.numbers else ("image",)
    elif isinstance(space, Box):
        seen, names = Box(space.low * num, space.high * num), ("observation",)
    else:
        raise AssayError(
            f"--frame-stack needs vectors or images; task '{task.name}' has {space}. Use --one-hot with it"
        )
    spec: Spec = replace(task.spec, observation=seen)
    held_out = None if task.held_out is None else Framed(task.held_out, num, names)
    plain = replace(task, expert=None, dynamics=None, roaming=None, reckless=None, proxy=None)
    return replace(plain, spec=spec, make=Framed(task.make, num, names), held_out=held_out, on_device=None)
