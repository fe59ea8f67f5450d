"""Steps instances as they answer: a slow one does not hold up the others. Axes: N instances, T columns.

Every instance takes the same number of steps, so a record holds what it would hold if all were stepped together: rows
are filed by instance and time, and none is preferred for being fast. The policy decides for all N at every call, and
the decisions of those that wait are used: a product of one size rounds a row alike whatever the other rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from assay.core.slots import ReadySimulation
from assay.core.spaces import Context
from assay.rollouts.episodes import Recorder, Uniforms

NAMES = ("action", "mask", "logp", "reward", "terminal", "truncated", "path")
"""Columns in the order of a recorder's rows."""


class Filed:
    """Columns [T, N, ...] that are filled in any order."""

    def __init__(self, num_times: int, num: int) -> None:
        self.num_times, self.num = num_times, num
        self.columns: dict[str, Tensor] = {}

    def put(self, times_n: np.ndarray, rows_n: np.ndarray, values: Mapping[str, Tensor]) -> None:
        """Files values [n, ...] of instances at their times."""
        for name, value in values.items():
            if name not in self.columns:
                self.columns[name] = value.new_zeros(self.num_times, self.num, *value.shape[1:])
            self.columns[name][times_n, rows_n] = value

    def recorder(self, contexts: Mapping[str, Tensor]) -> Recorder:
        """Returns a recorder with these columns and those of the contexts."""
        recorder, rows = Recorder(), [self.columns[name] for name in NAMES if name in self.columns]
        for time in range(self.num_times):
            cost = self.columns["cost"][time] if "cost" in self.columns else None
            recorder.add({name: one[time] for name, one in contexts.items()}, tuple(one[time] for one in rows), cost)
        return recorder


def stepped_apart(
    decide: Callable[[Context, Tensor | None], tuple[Tensor, ...]],
    simulation: ReadySimulation,
    context: Context,
    over: Tensor,
    uniforms: Uniforms,
    times: range,
) -> tuple[Recorder, Context, Tensor]:
    """Returns the record of one step of every instance for each of `times`, the contexts after it, and which episodes
    are over; see `ReadySimulation`. The random numbers of a decision belong to its instance and time.
    """
    context, over = {name: value.clone() for name, value in context.items()}, over.clone()
    uniform_TN = torch.stack([uniforms.at(time) for time in times])
    done_N, every = np.zeros(len(over), np.int64), np.arange(len(over))
    seen, filed = Filed(len(times), len(over)), Filed(len(times), len(over))
    waiting, flying = list(simulation.groups), 0
    while waiting or flying:
        for rows in waiting:
            decided = decide(context, uniform_TN[np.minimum(done_N, len(times) - 1), every])
            chosen = zip(("action", "logp", "path"), decided, strict=False)  # most actors have no path
            seen.put(done_N[rows], rows, {name: value[rows] for name, value in context.items()})
            filed.put(done_N[rows], rows, {"mask": ~over[rows], **{name: value[rows] for name, value in chosen}})
            simulation.send(rows, decided[0][rows])
            flying += len(rows)
        rows, after, reward, terminal, truncated, cost = simulation.receive()
        flying -= len(rows)
        told = {"reward": reward, "terminal": terminal, "truncated": truncated}
        filed.put(done_N[rows], rows, told if cost is None else {**told, "cost": cost})
        for name, value in after.items():
            context[name][rows] = value
        over[rows] = terminal | truncated
        done_N[rows] += 1
        left = rows[done_N[rows] < len(times)]
        waiting = [left] if len(left) else []
    return filed.recorder(seen.columns), context, over
