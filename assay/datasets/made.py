"""Data sets that our own agents make: seeded, described by small values, kept on disk so that they are made once.

    random          uniform actions
    scripted        the task's scripted expert, a share of its actions replaced by uniform ones
    expert          an agent at the end of its training, acting as it gathered
    medium          the same agent, stopped half way
    medium-replay   all that the agent gathered until then
    medium-expert   medium and expert, one after the other

Half way: with an agent's held-out score, acting as it gathers, normalised to 0 for uniform actions and 1 for the end of
training, the first evaluation that reaches 1/2, or the one before it where that is nearer to 1/2. A score without a
zero of its own (returns below zero) has no half, so both ends are measured.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Origin, Progress, State
from assay.core.settings import describe
from assay.core.slots import ALONE, ScriptedTask, Task
from assay.core.spaces import Box, Context, Spec
from assay.datasets.dataset import Dataset, from_experience, joined
from assay.datasets.files import read, write
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.machine import tuned
from assay.parts.sources.logged import NoisyExpert
from assay.recipes.defaults import Defaults, defaults_of
from assay.version import __version__

Tell = Callable[[int, int, float], None]
AT_ONCE = 32
"""Episodes played side by side."""


class Made(Protocol):
    """A description that makes a data set of a task: equal descriptions make equal rows."""

    name: ClassVar[str]

    def make(self, task: Task) -> Dataset:
        """The rows."""


# ---------------------------------------------------------------------------------------------------- agents
@dataclass(frozen=True)
class Agent:
    """Who makes the data: a recipe for the task's world, trained for `steps` (its own budget where 0) from `seed`."""

    recipe: Callable[[Defaults], Recipe]
    steps: int = 0
    seed: int = 0
    evaluations: int = 20

    def facts(self, task: Task) -> dict[str, Any]:
        """All that decides what it does, as JSON."""
        recipe = self.recipe(defaults_of(task))
        return {
            "recipe": describe(recipe),
            "steps": self.steps or recipe.steps,
            "seed": self.seed,
            "evaluations": self.evaluations,
        }


@dataclass
class Trained:
    """An agent's training: its recipe, what it gathered at each step, and its weights and scores where evaluated."""

    recipe: Recipe
    policy: Any
    num_steps: int
    random_score: float
    fresh: list[Experience] = field(default_factory=list)
    scores: dict[int, float] = field(default_factory=dict)
    weights: dict[int, State] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The step at which training ended."""
        return max(self.scores)

    def share(self, step: int) -> float:
        """The score at a step, 0 for uniform actions and 1 for the end of training."""
        best = self.scores[self.last]
        if not best > self.random_score:
            raise AssayError(
                f"recipe '{self.recipe.name}' ended at {best:.4g}, uniform actions score {self.random_score:.4g}: it "
                "learnt nothing, so there is no half way; give it more steps"
            )
        return (self.scores[step] - self.random_score) / (best - self.random_score)

    @property
    def half_way(self) -> int:
        """The step of the medium agent."""
        steps = sorted(self.scores)
        first = next(place for place, step in enumerate(steps) if self.share(step) >= 0.5)
        near = steps[max(first - 1, 0) : first + 1]
        return min(near, key=lambda step: abs(self.share(step) - 0.5))

    def acting(self, step: int) -> Any:
        """The agent as it acted while gathering at a step, exploration included."""
        self.policy.load_state_dict(self.weights[step])
        return gathering(self.recipe, self.policy, Progress(step, self.num_steps))

    def facts(self, step: int) -> dict[str, Any]:
        """What is known of the agent at a step."""
        scores = {"score": self.scores[step], "random": self.random_score, "end": self.scores[self.last]}
        return {"agent": self.recipe.name, "step": step, "share": self.share(step), **scores}


TRAINED: dict[str, Trained] = {}
"""The latest training, by what decides it: kinds of one agent share it."""


def gathering(recipe: Recipe, policy: Any, progress: Progress) -> Any:
    """A policy as it acts while it gathers: with the rollout's exploration, where it has one."""
    rollout = recipe.at(progress).rollout
    explore = vars(rollout).get("explore") if rollout is not None else None
    return policy if explore is None else explore.wrap(policy, ALONE, explore.init(ALONE))


def silent(step: int, steps: int, score: float) -> None:
    """Says nothing."""


