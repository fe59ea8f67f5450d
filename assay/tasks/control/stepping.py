"""Stepped tasks: whole episodes of a simulation, and simulations of simple dynamics as array operations.

Axes: N instances, n instances that start now, D numbers of a state, B sequences, T decisions.

Episode k of an instance with seed s starts from uniform(Draw(s), k, i), i = 0, 1, ...; chance in its decision t is
uniform(Draw(s), k, -1, t). So an episode is a function of (s, k) and its actions, whatever the other instances do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Origin, State
from assay.core.slots import History, Simulation
from assay.core.spaces import Context, Spec
from assay.ops.random import GOLDEN, as_uniform, hashed, mix
from assay.rollouts.episodes import play_episodes
from assay.rollouts.resumed_episodes import nothing_done, play_on

AHEAD = 16


Array = TypeVar("Array")


class Dynamics(Protocol[Array]):
    """Start, step and observation of one kind of instance as functions of arrays, of numpy or of torch on a device; the
    last axis of a state is N.
    """

    @property
    def num_start_draws(self) -> int:
        """Returns how many uniform numbers a start consumes."""

    @property
    def has_chance(self) -> bool:
        """Returns whether a step reads a uniform number."""

    @property
    def limit(self) -> int:
        """Returns decisions after which an episode is truncated."""

    def start(self, uniform: Array) -> Array:
        """Returns states [..., n] from uniform numbers [num_start_draws, n]."""

    def step(self, state: Array, action: Array, uniform: Array | None) -> tuple[Array, Array, Array]:
        """Returns (next state [..., N], reward [N] float32, terminal [N]), new arrays all three."""

    def observe(self, state: Array) -> Context:
        """Returns the observations of the states, in memory of their own."""


class ArraySimulation:
    """N instances of the same dynamics; starts are prepared `AHEAD` episodes at a time."""

    def __init__(self, dynamics: Dynamics[np.ndarray], num: int) -> None:
        self.dynamics, self.num = dynamics, num
        self._start_parts = mix(np.arange(dynamics.num_start_draws).astype(np.uint64)[:, None, None] + GOLDEN)
        self._chance_part = mix(np.asarray([-1]).view(np.uint64) + GOLDEN)
        self.reset(np.arange(num))

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts episode 0 of every instance; without it, the seeds are 0 to N - 1."""
        if len(seeds) != self.num:
            raise AssayError(f"{len(seeds)} seeds for {self.num} instances. Give one seed each")
        self._seeds = np.asarray(seeds).astype(np.int64)
        self._episode, self._elapsed = np.zeros(self.num, np.int64), np.zeros(self.num, np.int64)
        self._ended = np.zeros(self.num, bool)
        self._prepare()
        self._state = self._starts[..., 0, :].copy()
        return self.dynamics.observe(self._state)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, None]:
        """Takes one decision of every instance in an episode; starts the next episode of the others."""
        if len(action) != self.num:
            raise AssayError(f"{len(action)} actions for {self.num} instances. Give one action each")
        chance = self._chance() if self.dynamics.has_chance else None
        self._state, reward, terminal = self.dynamics.step(self._state, action.detach().cpu().numpy(), chance)
        self._elapsed += 1
        truncated = self._elapsed >= self.dynamics.limit
        starting = np.flatnonzero(self._ended)
        if len(starting):
            self._state[..., starting] = self._next_starts(starting)
            reward[starting] = 0.0
            terminal[starting] = truncated[starting] = False
        self._ended = terminal | truncated
        flags = torch.from_numpy(terminal), torch.from_numpy(truncated)
        return self.dynamics.observe(self._state), torch.from_numpy(reward), *flags, None

    def snapshot(self) -> State:
        """Returns seeds, counters and states."""
        return {name: torch.from_numpy(array.copy()) for name, array in self._arrays().items()}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        if len(state["seeds"]) != self.num:
            raise AssayError(
                f"the snapshot has {len(state['seeds'])} instances, the simulation {self.num}. Simulate as many"
            )
        for name, array in self._arrays().items():
            array[...] = state[name].numpy()
        self._prepare()

    def _arrays(self) -> dict[str, np.ndarray]:
        counters = {"seeds": self._seeds, "episode": self._episode, "elapsed": self._elapsed, "ended": self._ended}
        return {**counters, "state": self._state}

    def _prepare(self) -> None:
        """Starts [..., AHEAD, N] and hashes for chance [AHEAD, N], from every instance's current episode on."""
        self._first = self._episode.copy()
        episodes = (self._first + np.arange(AHEAD)[:, None]).view(np.uint64)
        words = mix(mix(self._seeds.view(np.uint64) + GOLDEN) ^ mix(episodes + GOLDEN))
        uniform = as_uniform(mix(words ^ self._start_parts))
        states = self.dynamics.start(uniform.reshape(len(uniform), words.size))
        self._starts = states.reshape(*states.shape[:-1], *words.shape)
        self._words = mix(words ^ self._chance_part)

    def _next_starts(self, index: np.ndarray) -> np.ndarray:
        self._elapsed[index] = 0
        self._episode[index] += 1
        if (self._episode[index] - self._first[index]).max() == AHEAD:
            self._prepare()
        return self._starts[..., self._episode[index] - self._first[index], index]

    def _chance(self) -> np.ndarray:
        words = self._words[self._episode - self._first, np.arange(self.num)]
        return as_uniform(mix(words ^ mix(self._elapsed.view(np.uint64) + GOLDEN)))


def start_seeds(split: int, starts: np.ndarray) -> np.ndarray:
    """Returns seeds of start ordinals, int64 >= 0: a hash of (split, ordinal) whose last bit is the split's.

    The last bit keeps the splits apart where a simulation can use only part of a seed.
    """
    words = hashed(Draw(0), split, starts) >> np.uint64(2)
    return ((words << np.uint64(1)) | np.uint64(split & 1)).astype(np.int64)


