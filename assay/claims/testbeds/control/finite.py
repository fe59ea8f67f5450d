"""Finite decision processes as arrays, seen as zeros and a one: the vectorised base of the tabular testbeds.

Axes: S states, A actions, K equally likely successors, N instances, B episodes, T decisions.

State S is the end. An action may also end the episode by chance, with probability `stop`; so the undiscounted return
has a stationary optimum:

    Q*(s, a) = R(s, a) + (1 - stop) mean_k max_a' Q*(s'_k, a'),   Q*(end, .) = 0
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.spaces import Box, Context, Discrete, Spec

SWEEPS, TOLERANCE = 100_000, 1e-12


@dataclass(frozen=True, eq=False)
class Finite:
    """`successors` [S, A, K] of 0 to S, `reward` [S, A]; episodes start in one of the first `num_first` states.

    `noise` is the standard deviation of a normal number that is added to each reward.
    """

    successors: np.ndarray
    reward: np.ndarray
    num_first: int
    limit: int
    stop: float = 0.0
    noise: float = 0.0
    num_start_draws: ClassVar[int] = 1

    @property
    def has_chance(self) -> bool:
        """Returns whether a step reads a uniform number."""
        return self.successors.shape[2] > 1 or self.stop > 0 or self.noise > 0

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws the first states evenly."""
        return (uniform[0] * self.num_first).astype(np.int64)

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step; successor, end and noise are read from leading and later digits of one uniform number."""
        num_states, _, branching = self.successors.shape
        here = np.minimum(state, num_states - 1)  # an ended instance is stepped too; its results are not used
        reward = self.reward[here, action]
        if uniform is None:
            moved = self.successors[here, action, 0]
            return moved, reward.astype(np.float32), moved == num_states
        which = (uniform * branching).astype(np.int64)
        rest = uniform * branching - which
        stops = rest < self.stop
        moved = np.where(stops, num_states, self.successors[here, action, which])
        if self.noise:
            rest = np.where(stops, rest / max(self.stop, 1e-300), (rest - self.stop) / (1.0 - self.stop))
            normal = torch.special.ndtri(torch.from_numpy(rest.clip(1e-12, 1.0 - 1e-12))).numpy()
            reward = reward + self.noise * normal
        return moved, reward.astype(np.float32), moved == num_states

    def observe(self, state: np.ndarray) -> Context:
        """Returns [N, S]: zeros and a one; zeros alone at the end."""
        seen = np.zeros((len(state), len(self.reward) + 1), np.float32)
        seen[np.arange(len(state)), state] = 1.0
        return {"observation": torch.from_numpy(seen[:, :-1])}

    def values(self, discount: float = 1.0) -> np.ndarray:
        """Returns Q* [S, A] by value iteration; raises AssayError if it does not converge."""
        value = np.zeros(len(self.reward) + 1)
        for _ in range(SWEEPS):
            q = self.reward + discount * (1.0 - self.stop) * value[self.successors].mean(2)
            change = np.abs(q.max(1) - value[:-1]).max()
            value[:-1] = q.max(1)
            if change <= TOLERANCE:
                return q
        raise AssayError(f"value iteration does not converge in {SWEEPS} sweeps. Let episodes end")

    def policy_value(self, policy: np.ndarray, discount: float = 1.0) -> np.ndarray:
        """Returns V [S] of action probabilities [S, A] by a linear system."""
        num_states, _, branching = self.successors.shape
        moves = np.zeros((num_states, num_states + 1))
        weight = np.broadcast_to(policy[:, :, None] / branching, self.successors.shape)
        np.add.at(moves, (np.arange(num_states)[:, None, None], self.successors), weight)
        system = np.eye(num_states) - discount * (1.0 - self.stop) * moves[:, :-1]
        value: np.ndarray = np.linalg.solve(system, (policy * self.reward).sum(1))
        return value

    @cached_property
    def gaps(self) -> np.ndarray:
        """Returns V*(s) - Q*(s, a), [S, A]."""
        q = self.values()
        return q.max(1, keepdims=True) - q

    @cached_property
    def best_action(self) -> np.ndarray:
        """Returns the optimal action of each state; ties go to the lowest number."""
        best: np.ndarray = self.gaps.round(9).argmin(1)
        return best

    @property
    def scale(self) -> float:
        """Returns J* - J(uniform actions), over the starts."""
        uniform = np.full(self.reward.shape, 1.0 / self.reward.shape[1])
        lost = self.values().max(1) - self.policy_value(uniform)
        return float(lost[: self.num_first].mean())

    def losses(self, experience: Experience) -> Tensor:
        """Returns what each decision loses, [B, T]."""
        return torch.from_numpy(self.gaps)[states_of(experience.context), experience.action].float()

    def best(self, context: Context) -> Tensor:
        """Returns the optimal action of each row."""
        return torch.from_numpy(self.best_action)[states_of(context)]

    @property
    def spec(self) -> Spec:
        """Returns zeros and a one as observations, numbered actions."""
        num_states, num_actions = self.reward.shape
        return Spec(Box((0.0,) * num_states, (1.0,) * num_states), Discrete(num_actions), self.limit)


def shaped(finite: Finite, potential: np.ndarray) -> Finite:
    """Returns the process with R(s, a) + potential(s) - (1 - stop) mean_k potential(s'_k), potential(end) = 0.

    What an action loses against the optimal one stays the same (Ng, Harada & Russell 1999); with a large random
    potential, immediate rewards say little about it, so that only values that look ahead find the optimum.
    """
    after = np.append(potential, 0.0)[finite.successors].mean(2)
    return replace(finite, reward=finite.reward + potential[:, None] - (1.0 - finite.stop) * after)


def states_of(context: Context) -> Tensor:
    """Returns the number of the state that is seen; 0 at the end."""
    return context["observation"].argmax(-1)
