"""Gathering by stepping simulations: whole episodes, or fragments that go on where the last one stopped.

Axes: N instances, T columns. A record has one column more than steps: the last one holds the context after the last
step. The column after an episode's end holds its final context, is no decision, and its action was ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Explore, Rollout, Scene, Simulation, SteppingTask
from assay.core.spaces import Context
from assay.ops import random
from assay.playing.deciding import deciding

CHUNK = 64


@dataclass
class Recorder:
    """Columns as they happen."""

    contexts: list[Context] = field(default_factory=list)
    rows: list[tuple[Tensor, ...]] = field(default_factory=list)
    costs: list[Tensor] = field(default_factory=list)

    def add(self, context: Context, row: tuple[Tensor, ...], cost: Tensor | None) -> None:
        """One column: its context and (action, mask, logp, reward, terminal, truncated), with a path at the end."""
        self.contexts.append(context)
        self.rows.append(row)
        if cost is not None:
            self.costs.append(cost)

    def finish(self, last: Context) -> Experience:
        """The record, closed by the column of the context after the last step."""
        self.contexts.append(last)
        closing = tuple(torch.zeros_like(column) for column in self.rows[-1])
        columns = [torch.stack(column, 1) for column in zip(*self.rows, closing, strict=True)]
        context = {name: torch.stack([step[name] for step in self.contexts], 1) for name in last}
        cost = torch.stack([*self.costs, torch.zeros_like(self.costs[-1])], 1) if self.costs else None
        action, mask, logp, reward, terminal, truncated, *path = columns
        extra = {"path": path[0]} if path else {}
        return Experience(context, action, mask, logp, reward, terminal, truncated, cost=cost, extra=extra)


class Uniforms:
    """Uniform numbers for (row, time), hashed a block of time at once."""

    def __init__(self, draw: Draw, rows: tuple[np.ndarray, ...], num_draws: int) -> None:
        self.draw, self.num_draws = draw, num_draws
        self.rows = tuple(row[:, None, None] for row in rows)
        self.block, self.first = torch.empty(0), -1

    def at(self, time: int) -> Tensor:
        """[N, num_draws] for this time."""
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
    """One whole episode in every instance; an instance that is done waits, masked, for the others."""
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


def group_rows(starts: np.ndarray, members: int) -> tuple[np.ndarray, np.ndarray]:
    """Every start `members` times, and the sample indices 0..members-1 beside it."""
    return np.repeat(starts, members), np.tile(np.arange(members), len(starts))


@dataclass(frozen=True)
class Episodes(Rollout):
    """Whole episodes: `starts` different starts, `members` independent samples of each (a group)."""

    starts: int = 32
    members: int = 8

    def init(self, scene: Scene) -> State:
        """Nothing to remember."""
        return {}

    @property
    def num_starts(self) -> int:
        """The starts it asks for."""
        return self.starts

    def __call__(self, scene: Scene, state: State) -> Experience:
        """`len(starts)` x `members` episodes; randomness belongs to (start, sample), not to the batch."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        rows, samples = group_rows(starts, self.members)
        return task.play(actor, rows, samples, draw, split=0, greedy=False)


@dataclass(frozen=True)
class Fragments(Rollout):
    """`steps` steps in each of `instances` simulations, which go on from call to call; episodes may span fragments."""

    instances: int = 64
    steps: int = 64
    explore: Explore | None = None

    def init(self, scene: Scene) -> State:
        """The simulations, not yet started."""
        task = scene.task
        if not isinstance(task, SteppingTask):
            raise AssayError(
                f"Fragments needs a task that can be stepped, and '{task.name}' is not one; use rollout Episodes()"
            )
        running = torch.zeros(self.instances, 2, dtype=torch.float64)
        simulation = task.simulate(self.instances)
        explore = self.explore.init(scene) if self.explore else {}
        begun = {"simulation": simulation, "time": 0, "context": None, "over": None, "running": running}
        return {**begun, "explore": explore}

    @property
    def num_starts(self) -> int:
        """It starts by itself."""
        return 0

    @torch.no_grad()
    def __call__(self, scene: Scene, state: State) -> Experience:
        """The next fragment of every simulation."""
        actor, draw = scene.actor, scene.draw
        simulation, instances = state["simulation"], np.arange(self.instances)
        run = Draw(draw.seed)
        if state["context"] is None:
            state["context"] = dict(simulation.reset(random.hashed(run, 1, instances).view(np.int64)))
            state["over"] = torch.zeros(self.instances, dtype=torch.bool)
        who = actor if self.explore is None else self.explore.wrap(actor, scene, state["explore"])
        uniforms = Uniforms(run.at(2), (instances,), who.num_draws)
        recorder, decide, context, over = Recorder(), deciding(who), state["context"], state["over"]
        for time in range(state["time"], state["time"] + self.steps):
            action, logp, *path = decide(context, uniforms.at(time))
            after, reward, terminal, truncated, cost = simulation.step(action)
            recorder.add(context, (action, ~over, logp, reward, terminal, truncated, *path), cost)
            context, over = after, terminal | truncated
        state["context"], state["over"], state["time"] = dict(context), over, state["time"] + self.steps
        record = masked(recorder.finish(context))
        return record.add(finished_episodes(record, state["running"]))


def finished_episodes(record: Experience, running_N2: Tensor) -> dict[str, Tensor]:
    """`episode_return` and `episode_length` [N, T], set where an episode ends; `running_N2` carries both across
    fragments.
    """
    reward, mask, carry = record.reward.double().numpy(), record.mask.numpy(), running_N2.numpy()
    over = (record.terminal | record.truncated).numpy()
    result = np.zeros((2, *reward.shape))
    for t in range(reward.shape[1]):
        carry[:, 0] += reward[:, t]
        carry[:, 1] += mask[:, t]
        result[:, over[:, t], t] = carry[over[:, t]].T
        carry[over[:, t]] = 0.0
    episode_return, episode_length = torch.from_numpy(result).float()
    return {"episode_return": episode_return, "episode_length": episode_length}


def masked(record: Experience) -> Experience:
    """The record with log-probability, reward and ends set to zero in columns that are no decisions."""
    values: Mapping[str, Tensor] = {
        "logp": record.logp * record.mask,
        "reward": record.reward * record.mask,
        "terminal": record.terminal & record.mask,
        "truncated": record.truncated & record.mask,
    }
    return Experience(**{**vars(record), **values})
