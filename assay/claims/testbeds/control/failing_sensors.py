"""A pendulum some of whose sensors fail: in held-out episodes a number of each observation is missing, NaN.

Which of the three it is (cosine, sine, angular velocity) belongs to the episode, so that a score is a mean over them;
training episodes and the scripted expert's are whole. Degenerate: with no failing sensor it is the pendulum.

Axes: N instances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.testbeds.control.regret import at_least, name_with_dials
from assay.core.errors import AssayError
from assay.core.record import Draw, State
from assay.core.spaces import Context
from assay.ops.random import hashed
from assay.tasks.control.pendulum import Pendulum, pendulum
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

SENSORS = 3


class FailingSimulation:
    """Instances whose observations lack the numbers of sensors that failed."""

    def __init__(self, num: int, failing: int) -> None:
        self.inner, self.failing = ArraySimulation(Pendulum(), num), failing
        self.failed = failed_sensors(np.arange(num), failing)

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance; which sensors fail is a function of its seed."""
        self.failed = failed_sensors(seeds, self.failing)
        return self.shown(self.inner.reset(seeds))

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Any]:
        """Takes one decision of every instance."""
        context, *rest = self.inner.step(action)
        return self.shown(context), *rest  # type: ignore[return-value]

    def shown(self, context: Context) -> Context:
        """Returns the context without what failed."""
        return {**context, "observation": context["observation"].masked_fill(self.failed, torch.nan)}

    def snapshot(self) -> State:
        """Returns the inner snapshot, whose seeds tell what failed."""
        return self.inner.snapshot()

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        self.inner.restore(state)
        self.failed = failed_sensors(state["seeds"].numpy(), self.failing)


def failed_sensors(seeds: np.ndarray, failing: int) -> Tensor:
    """Returns which sensors of each instance failed, bool [N, 3]: `failing` neighbours, the first drawn evenly."""
    first = hashed(Draw(0, (52,)), np.asarray(seeds)) % np.uint64(SENSORS)
    place = (np.arange(SENSORS) - first.astype(np.int64)[:, None]) % SENSORS
    return torch.from_numpy(place < failing)


@dataclass(frozen=True)
class MakeFailing:
    """Makes simulations of which this many sensors fail."""

    failing: int

    def __call__(self, num: int) -> FailingSimulation:
        """Returns N instances."""
        return FailingSimulation(num, self.failing)


def failing_sensors(failing: int = 1) -> SteppedTask:
    """Returns the task; `failing` sensors of each held-out episode fail."""
    at_least("failing-sensors", 0, failing=failing)
    if failing > SENSORS:
        raise AssayError(f"task 'failing-sensors': failing={failing} of {SENSORS} sensors. Use failing={SENSORS}")
    name = name_with_dials("failing-sensors", failing=(failing, 1))
    return replace(pendulum(), name=name, held_out=MakeFailing(failing), on_device=None)
