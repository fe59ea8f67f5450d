"""Play data with hindsight goals. Axes: B rows, E episodes, S states of all episodes.

A row is a jump (s_t, a_t, s_t+j) with a goal g of its own; the data have no rewards of their own:

    reward = -1, and 0 with an end where s_t is itself the goal (the same index of the data, not merely an equal state)

so values count jumps: V(s, g) = -(1 + discount + ...), one term for each jump that is still needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Origin, State
from assay.core.slots import Choice, RoamingTask, Scene, ScriptedTask, Source, Task
from assay.ops import random
from assay.parts.sources.logged import Contents
from assay.parts.sources.recordings import Described, NoisyExpert, Recording


@dataclass(frozen=True)
class Play(Described):
    """Describes `episodes` episodes in which the task's expert moves from goal to goal, with a share `noise` of
    random actions; they have neither rewards nor ends. Degenerate: noise 0 is the expert itself, noise 1 takes random
    actions only.

    Source: arXiv:1903.01973. Assumes an expert that can be told a goal.
    """

    episodes: int = 50
    noise: float = 0.3
    first: int = 0

    def columns(self, task: Task) -> dict[str, Tensor]:
        """Returns the walks (see `laid_out`): a function of this description and the task."""
        roaming = task.roaming if isinstance(task, RoamingTask) else None
        if not isinstance(roaming, ScriptedTask) or roaming.expert is None:
            raise AssayError(f"task '{task.name}' has no goals to make play data with. Use four-rooms or a pointmaze")
        starts = np.arange(self.first, self.first + self.episodes, dtype=np.int64)
        actor, samples = NoisyExpert(roaming.expert, roaming.spec, self.noise), np.zeros(self.episodes, np.int64)
        return self.laid_out(roaming.play(actor, starts, samples, Draw(7), split=0, greedy=False))

    def laid_out(self, played: Experience) -> dict[str, Tensor]:
        """Returns `observation`, `achieved` and `action` of all states [S, ...], episode after episode, and `last` [E],
        the decisions of each episode, after which it has one more state.
        """
        if "achieved" not in played.context:
            raise AssayError("play data need a context 'achieved', the goal that a state has reached")
        states = {name: played.context[name].flatten(0, 1) for name in ("observation", "achieved")}
        last = torch.full((len(played),), played.action.shape[1] - 1)
        return {**states, "action": played.action.flatten(0, 1), "last": last}


class Places(NamedTuple):
    """Indices of goals: episode and time [B]; `ahead` where the goal lies later in the row's own episode.

    Source: by definition. Assumes goals that are states of the data. Degenerate: an empty batch has none.
    """

    episode: np.ndarray
    time: np.ndarray
    ahead: np.ndarray


class Goals(Choice, Protocol):
    """Chooses the goal of each row among the states of the data.

    Source: arXiv:1707.01495. Assumes that states can be goals. Degenerate: one state is its own goal.
    """

    def __call__(self, episode: np.ndarray, time: np.ndarray, last: np.ndarray, draw: Draw) -> Places:
        """Returns goals for rows at (episode, time); `last` [E] are the times of the episodes' last states."""


@dataclass(frozen=True)
class Mixed(Goals):
    """With probability `current` the row's own state, `future` a later state of its episode, else any state of the
    data.

    A future goal is a geometric number of steps ahead, of mean 1 / (1 - discount), at most the episode's end; with
    discount 1 it is uniform over the rest of the episode. Degenerate: with discount 0 it is the next state. Source:
    arXiv:2307.11949. Assumes that shares add up to at most 1.
    """

    current: float = 0.2
    future: float = 0.5
    discount: float = 0.99

    def __call__(self, episode: np.ndarray, time: np.ndarray, last: np.ndarray, draw: Draw) -> Places:
        end = last[episode]
        kind, far, other, when = (random.uniform(draw.at(place), np.arange(len(time))) for place in range(4))
        if self.discount < 1.0:
            steps = 1 + np.floor(np.log(far) / math.log(max(self.discount, 1e-300))).clip(max=end)
        else:
            steps = 1 + np.floor(far * (end - time))
        later = np.minimum(time + steps.astype(np.int64), end)
        # Whether a `current` goal would have been a future one still decides where its jump ends.
        ahead = kind < self.future / max(1.0 - self.current, 1e-9)
        states = np.cumsum(last + 1)
        anyone = np.searchsorted(states, other * states[-1], side="right")
        goal_episode = np.where(ahead, episode, anyone)
        goal_time = np.where(ahead, later, (when * (last[anyone] + 1)).astype(np.int64))
        stays = random.uniform(draw.at(4), np.arange(len(time))) < self.current
        return Places(np.where(stays, episode, goal_episode), np.where(stays, time, goal_time), ahead & ~stays)


