"""What a real system does to the actions of a task: they come late, others disturb them, an episode may spend so much.

    delayed      decision t executes the action of decision t - steps; the first ones execute the idle action
    disturbed    action <- clip(action + size * half-range * w),   w <- memory * w + sqrt(1 - memory^2) * normal
                 of choices: another one with probability `size`
    budgeted     from where the sum of efforts exceeds the budget the action is idle; effort = mean (action / half)^2
                 of choices: one that differs from the last costs 1, and from there the last one is held

Each takes any control task and returns one; its name is also that of a task: `delayed=4:pendulum`. Nothing of it is
observed, as in a real system. Degenerate: no delay, size 0 and an infinite budget are the task itself, bit by bit.

Axes: N instances, D numbers of an action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, State
from assay.core.slots import History, Simulation
from assay.core.spaces import Box, Context, Discrete, Space
from assay.ops import random
from assay.tasks.control.stepping import SteppedTask

MEMORY = 0.9
"""The share of a disturbance that is left after a decision."""


def idle(space: Space, num: int) -> Tensor:
    """Returns the idle action of N instances: the middle of the bounds, 0 where there are none; or choice 0."""
    if isinstance(space, Box):
        middle = (torch.tensor(space.low) + torch.tensor(space.high)) / 2
        return torch.where(middle.isfinite(), middle, 0.0).repeat(num, 1)
    return torch.zeros(num, dtype=torch.int64)


def half_range(space: Box) -> Tensor:
    """Returns half the distance of the bounds of each number [D], 1 where there are none."""
    half = (torch.tensor(space.high) - torch.tensor(space.low)) / 2
    return torch.where(half.isfinite(), half, 1.0)


# ---------------------------------------------------------------------------------------------------- changes
class Change(Protocol):
    """What becomes of the actions of an episode. Equal seeds, episodes and actions have equal ends."""

    def start(self, space: Space, seeds: Tensor, episode: Tensor) -> State:
        """Returns what it remembers when these episodes [N] begin, tensors [N, ...]."""

    def execute(self, space: Space, action: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns the actions that are executed, and what it remembers then."""


@dataclass(frozen=True)
class Delayed:
    """Actions are executed `steps` decisions later."""

    steps: int = 4

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise AssayError(f"delayed={self.steps} is not a number of decisions. Use 0 or more")

    def start(self, space: Space, seeds: Tensor, episode: Tensor) -> State:
        """Returns idle actions on the way, [N, steps, ...]."""
        first = idle(space, len(seeds))
        return {"waiting": torch.stack([first] * (self.steps + 1), 1)[:, 1:]}

    def execute(self, space: Space, action: Tensor, state: State) -> tuple[Tensor, State]:
        """Executes the oldest action on the way."""
        sent = torch.cat((state["waiting"], action.unsqueeze(1)), 1)
        return sent[:, 0], {"waiting": sent[:, 1:]}


@dataclass(frozen=True)
class Disturbed:
    """A slowly changing force is added to actions, `size` of half their range on average; choices are exchanged."""

    size: float = 0.3

    def __post_init__(self) -> None:
        if not 0.0 <= self.size <= 1.0:
            raise AssayError(f"disturbed={self.size:g} is not a share of the actions' range. Use 0 to 1")

    def start(self, space: Space, seeds: Tensor, episode: Tensor) -> State:
        """Returns no force at time 0."""
        force = torch.zeros(len(seeds), space.size if isinstance(space, Box) else 1, dtype=torch.float64)
        return {"seed": seeds, "episode": episode, "time": torch.zeros_like(seeds), "force": force}

    def execute(self, space: Space, action: Tensor, state: State) -> tuple[Tensor, State]:
        """Executes the action with what came from outside."""
        words = [state[name].numpy()[:, None] for name in ("seed", "episode", "time")]
        uniform = random.uniform(Draw(0, (61,)), *words, np.arange(state["force"].shape[1]))
        after = {**state, "time": state["time"] + 1}
        if isinstance(space, Box):
            normal = torch.special.ndtri(torch.from_numpy(uniform))
            after["force"] = MEMORY * state["force"] + math.sqrt(1.0 - MEMORY**2) * normal
            pushed = action + self.size * half_range(space) * after["force"].to(action.dtype)
            within = pushed.clamp(torch.tensor(space.low), torch.tensor(space.high))
            return (within if self.size else action), after
        assert isinstance(space, Discrete)
        away = 1 + torch.from_numpy(uniform[:, 0] / (self.size or 1.0) * (space.n - 1)).long()
        is_other = torch.from_numpy(uniform[:, 0] < self.size)
        return torch.where(is_other, (action + away) % space.n, action), after


@dataclass(frozen=True)
class Budgeted:
    """An episode may spend so much effort; then the actuator idles, or the switch stays as it is."""

    budget: float = math.inf

    def __post_init__(self) -> None:
        if not self.budget >= 0.0:
            raise AssayError(f"budgeted={self.budget:g} is not a sum of efforts. Use 0 or more")

    def start(self, space: Space, seeds: Tensor, episode: Tensor) -> State:
        """Returns nothing spent, after an idle action."""
        return {"spent": torch.zeros(len(seeds), dtype=torch.float64), "last": idle(space, len(seeds))}

    def execute(self, space: Space, action: Tensor, state: State) -> tuple[Tensor, State]:
        """Executes the action if there is enough left for it, and for all before it."""
        if isinstance(space, Box):
            held = idle(space, len(action))
            effort = ((action - held) / half_range(space)).double().square().mean(1)
        else:
            held, effort = state["last"], (action != state["last"]).double()
        spent = state["spent"] + effort
        over = (spent > self.budget).view(-1, *[1] * (action.dim() - 1))
        done = torch.where(over, held.to(action.dtype), action)
        return done, {"spent": spent, "last": done}


