"""Simulations as tensor operations on a device: the episodes of `ArraySimulation`, without waiting for the device.

Axes: D numbers of a state, N instances, K = `AHEAD` episodes.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.spaces import Context
from assay.ops import random_torch
from assay.ops.random_torch import GOLDEN, as_uniform, folded, marks, mixed
from assay.tasks.control.stepping import AHEAD, Dynamics

SPARE = 2 * AHEAD - 2
"""Steps for which the prepared starts suffice: an episode takes a step, and its successor's start another."""


@runtime_checkable
class Settling(Protocol):
    """Dynamics whose states hold numbers that follow from the others, which a start has yet to get."""

    def settle(self, state: Tensor, starting: Tensor) -> Tensor:
        """Returns the states [D, N] with those numbers in the instances that start now."""


@runtime_checkable
class Losing(Protocol):
    """Dynamics that end an episode whose numbers are not finite."""

    @property
    def lost(self) -> Tensor:
        """How many were ended so far."""


class TensorSimulation:
    """N instances of the same dynamics on a device. Starts are prepared `AHEAD` episodes at a time, every `SPARE`
    steps, whoever needs one: the host never asks which episodes have ended.
    """

    def __init__(self, dynamics: Dynamics[Any], num: int, device: str | torch.device) -> None:
        self.dynamics, self.num = dynamics, num
        self._settling = dynamics if isinstance(dynamics, Settling) else None
        self.device = torch.zeros((), device=device).device  # with the index, as tensors have it
        self._start_marks = marks(dynamics.num_start_draws, self.device)[:, None, None]
        self._places = torch.arange(num, device=self.device)
        self.reset(np.arange(num))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts episode 0 of every instance; without it, the seeds are 0 to N - 1."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        self._seeds = torch.from_numpy(np.asarray(seeds).astype(np.int64)).to(self.device)
        self._episode, self._elapsed = torch.zeros_like(self._seeds), torch.zeros_like(self._seeds)
        self._ended = torch.zeros(self.num, dtype=torch.bool, device=self.device)
        self._prepare()
        self._state = self._settled(self._starts[:, 0].clone(), torch.ones_like(self._ended))
        return self.dynamics.observe(self._state)

    @torch.no_grad()
    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, None]:
        """Takes one decision of every instance in an episode; starts the next episode of the others."""
        if len(action) != self.num:
            raise AssayError(f"{len(action)} actions for {self.num} instances. Give one action each")
        if self._steps == SPARE:
            self._prepare()
        self._steps += 1
        starting = self._ended
        chance = self._chance() if self.dynamics.has_chance else None
        state, reward, terminal = self.dynamics.step(self._state, action.detach().to(self.device), chance)
        self._episode = self._episode + starting
        self._elapsed = torch.where(starting, 0, self._elapsed + 1)
        start = self._starts[:, self._episode - self._first, self._places]
        self._state = self._settled(torch.where(starting, start, state), starting)
        terminal = terminal & ~starting
        truncated = (self._elapsed >= self.dynamics.limit) & ~starting
        self._ended = terminal | truncated
        return self.dynamics.observe(self._state), torch.where(starting, 0.0, reward), terminal, truncated, None

    @property
    def lost(self) -> Tensor | None:
        """How many episodes were ended so far because their numbers were not finite; None if none can be."""
        return self.dynamics.lost if isinstance(self.dynamics, Losing) else None

    def place(self, rows: Tensor, states: Tensor) -> Context:
        """Puts states [D, n] into the instances at `rows`, at the beginning of their episodes; returns all contexts."""
        rows = rows.to(self.device)
        self._state, self._elapsed, self._ended = self._state.clone(), self._elapsed.clone(), self._ended.clone()
        self._state[:, rows] = states.to(self._state)
        self._elapsed[rows], self._ended[rows] = 0, False
        return self.dynamics.observe(self._state)

    def snapshot(self) -> State:
        """Returns seeds, counters and states."""
        return {name: tensor.clone() for name, tensor in self._tensors().items()}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken, on this device or another."""
        if len(state["seeds"]) != self.num:
            raise AssayError(
                f"the snapshot has {len(state['seeds'])} instances, the simulation {self.num}. Simulate as many"
            )
        for name, tensor in self._tensors().items():
            setattr(self, f"_{name}", state[name].to(tensor.device, tensor.dtype, copy=True))
        self._prepare()

    def _settled(self, state: Tensor, starting: Tensor) -> Tensor:
        return state if self._settling is None else self._settling.settle(state, starting)

    def _tensors(self) -> dict[str, Tensor]:
        counters = {"seeds": self._seeds, "episode": self._episode, "elapsed": self._elapsed, "ended": self._ended}
        return {**counters, "state": self._state}

    def _prepare(self) -> None:
        """Starts [D, K, N] and hashes for chance [K, N], from every instance's current episode on."""
        self._first, self._steps = self._episode, 0
        episodes = self._first + torch.arange(AHEAD, device=self.device)[:, None]
        words = folded(mixed(self._seeds + GOLDEN), episodes)
        uniform = as_uniform(mixed(words ^ self._start_marks))
        states = self.dynamics.start(uniform.reshape(len(uniform), words.numel()))
        self._starts = states.reshape(len(states), *words.shape)
        self._words = random_torch.folded(words, -1)

    def _chance(self) -> Tensor:
        return as_uniform(folded(self._words[self._episode - self._first, self._places], self._elapsed))
