"""A coded-rule MDP: rewards and moves are a rule over discrete codes, which are seen as numbers among irrelevant ones.

Axes: N instances, B episodes, T decisions, C values of a code.

The state is two codes (x, y) of C values. Action a pays rule[x, y, a], a table of independent numbers, and x moves on
to (x + a + 1) mod C, y to any value. Seen are x and y over C, and `irrelevant` codes that change at each decision. The
order of codes means nothing, so a smooth function of the numbers must learn every corner; a tree tests for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.finite import Finite
from assay.claims.testbeds.control.regret import RegretTask, at_least, name_with_dials
from assay.core.record import Draw, Experience
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.ops import random
from assay.tasks.control.stepping import ArraySimulation

ACTIONS, STOP, LIMIT = 3, 0.1, 100


@dataclass(frozen=True, eq=False)
class CodedRule:
    """Rows of a state: the number x C + y of the pair of codes, and a number whose digits are the irrelevant codes."""

    finite: Finite
    cardinality: int
    irrelevant: int
    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = True
    limit: ClassVar[int] = LIMIT

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws codes evenly."""
        return np.stack([self.finite.start(uniform[:1]), self.drawn(uniform[1])])

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Takes one step; later digits of the uniform number give the irrelevant codes."""
        assert uniform is not None
        moved, reward, terminal = self.finite.step(state[0], action, uniform)
        return np.stack([moved, self.drawn(uniform * 2.0**20 % 1.0)]), reward, terminal

    def drawn(self, uniform: np.ndarray) -> np.ndarray:
        """Returns a number below C^irrelevant."""
        return (uniform * self.cardinality**self.irrelevant).astype(np.int64)

    def observe(self, state: np.ndarray) -> Context:
        """Returns the codes over C, float32; x, y and then the irrelevant ones."""
        pair = np.minimum(state[0], len(self.finite.reward) - 1)  # the end looks like the last pair; it decides nothing
        codes = [pair // self.cardinality, pair % self.cardinality]
        codes += [state[1] // self.cardinality**place % self.cardinality for place in range(self.irrelevant)]
        return {"observation": torch.from_numpy((np.stack(codes, 1) / self.cardinality).astype(np.float32))}

    def pair(self, context: Context) -> Tensor:
        """Returns the number of the pair of codes that is seen."""
        codes = (context["observation"][..., :2] * self.cardinality).round().long()
        return codes[..., 0] * self.cardinality + codes[..., 1]

    @cached_property
    def gaps(self) -> Tensor:
        """Returns V* - Q* of each pair and action."""
        return torch.from_numpy(self.finite.gaps)

    def losses(self, experience: Experience) -> Tensor:
        """Returns what each decision loses, [B, T]."""
        return self.gaps[self.pair(experience.context), experience.action].float()

    def best(self, context: Context) -> Tensor:
        """Returns the optimal action of each row."""
        return torch.from_numpy(self.finite.best_action)[self.pair(context)]


def rule(cardinality: int, instance: int) -> Finite:
    """Returns the pairs of codes as states: C equally likely successors each."""
    draw, num_states = Draw(instance, (46,)), cardinality**2
    place = np.arange(num_states * ACTIONS).reshape(num_states, ACTIONS)
    code = np.arange(num_states)[:, None] // cardinality
    onward = (code + np.arange(ACTIONS) + 1) % cardinality
    successors = onward[..., None] * cardinality + np.arange(cardinality)
    return Finite(successors, 2.0 * random.uniform(draw, 0, place), num_states, LIMIT, STOP)


def coded_rule(cardinality: int = 6, irrelevant: int = 2, instance: int = 0) -> RegretTask:
    """Returns the task; `instance` numbers independent rules."""
    at_least("coded-rule", 2, cardinality=cardinality)
    at_least("coded-rule", 0, irrelevant=irrelevant, instance=instance)
    dials = {"cardinality": (cardinality, 6), "irrelevant": (irrelevant, 2), "instance": (instance, 0)}
    name = name_with_dials("coded-rule", **dials)
    dynamics, num_seen = CodedRule(rule(cardinality, instance), cardinality, irrelevant), 2 + irrelevant
    return RegretTask(
        name,
        Spec(Box((0.0,) * num_seen, (1.0,) * num_seen), Discrete(ACTIONS), LIMIT),
        partial(ArraySimulation, dynamics),
        dynamics.best,
        dynamics,
        losses=dynamics.losses,
        scale=dynamics.finite.scale,
    )
