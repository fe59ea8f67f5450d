"""Past observations, actions and rewards of an episode in the context of a decision. Axes: N instances, k steps.

Keys of the context: see `assay.core.slots.History`. Nothing is shown of an earlier episode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.slots import History, Simulation
from assay.core.spaces import Box, Context, Discrete, MultiDiscrete, Space

SHOWN = ("observation", "state", "image")
"""Keys of a context that change from step to step; goals stay as they are."""


class Remembered:
    """A simulation that shows the past decisions of each instance's episode."""

    def __init__(self, simulation: Simulation, history: History, space: Space) -> None:
        self.simulation, self.history, self.space = simulation, history, space
        self._now: Context = {}
        self._past: dict[str, Tensor] = {}
        self._total: dict[str, Tensor] = {}
        self._ended = torch.zeros(0, dtype=torch.bool)

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance, without a past."""
        first, num, steps = self.simulation.reset(seeds), len(seeds), self.history.steps - 1
        self._now, self._ended = first, torch.zeros(num, dtype=torch.bool)
        seen = {f"past_{name}": first[name] for name in SHOWN if name in first}
        seen |= {"past_action": nothing_done(num, self.space)} if self.history.actions else {}
        seen |= {"past_reward": torch.zeros(num)} if self.history.rewards else {}
        seen["past"] = torch.zeros(num, dtype=torch.bool)
        self._past = {name: value.new_zeros(num, steps, *value.shape[1:]) for name, value in seen.items()}
        self._total = {"received": torch.zeros(num), "time": torch.zeros(num, dtype=torch.int64)}
        return self._shown()

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps every instance; the step after an end begins an episode without a past."""
        context, reward, terminal, truncated, cost = self.simulation.step(action)
        begins = self._ended
        latest = {f"past_{name}": self._now[name] for name in SHOWN if name in self._now}
        latest |= {"past_action": action.detach(), "past_reward": reward, "past": ~begins}
        for name, old in self._past.items():
            moved = torch.cat((old, latest[name].to(old.dtype).unsqueeze(1)), 1)[:, 1:]
            self._past[name] = moved.masked_fill(begins.view(-1, *[1] * (old.dim() - 1)), 0)
        received, time = self._total["received"] + reward, self._total["time"] + 1
        self._total = {"received": received.masked_fill(begins, 0), "time": time.masked_fill(begins, 0)}
        self._now, self._ended = context, terminal | truncated
        return self._shown(), reward, terminal, truncated, cost

    def snapshot(self) -> State:
        """Returns the inner snapshot and the past."""
        mine = {"now": dict(self._now), "past": dict(self._past), "total": dict(self._total), "ended": self._ended}
        return {"inner": self.simulation.snapshot(), **mine}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        self.simulation.restore(state["inner"])
        self._now, self._ended = dict(state["now"]), state["ended"]
        self._past, self._total = dict(state["past"]), dict(state["total"])

    def _shown(self) -> Context:
        past = self._past if self.history.steps > 1 else {}
        return {**self._now, **past, **self._total}


def nothing_done(num: int, space: Space) -> Tensor:
    """Returns zeros in the layout of actions, [N, ...]."""
    if isinstance(space, Box):
        return torch.zeros(num, space.size)
    if isinstance(space, Discrete):
        return torch.zeros(num, dtype=torch.int64)
    if isinstance(space, MultiDiscrete):
        return torch.zeros(num, len(space.sizes), dtype=torch.int64)
    raise AssayError(f"past actions are vectors or choices, not {space}. Use a control task")


@dataclass(frozen=True)
class Remembering:
    """Makes simulations that show the past; `Remembering.plain` makes those without."""

    plain: Callable[[int], Simulation]
    history: History
    space: Space

    def __call__(self, num: int) -> Simulation:
        """Returns N instances."""
        return Remembered(self.plain(num), self.history, self.space)


def remembering(make: Callable[[int], Simulation], history: History, space: Space) -> Callable[[int], Simulation]:
    """Returns a maker of simulations that show this history alone; without history the plain one."""
    plain = make.plain if isinstance(make, Remembering) else make
    return plain if history == History() else Remembering(plain, history, space)
