"""Guards: each one catches what it is for, says where and what to do, and is silent in clean runs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.record import Experience, Loss, Need, State, Sums
from assay.core.slots import Objective, Reward, Scene
from assay.engine.guards import STANDARD, Alarm
from assay.engine.loop import Loop
from assay.parts.rewards.function import FromFunction
from assay.recipes.defaults import LANGUAGE
from assay.runs import catalogue


def bandit_loop(**changes: Any) -> Loop:
    task = catalogue.find_task("bandit")
    recipe = replace(catalogue.recipe_for("rloo", task, {}), **changes)
    return Loop(recipe, task, seed=0, num_steps=10)


def alarms_of(loop: Loop, steps: int) -> list[Alarm]:
    return [alarm for _ in range(steps) for alarm in loop.step().alarms]


@pytest.mark.parametrize(
    ("name", "task"), [("ppo", "cartpole"), ("grpo", "bandit"), ("sac", "pendulum"), ("rloo", "addition-1")]
)
def test_clean_runs_raise_no_alarm(name: str, task: str) -> None:
    found = catalogue.find_task(task)
    loop = Loop(catalogue.recipe_for(name, found, {}), found, seed=3, num_steps=3)
    assert [alarm for alarm in alarms_of(loop, 3) if alarm.stop] == []


def test_shifted_log_probabilities_stop_the_run() -> None:
    loop = bandit_loop()
    honest = loop.actor.act

    def shifted(context: Any, uniform: Any) -> tuple[torch.Tensor, torch.Tensor]:
        action, logp = honest(context, uniform)
        return action, logp - 0.05

    loop.actor.act = shifted
    alarms = alarms_of(loop, 1)
    assert any(alarm.guard == "sampled equals trained" and alarm.stop and "0.05" in alarm.message for alarm in alarms)


def test_a_sampler_with_stale_weights_stops_the_run() -> None:
    loop = bandit_loop()
    stale = {name: tensor.clone() for name, tensor in loop.actor.named_parameters()}
    honest = loop.actor.act

    def act_with_old_weights(context: Any, uniform: Any) -> Any:
        return torch.func.functional_call(
            Acting(loop.actor, honest), {f"actor.{k}": v for k, v in stale.items()}, (context, uniform)
        )

    loop.actor.act = act_with_old_weights
    assert [alarm.guard for alarm in alarms_of(loop, 1) if alarm.stop] == []
    assert any(alarm.guard == "sampled equals trained" for alarm in alarms_of(loop, 4))


class Acting(torch.nn.Module):
    """Calls `act` as a module's forward."""

    def __init__(self, actor: torch.nn.Module, act: Any) -> None:
        super().__init__()
        self.actor, self.how = actor, act

    def forward(self, context: Any, uniform: Any) -> Any:
        return self.how(context, uniform)


@dataclass(frozen=True)
class ConstantReward(Reward):
    """Every sequence gets the same."""

    stochastic: ClassVar[bool] = False

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return replace(experience, reward=torch.ones_like(experience.reward) * experience.mask)


@dataclass(frozen=True)
class BrokenReward(Reward):
    """NaN in one row."""

    stochastic: ClassVar[bool] = False

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        reward = experience.reward.clone()
        reward[2] = float("nan")
        return replace(experience, reward=reward)


def test_constant_rewards_are_reported_after_five_steps() -> None:
    alarms = alarms_of(bandit_loop(rewards=(ConstantReward(),)), 5)
    assert {alarm.guard for alarm in alarms} == {"sane rewards", "live groups"}
    assert "verifier" in alarms[0].message


def test_a_reward_that_is_not_finite_stops_the_run_and_names_the_row() -> None:
    alarms = alarms_of(bandit_loop(rewards=(BrokenReward(),)), 1)
    assert any(alarm.stop and "[2]" in alarm.message for alarm in alarms if alarm.guard == "sane rewards")


@pytest.mark.parametrize(
    "returned", [None, [1.0], "scores", [float("nan")] * 12, [True] * 12, ["1"] * 12, [None] * 12, [[1.0]] * 12, 1.0]
)
def test_reward_functions_must_return_one_number_a_row(returned: Any) -> None:
    def score(rows: Any) -> Any:
        return returned

    task = catalogue.find_task("addition-1")
    recipe = replace(recipes.rloo(LANGUAGE), rewards=(FromFunction(score),))
    recipe = recipe.set("rollout.num_starts", 3).set("rollout.group_size", 4).set("actor.layers", 1)
    with pytest.raises(AssayError, match="score"):
        Loop(recipe, task, seed=0, num_steps=1).step()


