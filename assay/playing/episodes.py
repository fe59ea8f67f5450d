"""Plays whole episodes of simulations side by side and records their columns. Axes: N instances, T columns.

A record has one column more than steps: the last one holds the context after the last step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.core.slots import Simulation
from assay.core.spaces import Context
from assay.ops import random
from assay.playing.deciding import deciding

CHUNK = 64


@dataclass
class Recorder:
    """Collects columns step by step."""

    contexts: list[Context] = field(default_factory=list)
    rows: list[tuple[Tensor, ...]] = field(default_factory=list)
    costs: list[Tensor] = field(default_factory=list)

    def add(self, context: Context, row: tuple[Tensor, ...], cost: Tensor | None) -> None:
        """Appends one column: its context and (action, mask, logp, reward, terminal, truncated), with a path at the
        end.
        """
        self.contexts.append(context)
        self.rows.append(row)
        if cost is not None:
            self.costs.append(cost)

    def finish(self, last: Context) -> Experience:
        """Returns the record, with a last column for the context after the last step."""
        self.contexts.append(last)
        closing = tuple(torch.zeros_like(column) for column in self.rows[-1])
        columns = [torch.stack(column, 1) for column in zip(*self.rows, closing, strict=True)]
        context = {name: torch.stack([step[name] for step in self.contexts], 1) for name in last}
        cost = torch.stack([*self.costs, torch.zeros_like(self.costs[-1])], 1) if self.costs else None
        action, mask, logp, reward, terminal, truncated, *path = columns
        extra = {"path": path[0]} if path else {}
        return Experience(context, action, mask, logp, reward, terminal, truncated, cost=cost, extra=extra)


class Uniforms:
    """Uniform numbers for (row, time), hashed for a block of times at once."""

    def __init__(self, draw: Draw, rows: tuple[np.ndarray, ...], num_draws: int) -> None:
        self.draw, self.num_draws = draw, num_draws
        self.rows = tuple(row[:, None, None] for row in rows)
        self.block, self.first = torch.empty(0), -1

    def at(self, time: int) -> Tensor:
        """Returns [N, num_draws] for this time."""
        first = time - time % CHUNK
        if first != self.first:
            times = np.arange(first, first + CHUNK)[None, :, None]
            values = random.uniform(self.draw, *self.rows, times, np.arange(self.num_draws)[None, None])
            self.block, self.first = random.as_open_float32(values).transpose(0, 1), first
        return self.block[time - first]


@torch.no_grad()
def play_episodes(
    actor: Any,
    simulation: Simulation,
    seeds: np.ndarray,
    starts: np.ndarray,
    samples: np.ndarray,
    draw: Draw,
    horizon: int,
    greedy: bool,
) -> Experience:
    """Plays one whole episode in every instance; a finished instance is masked until the others finish."""
    context = simulation.reset(seeds)
    alive = torch.ones(len(seeds), dtype=torch.bool)
    uniforms = Uniforms(draw, (starts, samples), actor.num_draws)
    recorder, decide = Recorder(), deciding(actor)
    for time in range(horizon):
        action, logp, *path = decide(context, None if greedy else uniforms.at(time))
        after, reward, terminal, truncated, cost = simulation.step(action)
        live = alive.to(reward.dtype)
        row = (action, alive, logp * live, reward * live, terminal & alive, truncated & alive, *path)
        recorder.add(context, row, None if cost is None else cost * live.unsqueeze(1))
        alive = alive & ~(terminal | truncated)
        context = after
        if not alive.any():
            break
    start = torch.from_numpy(starts)
    record = recorder.finish(context).with_columns(group=start)
    return record.add({"start": start, "sample": torch.from_numpy(samples)})