def trained(agent: Agent, task: Task, tell: Tell = silent) -> Trained:
    """The agent's training on the task; a repeated question is not trained for again. `tell` hears of evaluations."""
    key = store.fingerprint({"agent": agent.facts(task), "task": task_facts(task)})
    if key not in TRAINED:
        TRAINED.clear()
        TRAINED[key] = train(agent, task, tell)
    return TRAINED[key]


def train(agent: Agent, task: Task, tell: Tell = silent) -> Trained:
    """Trains with the one loop and keeps what it gathers; AssayError for recipes that gather nothing."""
    facts, recipe = agent.facts(task), agent.recipe(defaults_of(task))
    if recipe.rollout is None:
        raise AssayError(f"recipe '{recipe.name}' gathers nothing; data are made by agents that act: ppo, sac")
    if recipe.before:
        raise AssayError(f"recipe '{recipe.name}' has phases before it; data are made by agents of one phase: ppo, sac")
    loop = Loop(recipe, task, seed=agent.seed, num_steps=facts["steps"])
    uniform = evaluation.scores(uniform_actor(task), task, greedy=False)
    found = Trained(recipe, loop.actor, facts["steps"], float(uniform.mean()))
    every = max(1, facts["steps"] // agent.evaluations)
    with tuned(sum(flat.values.numel() for flat in loop.engine.flats.values())):
        for step in range(facts["steps"] + 1):
            if step % every == 0 or step == facts["steps"]:
                actor = gathering(recipe, loop.actor, loop.progress)
                found.scores[step] = float(evaluation.scores(actor, task, greedy=False).mean())
                tell(step, facts["steps"], found.scores[step])
                found.weights[step] = {name: value.clone() for name, value in loop.actor.state_dict().items()}
            if step < facts["steps"]:
                fresh = loop.step().fresh
                assert fresh is not None
                found.fresh.append(fresh)
    return found


def uniform_actor(task: Task) -> NoisyExpert:
    """Uniform actions within the task's bounds."""
    if isinstance(task.spec.action, Box) and not np.isfinite([*task.spec.action.low, *task.spec.action.high]).all():
        raise AssayError(f"task '{task.name}' has actions without bounds, so none of them is uniform")
    return NoisyExpert(nothing(task.spec), task.spec, noise=1.0)


def nothing(spec: Spec) -> Callable[[Context], Tensor]:
    """A policy that does the same always; chance replaces it."""
    size = spec.action.size if isinstance(spec.action, Box) else 0

    def act(context: Context) -> Tensor:
        rows = len(next(iter(context.values())))
        return torch.zeros(rows, size) if size else torch.zeros(rows, dtype=torch.long)

    return act


def played(task: Task, actor: Any, episodes: int, seed: int, about: dict[str, Any]) -> Dataset:
    """Whole episodes of an actor on the task's first training starts, some at a time."""
    parts = []
    for first in range(0, episodes, AT_ONCE):
        starts = np.arange(first, min(first + AT_ONCE, episodes), dtype=np.int64)
        with torch.no_grad():
            one = task.play(actor, starts, np.zeros_like(starts), Draw(seed, (9,)), split=0, greedy=False)
        parts.append(from_experience([task.judge(one, 0)], task.spec, about))
    return joined(parts, about)


# ---------------------------------------------------------------------------------------------------- kinds
@dataclass(frozen=True)
class Random:
    """Uniform actions."""

    episodes: int = 50
    seed: int = 0
    name: ClassVar[str] = "random"

    def make(self, task: Task) -> Dataset:
        """`episodes` episodes."""
        about = {"task": task.name, "kind": self.name, "made": describe(self)}
        return replace(played(task, uniform_actor(task), self.episodes, self.seed, about), logp=None)


@dataclass(frozen=True)
class Scripted:
    """The task's scripted expert, `noise` of whose actions are uniform."""

    episodes: int = 50
    noise: float = 0.1
    seed: int = 0
    name: ClassVar[str] = "scripted"

    def make(self, task: Task) -> Dataset:
        """`episodes` episodes."""
        if not isinstance(task, ScriptedTask) or task.expert is None:
            raise AssayError(f"task '{task.name}' has no scripted expert; make data of another kind")
        about = {"task": task.name, "kind": self.name, "made": describe(self)}
        actor = NoisyExpert(task.expert, task.spec, self.noise)
        return replace(played(task, actor, self.episodes, self.seed, about), logp=None)


def about_agent(made: Any, task: Task, found: Trained, step: int) -> dict[str, Any]:
    """What a data set of an agent is about."""
    facts = {"kind": made.name, "agent": made.agent.facts(task), "episodes": vars(made).get("episodes")}
    return {"task": task.name, "kind": made.name, "made": facts, "at": found.facts(step)}


@dataclass(frozen=True)
class Expert:
    """The agent at the end of its training."""

    agent: Agent
    episodes: int = 50
    name: ClassVar[str] = "expert"

    def make(self, task: Task) -> Dataset:
        """`episodes` episodes."""
        found = trained(self.agent, task)
        about = about_agent(self, task, found, found.last)
        return played(task, found.acting(found.last), self.episodes, self.agent.seed, about)


@dataclass(frozen=True)
class Medium:
    """The agent half way."""

    agent: Agent
    episodes: int = 50
    name: ClassVar[str] = "medium"

    def make(self, task: Task) -> Dataset:
        """`episodes` episodes."""
        found = trained(self.agent, task)
        about = about_agent(self, task, found, found.half_way)
        return played(task, found.acting(found.half_way), self.episodes, self.agent.seed, about)


@dataclass(frozen=True)
class MediumReplay:
    """All that the agent gathered until half way."""

    agent: Agent
    name: ClassVar[str] = "medium-replay"

    def make(self, task: Task) -> Dataset:
        """Every decision of its training so far."""
        found = trained(self.agent, task)
        step = found.half_way
        return from_experience(found.fresh[: max(step, 1)], task.spec, about_agent(self, task, found, step))


@dataclass(frozen=True)
class MediumExpert:
    """As many episodes of the agent half way as of the agent at the end."""

    agent: Agent
    episodes: int = 50
    name: ClassVar[str] = "medium-expert"

    def make(self, task: Task) -> Dataset:
        """Medium, then expert."""
        parts = [kind(self.agent, self.episodes).make(task) for kind in (Medium, Expert)]
        about = {"task": task.name, "kind": self.name, "made": [part.about["made"] for part in parts]}
        return joined(parts, about)


# ---------------------------------------------------------------------------------------------------- kept on disk
def task_facts(task: Task) -> str:
    """What a task is, as text: equal tasks have equal facts."""
    return json.dumps(describe(task), default=as_text, sort_keys=True)


def as_text(value: Any) -> str:
    """A setting that JSON does not know: numbers as their digest, else as Python shows it."""
    if isinstance(value, Tensor | np.ndarray):
        array = np.ascontiguousarray(value)
        return f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    return repr(value)


def plain(name: str) -> str:
    """A task's name as part of a file's."""
    return re.sub(r"[^\w.]+", "-", name).strip("-")


def default_folder() -> Path:
    """Where made data are kept: $ASSAY_DATA, else next to the runs."""
    return Path(os.environ.get("ASSAY_DATA") or Path("runs") / "data")


@dataclass(frozen=True)
class Kept:
    """A log for `Logged` that is made on first use and read from `folder` ever after.

    The file is named by task, kind and a fingerprint of the description; where `hash` is given, other contents are
    refused. Processes that ask at once wait for one of them to make it.
    """

    data: Made
    folder: str = ""
    hash: str = ""
    reward_scale: float = 1.0
    origin: int = int(Origin.DATASET)

    def path(self, task: Task) -> Path:
        """Its file."""
        parts = {"data": describe(self.data), "version": __version__, "task": task_facts(task)}
        if isinstance(self.data, Expert | Medium | MediumReplay | MediumExpert):
            parts["agent"] = self.data.agent.facts(task)
        folder = Path(self.folder) if self.folder else default_folder()
        return folder / f"{plain(task.name)}-{self.data.name}-{store.fingerprint(parts)[:12]}.safetensors"

    def dataset(self, task: Task) -> Dataset:
        """The data, from the file or made now."""
        path = self.path(task)
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / f".{path.stem}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            data = read(path) if path.is_file() else self.data.make(task)
            if not path.is_file():
                write(data, path)
        if self.hash and data.hash != self.hash:
            raise AssayError(f"data {path}: its contents are {data.hash}, {self.hash} was asked for: other data")
        return data

    def columns(self, task: Task) -> dict[str, Tensor]:
        """The transitions."""
        data = self.dataset(task)
        data.check_fits(task.spec, task.name)
        return data.pairs(self.reward_scale)
