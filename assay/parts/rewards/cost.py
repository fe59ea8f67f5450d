"""Where costs come from: the task, or the length of an answer. Axes: B sequences, T decisions, K costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, State
from assay.core.slots import Reward, Scene, Task, most_decisions


@runtime_checkable
class BoundedCosts(Protocol):
    """Costs whose sum over an episode has a largest value.

    Source: by definition. Assumes that costs are at least 0. Degenerate: a bound of 0 means no costs.
    """

    def most(self, task: Task) -> float:
        """Returns the most that an episode can cost; infinite if the task does not state it."""


@dataclass(frozen=True)
class TaskCost(Reward):
    """States that costs are the task's own, and changes nothing. A task without costs is refused when a run begins.

    Degenerate: outside of a run there is no task, and nothing is refused. Source: by definition. Assumes that the task
    writes costs.
    """

    not_a_part: ClassVar[str] = "it changes nothing, and refuses the tasks of the laws, which have no costs"

    def init(self, scene: Scene) -> State:
        if scene.task is not None and not scene.task.spec.num_costs:
            told = f"task '{scene.task.name}' gives no costs, and a constraint needs them"
            raise AssayError(f"{told}. Use a task with costs, such as hazards, or a variant that limits the length")
        return {}

    def most(self, task: Task) -> float:
        """Returns the largest cost of a decision at each of the horizon's."""
        largest = task.spec.largest_cost
        return math.inf if largest is None else largest * task.spec.horizon

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return experience


@dataclass(frozen=True)
class LengthCost(Reward):
    """Gives every decision of a row after its first `limit` a cost of 1, as a new channel after the task's own.

    The cost of a row is then its excess length. Rewards do not change. Assumes that rows are whole episodes; fragments
    of episodes are refused. Degenerate: a limit of 0 makes the cost of a row its length. Source: by definition.
    """

    limit: int = 64

    def most(self, task: Task) -> float:
        """Returns the decisions of the longest episode beyond the limit."""
        return float(max(0, most_decisions(task) - self.limit))

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        if "episode_length" in experience.extra:
            raise AssayError("LengthCost counts decisions of whole episodes, not of fragments. Use rollout Episodes()")
        late = (experience.mask.cumsum(1) > self.limit) & experience.mask
        cost = late.to(experience.reward.dtype).unsqueeze(-1)
        return replace(experience, cost=cost if experience.cost is None else torch.cat([experience.cost, cost], -1))
