"""Instances that answer late, on a virtual clock: what stepping them apart saves, and that it changes no number.

Axes: N instances, B rows, T columns.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.record import Draw, Experience, State, concatenate
from assay.core.slots import Scene, Simulation, SteppingTask
from assay.core.slots.simulations import Answers
from assay.core.spaces import Context
from assay.models.bodies.perceptron import Perceptron
from assay.models.model import Policy
from assay.parts.rollouts.episodes import Fragments

Seconds = Callable[[int, int], float]
"""The time that a step of an instance takes, by instance and number of the step."""


class Delayed:
    """A simulation whose instances answer after `seconds` of a virtual clock, `ready` at a time; a decision of the
    policy takes `policy` seconds. Each instance is stepped by itself.
    """

    def __init__(self, ones: Sequence[Simulation], seconds: Seconds, ready: int, policy: float = 0.0) -> None:
        self.ones, self.seconds, self.ready, self.policy = list(ones), seconds, ready, policy
        self.now, self.steps = 0.0, [0] * len(ones)
        self.flying: list[tuple[float, int]] = []
        self.sent: dict[int, Tensor] = {}
        self.actions: list[list[Tensor]] = [[] for _ in ones]
        """The actions that each instance was sent."""

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The instances, `ready` at a time."""
        return np.split(np.arange(len(self.ones)), range(self.ready, len(self.ones), self.ready))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        seen = [one.reset(seeds[row : row + 1]) for row, one in enumerate(self.ones)]
        return {name: torch.cat([one[name] for one in seen]) for name in seen[0]}

    def send(self, rows: np.ndarray, action: Tensor) -> None:
        """Steps these instances: they answer later."""
        self.now += self.policy
        for row, one in zip(rows.tolist(), action, strict=True):
            assert row not in self.sent, f"instance {row} is in flight"
            self.sent[row] = one.unsqueeze(0)
            self.actions[row].append(self.sent[row])
            heapq.heappush(self.flying, (self.now + self.seconds(row, self.steps[row]), row))
            self.steps[row] += 1

    def receive(self) -> Answers:
        """Waits for the first `ready` answers."""
        found = [heapq.heappop(self.flying) for _ in range(min(self.ready, len(self.flying)))]
        self.now = max(self.now, *(at for at, _ in found))
        rows = sorted(row for _, row in found)
        answers = [self.ones[row].step(self.sent.pop(row)) for row in rows]
        context = {name: torch.cat([one[0][name] for one in answers]) for name in answers[0][0]}
        reward, terminal, truncated = (torch.cat([one[place] for one in answers]) for place in (1, 2, 3))  # type: ignore[misc]
        return np.array(rows), context, reward, terminal, truncated, None

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps all instances and waits for the slowest."""
        self.ready, ready = len(self.ones), self.ready
        self.send(np.arange(len(self.ones)), action)
        found, self.ready = self.receive(), ready
        return found[1:]

    def snapshot(self) -> State:
        """Returns the snapshots of the instances."""
        return {str(row): one.snapshot() for row, one in enumerate(self.ones)}

    def restore(self, state: State) -> None:
        """Continues from the snapshots."""
        for row, one in enumerate(self.ones):
            one.restore(state[str(row)])


def policy_of(task: SteppingTask) -> nn.Module:
    """Returns a policy with fixed weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Policy(Perceptron((32,))).build(task.spec)


def fragments(task: SteppingTask, delayed: Delayed | None, num: int, steps: int, calls: int = 2) -> Experience:
    """Returns what `Fragments` gathers in several calls from the instances of a task, by a policy with fixed weights:
    stepped together if `delayed` is None, else as they answer.
    """
    scene, rollout = Scene(task, draw=Draw(3), actor=policy_of(task)), Fragments(num, steps)
    state = rollout.init(scene)
    state["simulation"] = state["simulation"] if delayed is None else delayed
    return concatenate([rollout(scene, state) for _ in range(calls)])


def late(task: SteppingTask, seconds: Seconds, ready: int, num: int = 8, policy: float = 0.0) -> Delayed:
    """Returns instances of a task that answer late."""
    return Delayed([task.simulate(1) for _ in range(num)], seconds, ready, policy)


def unequal(left: Experience, right: Experience) -> int:
    """Returns in how many numbers two records differ, bit by bit."""
    pairs = zip(columns_of(left), columns_of(right), strict=True)
    return sum(int((one != other).sum()) for one, other in pairs)


def columns_of(record: Experience) -> list[Tensor]:
    """Returns the columns of a record in order."""
    found = [*record.context.values(), *(value for value in vars(record).values() if isinstance(value, Tensor))]
    return [*found, *record.extra.values()]


def exponential(seed: int) -> Seconds:
    """Returns exponential times of mean 1."""
    return lambda row, step: float(np.random.default_rng((seed, row, step)).exponential())


def frames_a_second(task: SteppingTask, seconds: Seconds, ready: int, num: int = 8, steps: int = 64, policy: float = 0.0
                    ) -> float:  # fmt: skip
    """Returns the steps of all instances in a second of the virtual clock."""
    delayed = late(task, seconds, ready, num, policy)
    fragments(task, delayed, num, steps, calls=1)
    return num * steps / delayed.now


def wall_frames_a_second(task: SteppingTask, num: int = 8, steps: int = 16) -> float:
    """Returns the steps of all instances in a second of the wall's clock, without the first fragment, in which they are
    made; for instances that sleep, so that a busy machine does not decide.
    """
    scene, rollout = Scene(task, draw=Draw(3), actor=policy_of(task)), Fragments(num, steps)
    state = rollout.init(scene)
    rollout(scene, state)
    begin = time.monotonic()
    rollout(scene, state)
    return num * steps / (time.monotonic() - begin)
