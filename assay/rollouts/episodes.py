"""Plays whole episodes of simulations side by side and records their columns. Axes: N instances, T columns.

A record has one column more than steps: the last one holds the context after the last step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.core.slots import DeviceSimulation, PathActor, Simulation
from assay.core.spaces import Context
from assay.ops import random

CHUNK = 64


@dataclass
class Recorder:
    """Collects columns step by step."""

    contexts: list[Context] = field(default_factory=list)
    rows: list[tuple[Tensor, ...]] = field(default_factory=list)
    costs: list[Tensor] = field(default_factory=list)

    def add(self, context: Context, row: tuple[Tensor, ...], cost: Tensor | None) -> None:
        """Appends one column: context, (action, mask, logp, reward, terminal, truncated), and a path, if any."""
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


CPU = torch.device("cpu")


def device_of(simulation: Simulation) -> torch.device:
    """Returns the device of a simulation's tensors: the CPU, unless it names another."""
    return simulation.device if isinstance(simulation, DeviceSimulation) else CPU


class Uniforms:
    """Uniform numbers for (row, time), hashed for a block of times at once; bitwise the same on every device."""

    def __init__(self, draw: Draw, rows: tuple[np.ndarray, ...], num_draws: int, device: torch.device = CPU) -> None:
        self.draw, self.num_draws = draw, num_draws
        self.rows = tuple(row[:, None, None] for row in rows)
        self.block, self.first = torch.empty(0), -1
        self.words = None if device.type == "cpu" else row_words(draw, rows, device)

    def at(self, time: int) -> Tensor:
        """Returns [N, num_draws] for this time."""
        first = time - time % CHUNK
        if first != self.first and self.words is not None:
            self.block, self.first = hashed_block(self.words, first, self.num_draws), first
        if first != self.first:
            times = np.arange(first, first + CHUNK)[None, :, None]
            values = random.uniform(self.draw, *self.rows, times, np.arange(self.num_draws)[None, None])
            self.block, self.first = random.as_open_float32(values).transpose(0, 1), first
        return self.block[time - first]


def row_words(draw: Draw, rows: tuple[np.ndarray, ...], device: torch.device) -> Tensor:
    """Returns the hashes [N] of the rows on a device."""
    from assay.ops import random_torch  # here: a run on the CPU does not need it

    word = random_torch.words((draw.seed,), draw.path, device)
    for row in rows:
        word = random_torch.folded(word, torch.from_numpy(row.astype(np.int64)).to(device))
    return word


def hashed_block(words: Tensor, first: int, num_draws: int) -> Tensor:
    """Returns uniform numbers [CHUNK, N, num_draws] of rows with these hashes, for the times from `first` on."""
    from assay.ops import random_torch

    times = torch.arange(first, first + CHUNK, device=words.device).view(-1, 1, 1)
    word = random_torch.folded(words.view(1, -1, 1), times)
    return random_torch.as_open_float32(random_torch.folded(word, torch.arange(num_draws, device=words.device)))


def deciding(actor: Any) -> Callable[[Context, Tensor | None], tuple[Tensor, ...]]:
    """Returns the function that decides for a recorder: (action, logp), and the path of an actor that has one."""
    return actor.walk if isinstance(actor, PathActor) else actor.act


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
    nothing = torch.zeros(len(seeds), 0, dtype=torch.bool)
    return played(actor, simulation, seeds, (starts, samples), draw, horizon, greedy, nothing, nothing, horizon)[0]


@torch.no_grad()
def played(
    actor: Any,
    simulation: Simulation,
    seeds: np.ndarray,
    rows: tuple[np.ndarray, np.ndarray],
    draw: Draw,
    horizon: int,
    greedy: bool,
    given: Tensor,
    action_given: Tensor,
    limit: int,
) -> tuple[Experience, Tensor]:
    """Returns episodes of (starts, samples) = `rows`, and which columns are their decisions [N, T]: first the decisions
    that are `given` [N, t], which are replayed as context, then at most `limit` of the actor's.
    """
    context, device = simulation.reset(seeds), device_of(simulation)
    given, action_given = given.to(device), action_given.to(device)
    length, alive = given.sum(1), torch.ones(len(seeds), dtype=torch.bool, device=device)
    uniforms = Uniforms(draw, rows, actor.num_draws, device)
    recorder, decide = Recorder(), deciding(actor)
    for time in range(horizon):
        action, logp, *path = decide(context, None if greedy else uniforms.at(time))
        if time < given.shape[1]:
            repeats = given[:, time].view(-1, *[1] * (action.dim() - 1))
            action = torch.where(repeats, action_given[:, time].to(action.dtype), action)
        after, reward, terminal, truncated, cost = simulation.step(action)
        if limit < horizon:
            alive = alive & (time < length + limit)
        recorder.add(context, (action, alive, logp, reward, terminal, truncated, *path), cost)
        alive = alive & ~(terminal | truncated)
        context = after
        if not alive.any():
            break
    start, sample = (torch.from_numpy(row).to(device) for row in rows)
    record = recorder.finish(context).with_columns(group=start).add({"start": start, "sample": sample})
    mine = record.mask & (torch.arange(record.mask.shape[1], device=device) >= length.unsqueeze(1))
    cost = None if record.cost is None else record.cost * mine.unsqueeze(2)
    return masked(replace(record, mask=mine, cost=cost)), record.mask


def masked(record: Experience) -> Experience:
    """Sets log-probability, reward and ends to zero in columns that are not decisions."""
    return replace(
        record,
        logp=record.logp * record.mask,
        reward=record.reward * record.mask,
        terminal=record.terminal & record.mask,
        truncated=record.truncated & record.mask,
    )


def decided_again(actor: Any, batch: Experience, draw: Draw) -> Experience:
    """Returns the rows with a new action of the actor in the context of every decision; nothing is executed, so rewards
    are 0.
    """
    there = {name: value[batch.mask] for name, value in batch.context.items()}
    place = np.arange(int(batch.mask.sum()))[:, None]
    numbers = random.uniform(draw, place, np.arange(actor.num_draws)[None])
    chosen, chance = actor.act(there, random.as_open_float32(numbers))
    action, logp = batch.action.clone(), torch.zeros_like(batch.logp)
    action[batch.mask], logp[batch.mask] = chosen.to(action.dtype), chance.to(logp.dtype)
    return replace(batch, action=action, logp=logp, reward=torch.zeros_like(batch.reward))