DECISIONS_SHOWN = 500
"""Decisions of a sample that are recorded one by one."""


@dataclass(frozen=True)
class Scripted:
    """An actor that follows a function of the context, with log-probability 0."""

    policy: Callable[[Context], Tensor]
    num_draws: int = 0

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the function's action for N rows."""
        action = self.policy(context)
        return action, torch.zeros(len(action))


@dataclass(frozen=True)
class SteppedTask:
    """A task around a simulation. `expert` is a scripted policy; `dynamics` is the exact model, if there is one.

    `held_out` makes the simulation of split 1 if it differs from that of training: unseen goals. `roaming` is the same
    task with one goal after another and no end, for play data; `distance` is the distance of a goal from what was
    achieved. `reckless` is a scripted policy that ignores costs; None if there are no costs or no such policy. `proxy`
    is a proxy reward of contexts, for tasks in which it differs from the true reward. `on_device` makes N instances
    on a device; None if the task runs on the CPU alone. `rewards_success` says that a decision has a positive reward if
    and only if it solves the task.
    """

    name: str
    spec: Spec
    make: Callable[[int], Simulation]
    expert: Callable[[Context], Tensor] | None = None
    dynamics: Dynamics[np.ndarray] | None = None
    held_out: Callable[[int], Simulation] | None = None
    roaming: SteppedTask | None = None
    reckless: Callable[[Context], Tensor] | None = None
    distance: Callable[[Tensor, Tensor], Tensor] | None = None
    proxy: Callable[[Context], Tensor] | None = None
    on_device: Callable[..., Simulation] | None = field(default=None, repr=False)
    rewards_success: bool = False
    history: History = field(default=History(), repr=False)
    """What of the past contexts show; a recipe's models decide it, so the task's description leaves it out."""
    preset: str = field(default="classic", repr=False)
    """The preset of defaults that suits it; the plan records it, so the task's description leaves it out."""

    def simulate(self, num: int) -> Simulation:
        """Returns a simulation of N instances."""
        return self.make(num)

    @property
    def is_portable(self) -> bool:
        """Whether it can be simulated on a device."""
        return self.on_device is not None

    def on(self, device: str) -> SteppedTask:
        """Returns the task whose simulations have their tensors on a device; AssayError if it runs on the CPU alone."""
        if self.on_device is None:
            raise AssayError(f"task '{self.name}' steps its simulations on the CPU. Use --device cpu")
        return replace(self, make=partial(self.on_device, device=device))

    def remembering(self, history: History) -> SteppedTask:
        """Returns the task whose contexts show this much of the past, on the CPU."""
        from assay.tasks.control.history import remembering  # here: language tasks do not need it

        if history == self.history:
            return self
        make, other = remembering(self.make, history, self.spec.action), self.held_out
        other = None if other is None else remembering(other, history, self.spec.action)
        roaming = None if self.roaming is None else self.roaming.remembering(history)
        return replace(self, history=history, make=make, held_out=other, roaming=roaming, on_device=None)

    def of_split(self, num: int, split: int) -> Simulation:
        """Returns a simulation of N instances with the starts and goals of a split."""
        return self.make(num) if self.held_out is None or not split else self.held_out(num)

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays one episode for each (start, sample); equal ordinals have equal starts and equal chance."""
        simulation, seeds = self.of_split(len(starts), split), start_seeds(split, starts)
        return play_episodes(actor, simulation, seeds, starts, samples, draw, self.spec.horizon, greedy)

    def begin(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the first context of each start."""
        context = self.of_split(len(starts), split).reset(start_seeds(split, starts))
        return nothing_done(context, self.spec, starts)

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> Experience:
        """Replays the given actions, which lead to the same state, and continues from there."""
        seeds = start_seeds(split, begun.column("start").numpy())
        simulation, horizon = self.of_split(len(begun), split), self.spec.horizon
        return play_on(actor, simulation, seeds, begun, samples, draw, horizon, limit or horizon)

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score` [B], the undiscounted return of each row; steps have their rewards already."""
        return experience.add({"score": (experience.reward * experience.mask).sum(1)})

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns return, length, ending, and the first decisions: action, reward and, if known, credit, rounded."""
        decided = experience.mask[row]
        columns = {"actions": experience.action, "rewards": experience.reward}
        if "advantage" in experience.extra:
            columns["credit"] = experience.extra["advantage"]
        ending = {"terminal": experience.terminal, "truncated": experience.truncated}
        return {
            "return": float(experience.reward[row][decided].sum()),
            "length": int(decided.sum()),
            "ending": [name for name, flag in ending.items() if bool(flag[row][decided].any())],
        } | {name: rounded(column[row][decided][:DECISIONS_SHOWN]) for name, column in columns.items()}

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Plays one episode of the scripted expert for each start."""
        if self.expert is None:
            what = f"task '{self.name}' has no scripted expert"
            raise AssayError(f"{what}. Name an offline dataset (--data FILE), or set one: replace(task, expert=...)")
        samples = np.zeros(len(starts), np.int64)
        shown = self.play(Scripted(self.expert), starts, samples, Draw(0), split=split, greedy=True)
        source = torch.full((len(shown),), int(Origin.DATASET))
        return replace(shown, logp=torch.zeros_like(shown.logp), source=source)


def rounded(values: Tensor) -> list[Any]:
    """Returns rounded numbers for a sample."""
    shown: list[Any] = (values.double().round(decimals=3) if values.is_floating_point() else values).tolist()
    return shown