# ---------------------------------------------------------------------------------------------------- tasks
class ChangedSimulation:
    """A simulation whose actions are changed on their way; each episode begins as the change does."""

    def __init__(self, simulation: Simulation, change: Change, space: Space) -> None:
        self.simulation, self.change, self.space = simulation, change, space
        self._seeds = self._episode = torch.zeros(0, dtype=torch.int64)
        self._ended, self._state = torch.zeros(0, dtype=torch.bool), State()

    def reset(self, seeds: np.ndarray) -> Context:
        """Starts episode 0 of every instance."""
        self._seeds = torch.from_numpy(np.asarray(seeds).astype(np.int64))
        self._episode, self._ended = torch.zeros_like(self._seeds), torch.zeros(len(seeds), dtype=torch.bool)
        self._state = self.change.start(self.space, self._seeds, self._episode)
        return self.simulation.reset(seeds)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor | None]:
        """Steps every instance; the action after an end is ignored, as it is inside."""
        begins = self._ended
        done, after = self.change.execute(self.space, action.detach(), self._state)
        self._episode = self._episode + begins.long()
        if bool(begins.any()):
            fresh = self.change.start(self.space, self._seeds, self._episode)
            for name, old in after.items():
                after[name] = torch.where(begins.view(-1, *[1] * (old.dim() - 1)), fresh[name].to(old.dtype), old)
        self._state = after
        context, reward, terminal, truncated, cost = self.simulation.step(done)
        self._ended = terminal | truncated
        return context, reward, terminal, truncated, cost

    def snapshot(self) -> State:
        """Returns the inner snapshot and what the change remembers."""
        mine = {"seeds": self._seeds, "episode": self._episode, "ended": self._ended, "state": dict(self._state)}
        return {"inner": self.simulation.snapshot(), **mine}

    def restore(self, state: State) -> None:
        """Continues where the snapshot was taken."""
        self.simulation.restore(state["inner"])
        self._seeds, self._episode, self._ended = state["seeds"], state["episode"], state["ended"]
        self._state = dict(state["state"])


@dataclass(frozen=True)
class Changed:
    """Makes simulations with changed actions."""

    make: Callable[[int], Simulation]
    change: Change
    space: Space

    def __call__(self, num: int) -> Simulation:
        """Returns N instances."""
        return ChangedSimulation(self.make(num), self.change, self.space)


def changed(task: SteppedTask, change: Change, name: str) -> SteppedTask:
    """Returns the task with changed actions under another name; its scripted policies know nothing of them.

    It has no exact model, and no device: its simulations are on the CPU. AssayError if actions are neither vectors nor
    choices.
    """
    space = task.spec.action
    if not isinstance(task, SteppedTask) or not isinstance(space, Box | Discrete):
        raise AssayError(f"task '{task.name}' has {space}: only vectors and choices can be changed. Use a control task")
    if task.spec.masked:
        raise AssayError(f"task '{task.name}' forbids actions, and a change might take one of them. Use another task")
    if task.history != History():
        raise AssayError(f"task '{task.name}' shows its past already. Change its actions first")
    plain = SteppedTask(**{one.name: getattr(task, one.name) for one in fields(SteppedTask)})
    other = None if task.held_out is None else Changed(task.held_out, change, space)
    roaming = None if task.roaming is None else changed(task.roaming, change, f"{name}, roaming")
    make = Changed(task.make, change, space)
    return replace(plain, name=name, make=make, held_out=other, roaming=roaming, dynamics=None, on_device=None)


def delayed(task: SteppedTask, steps: int = 4) -> SteppedTask:
    """Returns the task whose actions are executed `steps` decisions later."""
    return changed(task, Delayed(steps), f"delayed={steps}:{task.name}")


def disturbed(task: SteppedTask, size: float = 0.3) -> SteppedTask:
    """Returns the task whose actions are disturbed by `size` of half their range; choices with this probability."""
    return changed(task, Disturbed(size), f"disturbed={size:g}:{task.name}")


def budgeted(task: SteppedTask, budget: float = math.inf) -> SteppedTask:
    """Returns the task whose episodes may spend this sum of efforts."""
    return changed(task, Budgeted(budget), f"budgeted={budget:g}:{task.name}")


TRANSFORMS: Mapping[str, tuple[Callable[..., SteppedTask], type]] = {
    "delayed": (delayed, int), "disturbed": (disturbed, float), "budgeted": (budgeted, float),
}  # fmt: skip
"""Changes by the word before `=`, with the type of their number."""


def transform_of(name: str) -> tuple[Callable[[Any], SteppedTask], str] | None:
    """Returns (change of a task, name of the task) of a name such as `delayed=4:pendulum`; None of any other name.

    AssayError if the number is missing or not one.
    """
    word, _, inner = name.partition(":")
    key, equals, value = word.partition("=")
    if key not in TRANSFORMS or not (equals or inner):
        return None
    change, kind = TRANSFORMS[key]
    if not inner or not equals:
        raise AssayError(f"task '{name}' names no number, or no task. Use {key}=NUMBER:TASK, such as {key}=1:pendulum")
    try:
        number = kind(value)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise AssayError(f"task '{name}': {key}='{value}' is not {what}. Use {key}=1:{inner}") from None
    return (lambda task: change(task, number)), inner
