"""Agents that datasets are recorded from: trained here, kept in memory, or acting uniformly. Axes: N instances."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Progress, State
from assay.core.settings import describe
from assay.core.slots import ALONE, Task
from assay.core.spaces import Box, Context, Spec
from assay.datasets.dataset import Dataset, from_experience, join_datasets
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.machine import tuned
from assay.parts.sources.recordings import NoisyExpert
from assay.recipes.presets import Preset, preset_for

Tell = Callable[[int, int, float], None]
AT_ONCE = 32
"""Episodes played in parallel."""


# ---------------------------------------------------------------------------------------------------- agents
@dataclass(frozen=True)
class Agent:
    """The agent that generates the data: a recipe trained for `steps` (0: the recipe's own budget) from `seed`."""

    recipe: Callable[[Preset], Recipe]
    steps: int = 0
    seed: int = 0
    evaluations: int = 20

    def facts(self, task: Task) -> dict[str, Any]:
        """Returns everything that determines its behaviour, as JSON."""
        recipe = self.recipe(preset_for(task))
        return {
            "recipe": describe(recipe),
            "steps": self.steps or recipe.steps,
            "seed": self.seed,
            "evaluations": self.evaluations,
        }


@dataclass
class Trained:
    """The training of an agent: its recipe, the experience of each step, and weights and scores at each evaluation."""

    recipe: Recipe
    policy: Any
    num_steps: int
    random_score: float
    fresh: list[Experience] = field(default_factory=list)
    scores: dict[int, float] = field(default_factory=dict)
    weights: dict[int, State] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """Returns the step at which training ended."""
        return max(self.scores)

    def share(self, step: int) -> float:
        """Returns the score at a step, 0 for uniform actions and 1 for the end of training."""
        best = self.scores[self.last]
        if not best > self.random_score:
            raise AssayError(
                f"recipe '{self.recipe.name}' ended at {best:.4g}; uniform actions score {self.random_score:.4g}. It "
                "learnt nothing, so there is no half way. Give it more steps"
            )
        return (self.scores[step] - self.random_score) / (best - self.random_score)

    @property
    def half_way(self) -> int:
        """Returns the step of the medium agent."""
        steps = sorted(self.scores)
        first = next(place for place, step in enumerate(steps) if self.share(step) >= 0.5)
        near = steps[max(first - 1, 0) : first + 1]
        return min(near, key=lambda step: abs(self.share(step) - 0.5))

    def acting(self, step: int) -> Any:
        """Returns the agent as it acted at a step, exploration included."""
        self.policy.load_state_dict(self.weights[step])
        return gathering(self.recipe, self.policy, Progress(step, self.num_steps))

    def facts(self, step: int) -> dict[str, Any]:
        """Returns step and scores of the agent at a step."""
        scores = {"score": self.scores[step], "random": self.random_score, "end": self.scores[self.last]}
        return {"agent": self.recipe.name, "step": step, "share": self.share(step), **scores}


TRAINED: dict[str, Trained] = {}
"""The latest training, by what determines it: the kinds of data of one agent share it."""


def gathering(recipe: Recipe, policy: Any, progress: Progress) -> Any:
    """Returns a policy with the exploration of the recipe's rollout, if any."""
    rollout = recipe.at(progress).rollout
    explore = vars(rollout).get("explore") if rollout is not None else None
    return policy if explore is None else explore.wrap(policy, ALONE, explore.init(ALONE))


def silent(step: int, steps: int, score: float) -> None:
    """Prints nothing."""


def trained(agent: Agent, task: Task, tell: Tell = silent) -> Trained:
    """Trains the agent on the task, or returns its cached training. `tell` is called at each evaluation."""
    key = store.fingerprint({"agent": agent.facts(task), "task": task_facts(task)})
    if key not in TRAINED:
        TRAINED.clear()
        TRAINED[key] = train(agent, task, tell)
    return TRAINED[key]


def train(agent: Agent, task: Task, tell: Tell = silent) -> Trained:
    """Trains with the usual loop and keeps the experience; raises AssayError if the recipe has no rollout."""
    facts, recipe = agent.facts(task), agent.recipe(preset_for(task))
    if recipe.rollout is None:
        raise AssayError(f"recipe '{recipe.name}' gathers no experience. Use an agent that acts: ppo, sac")
    if recipe.before:
        raise AssayError(f"recipe '{recipe.name}' has several phases. Use an agent of one phase: ppo, sac")
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
    """Returns an actor of uniform actions within the task's bounds."""
    if isinstance(task.spec.action, Box) and not np.isfinite([*task.spec.action.low, *task.spec.action.high]).all():
        raise AssayError(f"task '{task.name}' has actions without bounds, so there are no uniform actions")
    return NoisyExpert(nothing(task.spec), task.spec, noise=1.0)


def nothing(spec: Spec) -> Callable[[Context], Tensor]:
    """Returns a policy of constant actions; random actions replace all of them."""
    size = spec.action.size if isinstance(spec.action, Box) else 0

    def act(context: Context) -> Tensor:
        rows = len(next(iter(context.values())))
        return torch.zeros(rows, size) if size else torch.zeros(rows, dtype=torch.long)

    return act


def played(task: Task, actor: Any, episodes: int, seed: int, about: dict[str, Any]) -> Dataset:
    """Plays whole episodes of an actor on the task's first training starts, some in parallel."""
    parts = []
    for first in range(0, episodes, AT_ONCE):
        starts = np.arange(first, min(first + AT_ONCE, episodes), dtype=np.int64)
        with torch.no_grad():
            one = task.play(actor, starts, np.zeros_like(starts), Draw(seed, (9,)), split=0, greedy=False)
        parts.append(from_experience([task.judge(one, 0)], task.spec, about))
    return join_datasets(parts, about)



# ---------------------------------------------------------------------------------------------------- cached on disk
def task_facts(task: Task) -> str:
    """Returns the settings of a task as text: equal tasks have equal text."""
    return json.dumps(describe(task), default=as_text, sort_keys=True)


def as_text(value: Any) -> str:
    """Returns a setting that JSON cannot represent as text: numbers as their digest, else its repr."""
    if isinstance(value, Tensor | np.ndarray):
        array = np.ascontiguousarray(value)
        return f"{array.dtype}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    return repr(value)
