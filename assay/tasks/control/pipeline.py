"""Pipeline: open and close a gate so that what arrives nineteen decisions downstream is what is asked for.

NeoRL-2's Pipeline (arXiv:2503.19267) from its equations: flows up to 200, a pipe of 20 cells that move on by one.

    gate <- clip(gate + a, 0, 200), a in [-1, 1];   downstream = the gate of 19 decisions ago
    reward = ((200 - |downstream - target|) / 100)^2 - 3;   the target changes with chance 0.003 a decision

Observed are the flow downstream, the target, the last 25 flows downstream and the last 25 actions: so the delay is in
the observation. An episode has 1,000 decisions and no end of its own.

Axes: N instances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Box, Context, Spec
from assay.tasks.control.stepping import ArraySimulation, SteppedTask

MOST, CELLS, PAST = 200.0, 20, 25
TARGETS = np.array([50.0, 80.0, 110.0, 140.0])
CHANGES = 0.003
HORIZON = 1_000
TARGET, PIPE, SEEN, DONE = 0, slice(1, 1 + CELLS), slice(21, 22 + PAST), slice(22 + PAST, 22 + 2 * PAST)
"""Rows of a state: the target, the pipe from the gate on, the flow downstream now and before, the last actions."""


@dataclass(frozen=True)
class Pipeline:
    """Rows of a state: see `TARGET`."""

    num_start_draws: ClassVar[int] = 2
    has_chance: ClassVar[bool] = True
    limit: ClassVar[int] = HORIZON

    def start(self, uniform: np.ndarray) -> np.ndarray:
        """Draws a flow between 80 and 120 that fills the pipe, and a target."""
        state = np.empty((22 + 2 * PAST, uniform.shape[1]))
        state[PIPE] = state[SEEN] = 80.0 + 40.0 * uniform[0]
        state[DONE] = 0.0
        state[TARGET] = TARGETS[(uniform[1] * len(TARGETS)).astype(np.int64)]
        return state

    def step(
        self, state: np.ndarray, action: np.ndarray, uniform: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moves the gate, then the water; the reward is of the flow that arrives and of the target then."""
        assert uniform is not None
        push, moved = action.reshape(-1).astype(np.float64).clip(-1.0, 1.0), np.empty_like(state)
        asked = TARGETS[(uniform / CHANGES * len(TARGETS)).clip(max=len(TARGETS) - 1).astype(np.int64)]
        moved[TARGET] = np.where(uniform < CHANGES, asked, state[TARGET])
        gate = (state[PIPE][0] + push).clip(0.0, MOST)
        moved[PIPE] = np.concatenate([gate[None], state[PIPE][:-1]])
        moved[SEEN] = np.concatenate([moved[PIPE][-1:], state[SEEN][:-1]])
        moved[DONE] = np.concatenate([push[None], state[DONE][:-1]])
        error = np.abs(moved[SEEN][0] - moved[TARGET])
        reward = np.square((MOST - error) / 100.0) - 3.0
        return moved, reward.astype(np.float32), np.zeros(len(error), dtype=bool)

    def observe(self, state: np.ndarray) -> Context:
        """Returns the flow downstream, the target, 25 flows and 25 actions, the latest first; float32."""
        rows = (state[SEEN][:1], state[TARGET][None], state[SEEN][1:], state[DONE])
        return {"observation": torch.from_numpy(np.concatenate(rows).T.astype(np.float32))}


def on_the_way(context: Context) -> Tensor:
    """Returns how far the gate is above the flow downstream, [N]: the sum of the actions that are on their way."""
    return context["observation"][:, 2 + PAST : 2 + PAST + CELLS - 1].sum(1)


def foresighted(context: Context) -> Tensor:
    """Moves the gate to the target, with what is on its way counted in."""
    seen = context["observation"]
    return (seen[:, 1] - seen[:, 0] - on_the_way(context)).clamp(-1.0, 1.0).unsqueeze(1)


def pid(context: Context, kp: float = 0.005, ki: float = 0.0025, kd: float = 0.3) -> Tensor:
    """Moves the gate by the error downstream, its mean over 26 decisions and its last change: PID control, which waits
    for what it has done already.
    """
    seen = context["observation"]
    flows = torch.cat((seen[:, :1], seen[:, 2 : 2 + PAST]), 1)
    error = seen[:, 1] - seen[:, 0]
    slope = flows[:, 1] - flows[:, 0]
    push = kp * error + ki * (seen[:, 1] - flows.mean(1)) + kd * slope
    return push.clamp(-1.0, 1.0).unsqueeze(1)


def pipeline() -> SteppedTask:
    """Returns the task; its scripted expert foresees what is on its way."""
    dynamics = Pipeline()
    low, high = (0.0,) * (2 + PAST) + (-1.0,) * PAST, (MOST,) * (2 + PAST) + (1.0,) * PAST
    spec = Spec(Box(low, high), Box((-1.0,), (1.0,)), HORIZON)
    return SteppedTask("pipeline", spec, partial(ArraySimulation, dynamics), foresighted, dynamics)


LEVELS = {"pipeline": pipeline}
