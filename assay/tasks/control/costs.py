"""Costs for stepped tasks: a simulation around a simulation that adds the cost of each step.

Axes: N instances, K costs. A cost is a function of the observation after the decision. Levels: CartPole and Pendulum
with a speed limit, as in Safety-Gymnasium's velocity tasks (arXiv:2310.12567).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from assay.core.record import State
from assay.core.slots import Simulation
from assay.core.spaces import Context
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import SteppedTask

CostOf = Callable[[Context], Tensor]
"""Costs [N, K] of the observation after a decision."""
CART_SPEED = 0.4
SPIN = 5.0


class CostedSimulation:
    """A simulation with costs; starting an episode costs nothing."""

    def __init__(self, simulation: Simulation, cost: CostOf, num: int) -> None:
        self.simulation, self.cost = simulation, cost
        self._ended = torch.zeros(num, dtype=torch.bool)

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        self._ended = torch.zeros(len(seeds), dtype=torch.bool)
        return self.simulation.reset(seeds)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor]:
        """Takes one step of all instances and adds its costs."""
        after, reward, terminal, truncated, _ = self.simulation.step(action)
        cost = torch.where(self._ended.unsqueeze(1), 0.0, self.cost(after))
        self._ended = terminal | truncated
        return after, reward, terminal, truncated, cost

    def snapshot(self) -> State:
        """Returns the snapshot of the inner simulation, and which episodes have ended."""
        return {"inside": self.simulation.snapshot(), "ended": self._ended.clone()}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        self.simulation.restore(state["inside"])
        self._ended = state["ended"].clone()


def simulation_with_costs(make: Callable[[int], Simulation], cost: CostOf, num: int) -> CostedSimulation:
    """Returns N instances with costs."""
    return CostedSimulation(make(num), cost, num)


def costed(task: SteppedTask, name: str, cost: CostOf, num_costs: int = 1, largest: float = 1.0) -> SteppedTask:
    """Returns the task under another name, with costs from 0 to `largest` a decision."""
    spec = replace(task.spec, num_costs=num_costs, largest_cost=largest)
    return replace(task, name=name, spec=spec, make=partial(simulation_with_costs, task.make, cost), on_device=None)


def too_fast(limit: float, index: int, context: Context) -> Tensor:
    """Returns 1 if number `index` of the observation exceeds the limit on either side."""
    return (context["observation"][:, index : index + 1].abs() > limit).float()


def slow_cartpole() -> SteppedTask:
    """Returns CartPole with cost 1 for every decision at a speed above 0.4."""
    return costed(cartpole(), "slow-cartpole", partial(too_fast, CART_SPEED, 1))


def slow_pendulum() -> SteppedTask:
    """Returns Pendulum with cost 1 for every decision at an angular speed above 5, which every swing-up needs."""
    return costed(pendulum(), "slow-pendulum", partial(too_fast, SPIN, 2))


LEVELS = {"slow-cartpole": slow_cartpole, "slow-pendulum": slow_pendulum}