@dataclass(frozen=True)
class Explodes(Objective):
    """A loss whose gradient is not finite."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> torch.Tensor:
        return batch.mask.sum()

    def __call__(self, batch: Experience, view: Any) -> Loss:
        return Loss((view.scored.logp * float("inf")).sum(), self.count(batch))


def test_a_gradient_that_is_not_finite_never_reaches_the_optimizer() -> None:
    loop = bandit_loop()
    broken = replace(loop.recipe.stages[0], objective=(Explodes(),))
    loop.recipe = replace(loop.recipe, stages=(broken,))
    state, before = loop.engine.optimizers["policy"], copy.deepcopy(loop.engine.optimizers["policy"])
    weights = loop.engine.flats["actor"].values.clone()
    alarms = alarms_of(loop, 3)
    assert torch.equal(weights, loop.engine.flats["actor"].values)
    assert torch.equal(state["steps"], before["steps"])
    assert all(
        torch.equal(*both) for name in ("first", "second") for both in zip(state[name], before[name], strict=True)
    )
    assert [alarm.stop for alarm in alarms if alarm.guard == "finite steps"] == [False, False, True]
    assert "loss/Explodes is" in alarms[-1].message, "it says where"


@dataclass(frozen=True)
class Still(Adam):
    """An optimizer that forgets to move."""

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Nothing."""


def test_weights_that_do_not_move_stop_the_run() -> None:
    loop = bandit_loop()
    stage = replace(loop.recipe.stages[0], optimizer=Still())
    loop.recipe = replace(loop.recipe, stages=(stage,))
    assert any(alarm.guard == "weights move" and alarm.stop for alarm in alarms_of(loop, 1))


def test_learning_rate_zero_keeps_the_weights_bitwise_and_raises_no_alarm() -> None:
    task = catalogue.find_task("cartpole")
    loop = Loop(catalogue.recipe_for("ppo", task, {"policy.learning_rate": 0.0}), task, seed=0, num_steps=3)
    before = loop.engine.flats["actor"].values.clone()
    assert alarms_of(loop, 3) == []
    assert torch.equal(before, loop.engine.flats["actor"].values)


def test_few_effective_samples_are_reported() -> None:
    task = catalogue.find_task("pendulum")
    recipe = catalogue.recipe_for("ppo", task, {"policy.learning_rate": 0.1, "epochs": 4})
    alarms = alarms_of(Loop(recipe, task, seed=0, num_steps=2), 2)
    assert any(alarm.guard == "effective samples" and "epochs" in alarm.message for alarm in alarms)


def test_targets_beyond_the_bins_are_reported() -> None:
    task = catalogue.find_task("gridworld")
    narrow = catalogue.recipe_for("hl-gauss", task, {"bins.low": -0.5, "bins.high": 0.5})
    alarms = alarms_of(Loop(narrow, task, seed=0, num_steps=2), 2)
    assert any(alarm.guard == "inside bins" and "bins.low" in alarm.message for alarm in alarms)
    wide = Loop(catalogue.recipe_for("hl-gauss", task, {}), task, seed=0, num_steps=2)
    assert all(alarm.guard != "inside bins" for alarm in alarms_of(wide, 2))


@dataclass(frozen=True)
class LeakyObjective(Objective):
    """A policy loss that forgets the mask."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> torch.Tensor:
        return batch.mask.sum()

    def __call__(self, batch: Experience, view: Any) -> Loss:
        return Loss(-view.scored.logp.sum(), self.count(batch))


def test_gradient_at_masked_decisions_stops_the_run() -> None:
    task = catalogue.find_task("addition-1")
    recipe = recipes.rloo(LANGUAGE).set("rollout.num_starts", 3).set("actor.layers", 1)
    stage = replace(recipe.stages[0], objective=(LeakyObjective(),))
    alarms = alarms_of(Loop(replace(recipe, stages=(stage,)), task, seed=0, num_steps=1), 1)
    assert any(
        alarm.guard == "masked decisions" and alarm.stop and "LeakyObjective" in alarm.message for alarm in alarms
    )


def test_guards_are_on_by_default() -> None:
    assert bandit_loop().guards == STANDARD
    assert len(STANDARD) == 8


def test_weights_that_are_not_finite_stop_the_run_before_they_sample() -> None:
    loop = bandit_loop()
    stage = replace(loop.recipe.stages[0], optimizer=Adam(1e38, clip_norm=0.0))
    loop.recipe = replace(loop.recipe, stages=(stage,))
    with torch.no_grad():
        loop.engine.flats["actor"].values.fill_(3e38)
    alarms = [alarm for alarm in alarms_of(loop, 1) if alarm.guard == "weights move"]
    assert [alarm.stop for alarm in alarms] == [True]
    assert "not finite" in alarms[0].message