def decisions(last: np.ndarray, count: int, draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Returns episode and time of decisions drawn uniformly; `last` [E] are the numbers of decisions."""
    if (last == last[0]).all():
        return random.integers(draw.at(8), len(last), count), random.integers(draw.at(9), int(last[0]), count)
    ends = np.cumsum(last)
    place = random.integers(draw.at(8), int(ends[-1]), count)
    episode = np.searchsorted(ends, place, side="right")
    return episode, place - (ends - last)[episode]


@dataclass(frozen=True)
class Relabelled(Source):
    """Yields `updates` batches per step of `batch` rows of play data; each jumps `jump` steps, never past its goal.

    jump 1 gives HIQL's transitions (arXiv:2307.11949), jump n OTA's options (arXiv:2505.12737). If the task knows
    distances, the column `distance` is the distance to the goal, and `nearer` by how much the jump reduces it.
    Degenerate: a jump longer than the episode ends at a goal that lies ahead in it, else at its last state. Assumes
    that the goal of an action is unknown to the recorded policy.
    """

    log: Described | Recording = Play()
    goals: Goals = Mixed()
    jump: int = 1
    batch: int = 256
    updates: int = 10
    breaks: ClassVar[dict[str, str]] = {"own": "rewards are those of goals that are chosen afterwards"}
    writes: ClassVar[Mapping[str, str]] = {
        "distance": "BT: steps of the shortest way to the goal",
        "nearer": "BT: whether the step leads towards the goal",
    }

    def init(self, scene: Scene) -> State:
        """Returns the data, of which a checkpoint stores the hash."""
        return {"contents": Contents((self.log,), scene.task, scene.draw)}

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        task, draw = scene.task, scene.draw
        (columns,) = state["contents"].columns
        last = columns["last"].numpy()
        for update in range(self.updates):
            here = draw.at(4, update)
            episode, time = decisions(last, self.batch, here)
            goal = self.goals(episode, time, last, here)
            yield self.rows(columns, (episode, time, self.ends(time, goal, last[episode])), goal, task)

    def ends(self, time: np.ndarray, goal: Places, last: np.ndarray | int) -> np.ndarray:
        """Returns where jumps end: at a goal ahead at the latest, else at the episode's end."""
        end: np.ndarray = np.minimum(time + self.jump, np.where(goal.ahead, goal.time, last))
        return end

    def rows(
        self, columns: dict[str, Tensor], place: tuple[np.ndarray, np.ndarray, np.ndarray], goal: Places, task: Task
    ) -> Experience:
        """Returns the jumps (episode, from, to) with their goals, as transitions of two columns."""
        last = columns["last"].numpy()
        first = np.cumsum(last + 1) - last - 1
        start = first[place[0]]
        now, then, there = map(torch.from_numpy, (start + place[1], start + place[2], first[goal.episode] + goal.time))

        def pair(column: Tensor) -> Tensor:
            return torch.stack((column[now], column[then]), 1)

        asked = columns["achieved"][there]
        context = {name: pair(columns[name]) for name in ("observation", "achieved")}
        context["goal"] = asked.unsqueeze(1).expand_as(context["achieved"])
        is_there = (now == there).unsqueeze(1)
        mask = torch.tensor([True, False]).expand(len(now), 2)
        reward = torch.where(is_there | ~mask, 0.0, -1.0)
        source = torch.full((len(now),), int(Origin.DATASET))
        action, none = pair(columns["action"]), torch.zeros_like(mask)
        record = Experience(context, action, mask, torch.zeros_like(reward), reward, is_there & mask, none)
        return record.with_columns(source=source, extra=self.known(task, context))

    def known(self, task: Task, context: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns true distances, for metrics only."""
        if not isinstance(task, RoamingTask) or task.distance is None:
            return {}
        steps = task.distance(context["achieved"], context["goal"])
        return {"distance": steps, "nearer": (steps[:, :1] - steps).roll(-1, 1)}
