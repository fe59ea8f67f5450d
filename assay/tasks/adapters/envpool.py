"""EnvPool's environments as tasks: envpool:Ant-v5. Axes: N instances.

EnvPool steps its environments in threads of its own and resets in the step after an end, as `Simulation` asks. It is
not in any extra of Assay: `pip install envpool`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import State
from assay.core.slots import Simulation
from assay.core.slots.simulations import Answers
from assay.core.spaces import MASK, Box, Context, Spec
from assay.tasks.adapters.gymnasium import SMALL_TASKS
from assay.tasks.adapters.gymnasium_instances import reset_seed
from assay.tasks.adapters.gymnasium_masks import find_reader
from assay.tasks.adapters.gymnasium_spaces import Port, check_allowed, port_of
from assay.tasks.control.stepping import SteppedTask

PREFIX = "envpool:"


def envpool() -> Any:
    """Returns the package; AssayError if it is missing."""
    try:
        import envpool as package
    except ImportError as error:
        raise AssayError(
            f"tasks envpool:ID need EnvPool, which cannot be imported ({error}). Install it: pip install envpool"
        ) from error
    return package


def made(id: str, num: int, seeds: Sequence[int]) -> tuple[Any, Any, Any]:
    """Returns a pool of N instances, each with its seed, that answers one at a time, and its spaces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # bounds are cast to float32
        pool = envpool().make(id, env_type="gymnasium", num_envs=num, batch_size=1, seed=list(seeds))
        return pool, pool.observation_space, pool.action_space


def own(value: Any) -> Any:
    """Returns the part of the one instance that has answered; entries of dictionaries one by one."""
    return {name: own(part) for name, part in value.items()} if isinstance(value, Mapping) else value[0]


class Pool:
    """N instances of an id, stepped by EnvPool; `groups` of `ready` are waited for, all if it is 0.

    Later episodes of an instance come from its own random numbers, so a snapshot holds all its actions since the start
    and `restore` replays them: exact, but it grows with the run.
    """

    def __init__(self, id: str, spec: Spec, port: Port, num: int, ready: int = 0) -> None:
        self.id, self.spec, self.port, self.num, self.ready = id, spec, port, num, ready or num
        self.reset(np.arange(num))

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """The instances, `ready` at a time."""
        return np.split(np.arange(self.num), range(self.ready, self.num, self.ready))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts every instance."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        self.seeds = np.asarray(seeds).astype(np.int64)
        short = [reset_seed(int(seed), 0) >> 1 for seed in self.seeds]  # EnvPool takes 31 bits
        self.pool, _, self.space = made(self.id, self.num, short)
        self.taken: list[list[Tensor]] = [[] for _ in range(self.num)]
        self.allowed: list[np.ndarray | None] = [None] * self.num
        self.pool.async_reset()
        self.flying = self.num
        return self._received(self.num)[1]

    def send(self, rows: np.ndarray, action: Tensor) -> None:
        """Steps these instances."""
        action = action.detach().cpu()
        for row, one in zip(rows.tolist(), action, strict=True):
            self._check_allowed(row, one)
            self.taken[row].append(one.clone())
        chosen = np.stack(self.port.actions(action)).astype(self.space.dtype)
        self.pool.send(chosen, rows.astype(np.int32))
        self.flying += len(rows)

    def receive(self) -> Answers:
        """Waits for `ready` instances, or for all that are in flight."""
        return self._received(min(self.ready, self.flying))

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps all instances."""
        if len(action) != self.num:
            raise AssayError(f"{len(action)} actions for {self.num} instances. Give one action each")
        self.send(np.arange(self.num), action)
        _, context, reward, terminal, truncated, _ = self._received(self.num)
        return context, reward, terminal, truncated, None

    def snapshot(self) -> State:
        """Returns the seeds and all actions."""
        taken = [torch.stack(rows) if rows else torch.zeros(0) for rows in self.taken]
        return {"seeds": torch.from_numpy(self.seeds.copy()), "taken": taken}

    def restore(self, state: State) -> None:
        """Starts the instances and takes all actions again."""
        if len(state["seeds"]) != self.num:
            raise AssayError(
                f"the snapshot has {len(state['seeds'])} instances, the simulation {self.num}. Simulate as many"
            )
        self.reset(state["seeds"].numpy())
        for time in range(max(len(rows) for rows in state["taken"])):
            rows = np.array([row for row in range(self.num) if time < len(state["taken"][row])])
            self.send(rows, torch.stack([state["taken"][row][time] for row in rows]))
            self._received(len(rows))

    def _received(self, num: int) -> Answers:
        """Returns the next `num` answers, in the order of the instances."""
        found = [self.pool.recv() for _ in range(num)]
        self.flying -= num
        found.sort(key=lambda one: int(one[4]["env_id"][0]))
        rows = np.array([int(one[4]["env_id"][0]) for one in found])
        context = self.port.context([self._row(int(row), one) for row, one in zip(rows, found, strict=True)])
        reward = torch.tensor([float(one[1][0]) for one in found])
        terminal, truncated = (torch.tensor([bool(one[place][0]) for one in found]) for place in (2, 3))
        return rows, context, reward, terminal & ~truncated, truncated, None

    def _row(self, row: int, answer: Any) -> dict[str, np.ndarray]:
        """Returns the context of an instance's answer; what an instance allows after an end is not asked."""
        seen, ended = own(answer[0]), bool(answer[2][0] or answer[3][0])
        found = self.port.row(seen)
        if self.port.masks is not None:
            found[MASK] = self.port.masks.allowed(self.port.masks.read(None, seen, own(answer[4])), ended=ended)
            self.allowed[row] = None if ended else found[MASK]
        return found

    def _check_allowed(self, row: int, chosen: Tensor) -> None:
        """Raises AssayError for a forbidden action; that of the step after an end is ignored."""
        allowed = self.allowed[row]
        if allowed is None:
            return
        try:
            check_allowed(self.port.action, allowed, chosen.numpy())
        except AssayError as error:
            raise AssayError(f"task '{PREFIX}{self.id}': {error} (instance {row})") from error


@dataclass(frozen=True)
class Pooled:
    """Makes simulations of an id."""

    id: str
    spec: Spec
    port: Port = field(repr=False)
    ready: int = field(default=0, repr=False)

    def __call__(self, num: int) -> Simulation:
        """Returns N instances."""
        return Pool(self.id, self.spec, self.port, num, min(self.ready, num))


def envpool_task(name: str) -> SteppedTask:
    """Returns the task envpool:ID; AssayError if EnvPool is missing or has no such id."""
    id = name.removeprefix(PREFIX)
    known = envpool().list_all_envs()
    if id not in known:
        near = get_close_matches(id, known, n=1, cutoff=0.0)[0]
        raise AssayError(f"EnvPool has no environment '{id}'. The nearest is '{near}': --task {PREFIX}{near}")
    pool, seen, taken = made(id, 1, [0])
    pool.async_reset()
    first = pool.recv()
    port = port_of(seen, taken, name, masks_from=find_reader(None, own(first[0]), first[4]))
    masked = port.masks is not None
    spec = Spec(port.observation, port.action, int(pool.config["max_episode_steps"]), masked=masked)
    family = str(envpool().registration.registry.specs[id][0])
    tuned = "classic" if id in SMALL_TASKS else "general"
    preset = "mujoco" if isinstance(port.action, Box) and "mujoco" in family else tuned
    return SteppedTask(name, spec, Pooled(id, spec, port), preset=preset)
