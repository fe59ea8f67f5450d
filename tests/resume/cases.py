"""The runs that are killed and gone on with: small ones of every kind, in both worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from assay import recipes
from assay.core.errors import AssayError
from assay.core.record import Experience, Loss, Need, State
from assay.core.slots import Objective, Simulation
from assay.core.spaces import Context
from assay.parts.constraints.multiplier import Ascent, Multiplier
from assay.parts.rewards.function import FromFunction
from assay.recipes.presets import CONTROL, TABLE
from assay.runs import catalogue
from assay.runs.plan import Plan, make_plan
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.stepping import SteppedTask

SMALL = {
    "rollout.num_starts": 3,
    "rollout.group_size": 3,
    "rollout.num_envs": 4,
    "rollout.steps": 6,
    "source.warmup": 8,
    "source.updates": 3,
    "source.batch": 6,
    "source.capacity": 64,
    "source.episodes": 1,
    "source.minibatches": 2,
    "source.epochs": 2,
    "actor.width": 8,
    "actor.layers": 1,
    "actor.heads": 2,
    "actor.hidden": "8",
    "critics.value.width": 8,
    "critics.value.layers": 1,
    "critics.value.heads": 2,
    "critics.value.hidden": "8",
    "critics.q.hidden": "8",
    "copies.target.every": 4,
    "rollout.explore.epsilon.end": 0.5,
}
"""Sizes at which a step takes milliseconds; those that a recipe does not have are left out."""


def named(method: str, task: str, *, steps: int = 4, save_every: int = 1, warmup: int = 0, seed: int = 11) -> Plan:
    """A method of the catalogue, small; it can be resumed from its folder alone."""
    found = catalogue.find_task(task)
    recipe, settings = catalogue.recipe_for(method, found, {}), {}
    for path, value in SMALL.items():
        try:
            recipe.set(path, value)
        except AssayError:
            continue
        settings[path] = value
    plan = make_plan(method, task, steps=steps, seed=seed, settings=settings, warmup=warmup, evaluations=2)
    return replace(plan, save_every=save_every)


# ---------------------------------------------------------------------------------------------------- a task with costs
class PricedSimulation:
    """Another simulation whose every push to the right costs 1."""

    def __init__(self, inner: Simulation) -> None:
        self.inner = inner

    def reset(self, seeds: np.ndarray) -> Context:
        return self.inner.reset(seeds)

    def step(self, action: Tensor) -> tuple[Context, Tensor, Tensor, Tensor, Tensor]:
        context, reward, terminal, truncated, _ = self.inner.step(action)
        return context, reward, terminal, truncated, (action == 1).float().unsqueeze(1)

    def snapshot(self) -> State:
        return self.inner.snapshot()

    def restore(self, state: State) -> None:
        self.inner.restore(state)


def priced(make: Callable[[int], Simulation], num: int) -> PricedSimulation:
    return PricedSimulation(make(num))


def constrained() -> Plan:
    """PPO on CartPole where pushing right costs, under a limit that is broken from the first step on."""
    inner = cartpole()
    task = SteppedTask("priced-cartpole", replace(inner.spec, num_costs=1), partial(priced, inner.make))
    recipe = replace(recipes.ppo(CONTROL), constraints=(Multiplier(1.0, Ascent(0.1)),))
    sizes = "rollout.num_envs", "rollout.steps", "actor.hidden", "critics.value.hidden"
    for path in (*sizes, "source.epochs", "source.minibatches"):
        recipe = recipe.set(path, SMALL[path])
    return replace(make_plan(recipe, task, steps=4, seed=11, evaluations=2), save_every=1)


# ---------------------------------------------------------------------------------------------------- tokens
def share_of_digits(rows: Sequence[dict[str, Any]]) -> list[float]:
    """A reward that an untrained model can raise: how much of the answer is digits."""
    return [sum(letter.isdigit() for letter in row["completion"]) / (1 + len(row["completion"])) for row in rows]


def spoken(method: str, *, steps: int = 4, save_every: int = 1, warmup: int = 0) -> Plan:
    """A token method with something to learn from the first step on."""
    plan = named(method, "addition-1")
    recipe = replace(plan.recipe, rewards=(FromFunction(share_of_digits),))
    plan = make_plan(recipe, plan.task, steps=steps, seed=11, warmup=warmup, evaluations=2)
    return replace(plan, save_every=save_every)


# ---------------------------------------------------------------------------------------------------- a run with faults
@dataclass(frozen=True)
class TwiceInfinite(Objective):
    """A loss whose gradient is not finite in the third and the fourth update."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        return batch.mask.sum()

    def __call__(self, batch: Experience, view: Any) -> Loss:
        factor = float("inf") if view.draw.path[-1] in (2, 3) else 1.0
        return Loss((view.scored.logp[batch.mask] * factor).sum(), self.count(batch))


def faulty() -> Plan:
    """Updates that are skipped and counted: the guards have something to remember."""
    task = catalogue.find_task("bandit")
    recipe = recipes.rloo(TABLE)
    stage = replace(recipe.stages[0], objective=(TwiceInfinite(),))
    recipe = replace(recipe, stages=(stage,)).set("rollout.num_starts", 3).set("rollout.group_size", 3)
    return replace(make_plan(recipe, task, steps=4, seed=3, evaluations=2), save_every=1)


CASES: dict[str, Callable[[], Plan]] = {
    "ppo cartpole": partial(named, "ppo", "cartpole", save_every=2),
    "a2c cartpole": partial(named, "a2c", "cartpole"),
    "dqn cartpole": partial(named, "dqn", "cartpole", steps=5, save_every=2, seed=2),
    "td3 pendulum": partial(named, "td3", "pendulum", save_every=3),
    "sac pendulum": partial(named, "sac", "pendulum"),
    "bc cartpole": partial(named, "bc", "cartpole", steps=3),
    "reinforce bandit": partial(named, "reinforce", "bandit", steps=5),
    "ppo with a constraint": constrained,
    "rloo with skipped updates": faulty,
    "sft addition-1": partial(named, "sft", "addition-1", save_every=2),
    "grpo addition-1, warmed up": partial(named, "grpo", "addition-1", warmup=3),
    "grpo tokens": partial(spoken, "grpo"),
    "rloo tokens": partial(spoken, "rloo", save_every=2),
    "dapo tokens": partial(spoken, "dapo", save_every=2),
    "ppo tokens": partial(spoken, "ppo", save_every=2),
    "dpo tokens, warmed up": partial(spoken, "dpo", warmup=3),
}
