"""Simulations: the episodes of a control task, stepped together. Axes: N episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from assay.core.record import State
from assay.core.spaces import Context


class Simulation(Protocol):
    """N instances of a stepping task, side by side, with Gymnasium's next-step autoreset: the step after an episode's
    end ignores its action, starts the next episode and returns its first observation with reward 0.

    Law: `restore(snapshot())` continues bitwise.
    """

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance; the k-th episode of an instance is a function of (its seed, k)."""

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps all instances: (context [N, ...], reward [N], terminal [N], truncated [N], cost [N, K] or None)."""

    def snapshot(self) -> State:
        """Returns everything that `restore` needs."""

    def restore(self, state: State) -> None:
        """Continues from the snapshot."""


@runtime_checkable
class DeviceSimulation(Simulation, Protocol):
    """A simulation whose tensors (contexts, rewards, ends, snapshots) are on a device, where its actions come from.

    Law: nothing is copied to the host in a step; on the CPU it equals its twin in numpy up to rounding.
    """

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""

    @property
    def lost(self) -> Tensor | None:
        """How many episodes were ended so far because their numbers were not finite; None if none can be."""


Answers = tuple[np.ndarray, Context, Tensor, Tensor, Tensor, Tensor | None]
"""The instances that have answered [n], ascending, and what a step returns, of these alone."""


@runtime_checkable
class ReadySimulation(Simulation, Protocol):
    """A simulation whose instances are stepped apart, so that a slow one does not hold up the others.

    Law: what an instance answers depends on its own actions alone, as if it were stepped by itself.
    """

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The instances that are sent together at first, ascending; later those that answered together are."""

    def send(self, rows: np.ndarray, action: Tensor) -> None:
        """Steps these instances, none of which is in flight, with an action each."""

    def receive(self) -> Answers:
        """Waits until as many as a group, or all that are in flight, have answered; returns those, first come."""
