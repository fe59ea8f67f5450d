"""Rollouts in simulations: whole episodes, or fragments that continue where the last one stopped.

Axes: N instances, T columns. A record has one column more than steps: the last one holds the context after the last
step. The column after an episode's end holds its final context; it is not a decision, and its action was ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import (
    DeviceSimulation,
    Explore,
    Framing,
    ReadySimulation,
    Rollout,
    Scene,
    Simulation,
    SteppingTask,
    Wrapper,
    frame_of,
)
from assay.ops import random
from assay.rollouts.async_stepping import stepped_apart
from assay.rollouts.episodes import Recorder, Uniforms, deciding, device_of, masked


def group_rows(starts: np.ndarray, members: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns every start `group_size` times, with the sample indices 0..group_size-1."""
    return np.repeat(starts, members), np.tile(np.arange(members), len(starts))


@dataclass(frozen=True)
class Episodes(Rollout):
    """Gathers whole episodes: `num_starts` different starts, `group_size` independent samples of each (a group).

    Degenerate: group_size 1 plays every start once, as a group of one. Source: by definition. Assumes that episodes
    end.
    """

    num_starts: int = 32
    group_size: int = 8
    by_start: ClassVar[bool] = True

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Gathers `len(starts)` x `group_size` episodes; random numbers depend on (start, sample), not on the batch."""
        task, actor, starts, draw = scene.task, scene.actor, scene.starts, scene.draw
        rows, samples = group_rows(starts, self.group_size)
        return task.play(actor, rows, samples, draw, split=0, greedy=False)


class Around(Framing, Protocol):
    """A rollout around another one, `gather`, whose state, starts and observation change it has.

    Source: by definition. Assumes that `gather` is a rollout. Degenerate: by itself it is `gather`.
    """

    gather: Rollout

    def init(self, scene: Scene) -> State:
        return self.gather.init(scene)

    @property
    def num_starts(self) -> int:
        return self.gather.num_starts

    @property
    def has_logp(self) -> bool:
        return self.gather.has_logp

    @property
    def frame(self) -> Wrapper | None:
        return frame_of(self.gather)


@dataclass(frozen=True)
class Fragments(Rollout):
    """Takes `steps` steps in each of `num_envs` simulations, which persist between calls; episodes may span
    fragments.

    Degenerate: steps 1 gives at most one decision in each row, none where an episode ended in the call before. Source:
    arXiv:1602.01783. Assumes simulations that can go on later.
    """

    num_envs: int = 64
    steps: int = 64
    explore: Explore | None = None

    def init(self, scene: Scene) -> State:
        """Returns the simulations, not yet started."""
        task = scene.task
        if not isinstance(task, SteppingTask):
            raise AssayError(
                f"Fragments needs a task that can be stepped; '{task.name}' cannot. Use rollout Episodes()"
            )
        running = torch.zeros(self.num_envs, 2 + task.spec.num_costs, dtype=torch.float64)
        simulation = task.simulate(self.num_envs)
        explore = self.explore.init(scene) if self.explore else {}
        begun = {"simulation": simulation, "time": 0, "context": None, "over": None, "running": running}
        return {**begun, "explore": explore}

    @property
    def num_starts(self) -> int:
        return 0

    def num_lost(self, simulation: Simulation) -> int:
        """Returns how many episodes a simulation has ended because its numbers were not finite."""
        lost = simulation.lost if isinstance(simulation, DeviceSimulation) else None
        return 0 if lost is None else int(lost)

    @torch.no_grad()
    def __call__(self, scene: Scene, state: State) -> Experience:
        actor, draw = scene.actor, scene.draw
        simulation, instances = state["simulation"], np.arange(self.num_envs)
        run = Draw(draw.seed)
        if state["context"] is None:
            state["context"] = dict(simulation.reset(random.hashed(run, 1, instances).view(np.int64)))
            state["over"] = torch.zeros(self.num_envs, dtype=torch.bool)
        device = device_of(simulation)
        if state["over"].device != device:  # a new run, or what a checkpoint has brought back to the host
            state["context"] = {name: value.to(device) for name, value in state["context"].items()}
            state["over"], state["running"] = state["over"].to(device), state["running"].to(device)
        who = actor if self.explore is None else self.explore.wrap(actor, scene, state["explore"])
        uniforms = Uniforms(run.at(2), (instances,), who.num_draws, device)
        recorder, decide, context, over = Recorder(), deciding(who), state["context"], state["over"]
        times = range(state["time"], state["time"] + self.steps)
        lost = self.num_lost(simulation)
        if isinstance(simulation, ReadySimulation):
            recorder, context, over = stepped_apart(decide, simulation, context, over, uniforms, times)
            times = range(0)
        for time in times:
            action, logp, *path = decide(context, uniforms.at(time))
            after, reward, terminal, truncated, cost = simulation.step(action)
            recorder.add(context, (action, ~over, logp, reward, terminal, truncated, *path), cost)
            context, over = after, terminal | truncated
        state["context"], state["over"], state["time"] = dict(context), over, state["time"] + self.steps
        if found := self.num_lost(simulation) - lost:
            scene.log("lost_worlds", found, self.num_envs * self.steps)
        record = masked(recorder.finish(context))
        return record.add(finished_episodes(record, state["running"]))


def finished_episodes(record: Experience, running_NC: Tensor) -> dict[str, Tensor]:
    """Returns `episode_return` and `episode_length` [N, T] and, of a task with costs, `episode_cost` [N, T, K]: those
    of the whole episode, set where it ends. `running_NC` carries all of them across fragments.
    """
    costs = () if record.cost is None else (record.cost * record.mask.unsqueeze(-1)).unbind(-1)
    counted = torch.stack([one.double() for one in (record.reward, record.mask, *costs)], -1)
    over = record.terminal | record.truncated
    if counted.is_cpu:
        total = torch.from_numpy(totals_at_ends(counted.numpy(), over.numpy(), running_NC.numpy())).float()
    else:
        total = totals_at_ends_on_device(counted, over, running_NC).float()
    found = {"episode_return": total[..., 0], "episode_length": total[..., 1]}
    return found if record.cost is None else {**found, "episode_cost": total[..., 2:]}


def totals_at_ends(counted_NTC: np.ndarray, over_NT: np.ndarray, running_NC: np.ndarray) -> np.ndarray:
    """Returns running sums where episodes end, 0 elsewhere; `running_NC` carries them on, in place."""
    result = np.zeros_like(counted_NTC)
    for t in range(counted_NTC.shape[1]):
        running_NC += counted_NTC[:, t]
        result[over_NT[:, t], t] = running_NC[over_NT[:, t]]
        running_NC[over_NT[:, t]] = 0.0
    return result


def totals_at_ends_on_device(counted_NTC: Tensor, over_NT: Tensor, running_NC: Tensor) -> Tensor:
    """Computes `totals_at_ends` without an index, for which the host would wait for the device."""
    found, running = [], running_NC.clone()
    for counted, over in zip(counted_NTC.unbind(1), over_NT.unsqueeze(-1).unbind(1), strict=True):
        running = running + counted
        found.append(torch.where(over, running, 0.0))
        running = torch.where(over, 0.0, running)
    running_NC.copy_(running)
    return torch.stack(found, 1)
