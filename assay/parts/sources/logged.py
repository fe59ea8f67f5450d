"""A fixed log of transitions that somebody else made, rebuilt from its description or read from a file.

Axes: B, T = 2 columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Origin, State
from assay.core.slots import Choice, CostlyTask, Scene, ScriptedTask, Source, Task
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.ops import random
from assay.parts.sources.replay import from_columns, transitions


class Recording(Protocol):
    """Transitions that somebody made: a description from which they can be made or read again."""

    @property
    def reward_scale(self) -> float:
        """What rewards are multiplied by."""

    @property
    def origin(self) -> int:
        """What the column `source` says of these rows."""

    def columns(self, task: Task) -> dict[str, Tensor]:
        """The transitions, as `sources.replay.transitions` gives them; equal for equal descriptions."""


class NoisyExpert:
    """The task's expert, replaced by a uniformly random action with probability `noise`."""

    def __init__(self, expert: Any, spec: Spec, noise: float) -> None:
        if not isinstance(spec.action, Box | Discrete):
            raise AssayError(f"a log is made of torques or choices, the task has {spec.action}; try Demonstrations()")
        self.expert, self.space, self.noise = expert, spec.action, noise
        self.num_draws = 1 + (self.space.size if isinstance(self.space, Box) else 1)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """The first uniform number chooses who acts, the others what chance does; log-probability 0."""
        good: Tensor = self.expert(context)
        if uniform is None:
            return good, torch.zeros(len(good))
        if isinstance(self.space, Box):
            low, high = torch.tensor(self.space.low), torch.tensor(self.space.high)
            anything = low + (high - low) * uniform[:, 1:]
        else:
            anything = (uniform[:, 1] * self.space.n).long().clamp(max=self.space.n - 1)
        lucky = (uniform[:, 0] < self.noise).view(-1, *[1] * (good.dim() - 1))
        return torch.where(lucky, anything.to(good.dtype), good), torch.zeros(len(good))


class Described(Choice, Protocol):
    """A description from which data can be made again, transitions or other."""

    def columns(self, task: Task) -> dict[str, Tensor]:
        """The data; equal for equal descriptions."""


@dataclass(frozen=True)
class Log(Described):
    """What a log holds: `episodes` episodes of the task's expert with this share of random actions, from `first` on.

    `reckless` logs are of who does not mind costs: the expert itself where nothing costs.
    """

    episodes: int = 50
    noise: float = 1.0
    first: int = 0
    reward_scale: float = 1.0
    origin: int = int(Origin.DATASET)
    reckless: bool = False

    def columns(self, task: Task) -> dict[str, Tensor]:
        """The transitions, a function of this description and the task alone."""
        if not isinstance(task, ScriptedTask) or task.expert is None:
            raise AssayError(f"task '{task.name}' has no scripted expert, so no log can be made of it")
        starts = np.arange(self.first, self.first + self.episodes, dtype=np.int64)
        careless = task.reckless if self.reckless and isinstance(task, CostlyTask) else None
        actor, samples = NoisyExpert(careless or task.expert, task.spec, self.noise), np.zeros(self.episodes, np.int64)
        played = task.judge(task.play(actor, starts, samples, Draw(7), split=0, greedy=False), 0)
        return transitions(replace(played, reward=self.reward_scale * played.reward))


class Contents:
    """Logs in memory. Its snapshot is the hash of all that they hold, since they can be made again."""

    def __init__(self, logs: Sequence[Described | Recording], task: Task) -> None:
        self.columns, digest = tuple(log.columns(task) for log in logs), hashlib.sha256()
        for each in self.columns:
            for name in sorted(each):
                digest.update(name.encode() + each[name].contiguous().numpy().tobytes())
        self.hash = digest.hexdigest()[:16]
        known = [set(each) for each in self.columns]
        if odd := {name for names in known for name in names ^ known[0]}:
            raise AssayError(f"one log has {', '.join(sorted(odd))} and another has not; give logs of one kind")

    def snapshot(self) -> State:
        """The hash."""
        return {"hash": self.hash}

    def restore(self, state: State) -> None:
        """Refuses other contents than those that the run began with."""
        if state["hash"] != self.hash:
            raise AssayError(f"the log's contents are {self.hash}, the run began with {state['hash']}: other data")


@dataclass(frozen=True)
class Logged(Source):
    """`updates` batches a step, each of `batch` transitions drawn uniformly from every log; no interaction.

    The column `source` says which log a row is from (its `origin`). A run that is resumed on other contents
    refuses to go on.
    """

    logs: tuple[Recording, ...] = (Log(),)
    batch: int = 128
    updates: int = 10

    def init(self, scene: Scene) -> State:
        """The logs."""
        task = scene.task
        return {"contents": Contents(self.logs, task)}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        """The next batches; as many rows of each log."""
        draw = scene.draw
        logs = state["contents"].columns
        for update in range(self.updates):
            drawn = [
                random.integers(draw.at(4, update, place), len(columns["mask"]), self.batch)
                for place, columns in enumerate(logs)
            ]
            yield self.rows(logs, [torch.from_numpy(index) for index in drawn])

    def tables(self, state: State) -> tuple[Sequence[dict[str, Tensor]], str]:
        """The logs' columns, and the hash of what they hold."""
        return state["contents"].columns, state["contents"].hash

    def rows(self, logs: Sequence[dict[str, Tensor]], index: Sequence[Tensor]) -> Experience:
        """The rows at these places of each log as one batch: places [batch], or [S, batch] for a batch of each of S."""
        parts = [
            {name: at(column, places) for name, column in columns.items()}
            for columns, places in zip(logs, index, strict=True)
        ]
        axis, device = index[0].dim() - 1, index[0].device
        source = torch.cat(
            [torch.full(places.shape, log.origin, device=device) for log, places in zip(self.logs, index, strict=True)],
            axis,
        )
        joined = {name: torch.cat([part[name] for part in parts], axis) for name in parts[0]}
        return replace(from_columns(joined), source=source)


def at(column: Tensor, places: Tensor) -> Tensor:
    """The rows of a column at places of any shape."""
    return column.index_select(0, places.flatten()).view(*places.shape, *column.shape[1:])
