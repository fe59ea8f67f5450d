"""Guards: each one catches what it is for, says where and what to do, and is silent in clean runs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

import assay
from assay import recipes
from assay.core.errors import AssayError
from assay.core.metrics import Metric
from assay.core.optimizers import Adam
from assay.core.recipe import Phase
from assay.core.record import Experience, Loss, Need, Origin, Progress, Scored, State, Sums
from assay.core.slots import Body, Credit, Objective, Prepare, Regularizer, Reward, Scene
from assay.core.spaces import Spec
from assay.core.verifier import VERIFIED, Verifier
from assay.engine.guards.correctness import STANDARD, Alarm, Alarms, Moment, SampledEqualsTrained
from assay.engine.guards.learning import FEW_CUT, FewSkipped, HeldOutFollows, LivePolicy, RewardHolds
from assay.engine.loop import Loop
from assay.methods.p3o import recipe as p3o
from assay.models.heads.bounded import SquashedGaussian
from assay.ops import groups
from assay.parts.objectives.pathwise import MatchEntropy
from assay.parts.rewards.function import FromFunction
from assay.recipes.constrained import safe_ppo
from assay.recipes.presets import LANGUAGE, PLACES
from assay.runs import catalogue
from assay.runs.progress import Mode
from benchmarks.rescaled import Units, recipe_in, task_in


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


@pytest.mark.parametrize("returned", [None, [1.0], "scores", [float("nan")] * 12, ["1"] * 12, [[1.0]] * 12, 1.0])
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


def test_weights_far_from_order_one_are_reported() -> None:
    """A large inverse temperature is the same as large rewards."""
    task, found = catalogue.find_task("pendulum"), []
    for inverse_temperature in (1e6, 3.0):
        settings = {"source.episodes": 1, "source.batch": 16, "inverse_temperature": inverse_temperature}
        loop = Loop(catalogue.recipe_for("iql", task, settings), task, seed=0, num_steps=3)
        found.append([alarm for alarm in alarms_of(loop, 3) if alarm.guard == "weights of order one"])
    assert found[0]
    assert not found[1]
    assert all("source.scale" in alarm.message for alarm in found[0])


def test_a_target_entropy_out_of_reach_is_refused_and_one_that_is_far_is_reported() -> None:
    with pytest.raises(AssayError, match=r"MatchEntropy\.target is 0\.7, and a dimension .* less than log 2"):
        MatchEntropy(0.7)
    task = catalogue.find_task("pendulum")
    settings = {"source.warmup": 8, "source.updates": 1, "source.batch": 16, "MatchEntropy.target": 0.5}
    recipe = catalogue.recipe_for("sac", task, settings)
    narrow = replace(recipe, actor=replace(recipe.actor, head=Narrow()))  # type: ignore[type-var]
    found = [alarms_of(Loop(one, task, seed=0, num_steps=2), 2) for one in (narrow, recipe)]
    assert [any(alarm.guard == "temperature settles" for alarm in alarms) for alarms in found] == [True, False]


@dataclass(frozen=True)
class Narrow(SquashedGaussian):
    """A squashed Gaussian that begins with a deviation of exp(-6)."""

    def on(self, body: Body, spec: Spec) -> nn.Module:
        policy = super().on(body, spec)
        with torch.no_grad():
            policy.body.net[-1].bias[1:] -= 6.0  # type: ignore[union-attr,index,operator]
        return policy


@pytest.mark.parametrize(("factor", "normalize", "is_reported"), [
    (1.0, "", False), (1e4, "", True), (1e-4, "", True), (1e4, "obs", False),
])  # fmt: skip
def test_observations_far_from_order_one_are_reported(factor: float, normalize: str, is_reported: bool) -> None:
    units = Units(seen=factor, normalize=normalize)
    task = task_in(units, "a2c")
    recipe = recipe_in("a2c", task, units, 0).set("rollout.num_envs", 4)
    alarms = alarms_of(Loop(recipe, task, seed=0, num_steps=2), 2)
    found = [alarm.message for alarm in alarms if alarm.guard == "observations of order one"]
    assert len(found) == is_reported, "once, or not at all"
    assert all("--normalize obs" in message for message in found)


@dataclass(frozen=True)
class Drifting(Reward):
    """Logs how far it is at every step, and watches it."""

    by: float = 0.5
    watches: ClassVar[tuple[Metric, ...]] = (
        Metric("drift", 0.9, "no drift", "the drift is {value:.1f} at step {step}. Stop it"),
        Metric("only_shown"),
    )

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        scene.log("drift", self.by * scene.progress.step)
        scene.log("only_shown", float("nan"))
        return experience


def test_a_limit_that_a_part_states_raises_its_alarm() -> None:
    rewards = (Verifier(), Drifting())
    alarms = [alarm for alarm in alarms_of(bandit_loop(rewards=rewards), 4) if alarm.guard in ("no drift", "")]
    assert [alarm.message for alarm in alarms] == [
        "the drift is 1.0 at step 2. Stop it", "the drift is 1.5 at step 3. Stop it",
    ]  # fmt: skip
    assert {alarm.guard for alarm in alarms} == {"no drift"}
    nan = alarms_of(bandit_loop(rewards=(Verifier(), Drifting(float("nan")))), 1)
    assert Alarm("no drift", "the drift is nan at step 0. Stop it") in nan


def test_the_alarm_of_targets_beyond_the_bins_reads_as_before() -> None:
    metric = catalogue.recipe_for("hl-gauss", catalogue.find_task("cartpole"), {}).watched["beyond_bins"]
    text = (
        "25% of the critic's targets lie beyond its bins at step 3, so that their values cannot be learned. Set the "
        "range to that of the task's returns: --set bins.low=... --set bins.high=..."
    )
    assert metric.text.format(value=0.25, step=3) == text
    assert (metric.guard, metric.most) == ("inside bins", 0.2)


def test_metrics_of_settings_are_watched_and_those_of_phases_are_not() -> None:
    recipe = safe_ppo()
    assert list(recipe.watched) == ["cost", "multiplier"]
    assert recipes.ppo().watched == {}
    assert not replace(recipes.ppo(), before=(Phase("first", recipe, 1),)).watched


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


@dataclass(frozen=True)
class OwnLoss(Objective):
    """A policy loss as users write it; `weight` is that of the entropy, which a bonus subtracts."""

    weight: float = -0.01
    is_mean: bool = False
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.ENTROPY})
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> torch.Tensor:
        return torch.ones(()) if self.is_mean else batch.mask.sum()

    def __call__(self, batch: Experience, view: Any) -> Loss:
        gained = -view.scored.logp * batch.column("advantage") + self.weight * view.scored.entropy
        total = (gained * batch.mask).sum()
        return Loss(total / batch.mask.sum() if self.is_mean else total, self.count(batch))


@pytest.mark.parametrize(
    ("changes", "guard"),
    [({}, ""), ({"weight": 5.0}, "entropy is not lowered"), ({"is_mean": True}, "counts add up")],
)
def test_a_loss_that_lowers_entropy_or_is_a_mean_of_means_is_reported(changes: dict[str, Any], guard: str) -> None:
    stage = replace(bandit_loop().recipe.stages[0], objective=(OwnLoss(**changes),), regularizers=())
    found = alarms_of(bandit_loop(stages=(stage,)), 2)
    named = [alarm for alarm in found if alarm.guard in ("entropy is not lowered", "counts add up")]
    assert [alarm.guard for alarm in named] == ([guard] if guard else [])
    assert not any(alarm.stop for alarm in named)


@dataclass(frozen=True)
class OwnCredit(Credit):
    """Advantages as users write them: of the batch instead of the group, or with a gradient."""

    mixes: bool = False
    has_gradient: bool = False
    says_so: bool = False
    writes: ClassVar[dict[str, str]] = {"advantage": "BT"}

    @property
    def breaks(self) -> dict[str, str]:
        return {"groups_apart": "the baseline is that of the batch"} if self.says_so else {}

    def apply(self, experience: Experience, scene: Any, state: Any) -> Experience:
        paid = groups.outcome(experience)
        index = groups.row_groups(experience)
        base = paid.mean() if self.mixes else groups.mean(paid, index)[index.index]
        advantage = (paid - base)[:, None] * experience.mask
        return experience.add({"advantage": advantage.requires_grad_() if self.has_gradient else advantage})


@pytest.mark.parametrize(
    ("changes", "guard"),
    [
        ({}, ""),
        ({"mixes": True}, "groups apart"),
        ({"mixes": True, "says_so": True}, ""),
        ({"has_gradient": True}, "credit without gradient"),
    ],
)
def test_credit_that_mixes_groups_or_has_a_gradient_is_found(changes: dict[str, Any], guard: str) -> None:
    found = alarms_of(bandit_loop(credit=(OwnCredit(**changes),)), 1)
    named = [alarm for alarm in found if alarm.guard in ("groups apart", "credit without gradient")]
    assert [alarm.guard for alarm in named] == ([guard] if guard else [])
    assert all(alarm.stop is (guard == "credit without gradient") and "OwnCredit" in alarm.message for alarm in named)


def test_guards_are_on_by_default() -> None:
    assert bandit_loop().guards == STANDARD
    assert len(set(STANDARD)) == 18


def test_weights_that_are_not_finite_stop_the_run_before_they_sample() -> None:
    loop = bandit_loop()
    stage = replace(loop.recipe.stages[0], optimizer=Adam(1e38, clip_norm=0.0))
    loop.recipe = replace(loop.recipe, stages=(stage,))
    with torch.no_grad():
        loop.engine.flats["actor"].values.fill_(3e38)
    alarms = [alarm for alarm in alarms_of(loop, 1) if alarm.guard == "weights move"]
    assert [alarm.stop for alarm in alarms] == [True]
    assert "not finite" in alarms[0].message


# ----------------------------------------------------------------------------------------------------------- learning
def raised_by(guard: str, alarms: Sequence[Alarm]) -> list[Alarm]:
    """The alarms of one guard."""
    return [alarm for alarm in alarms if alarm.guard == guard]


@dataclass(frozen=True)
class EntropyPenalty(Regularizer):
    """An entropy bonus with the wrong sign."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.ENTROPY})
    together: ClassVar[str | None] = None
    divergence: ClassVar[bool] = False

    def count(self, batch: Experience) -> torch.Tensor:
        return batch.mask.sum()

    def __call__(self, batch: Experience, view: Any) -> Loss:
        return Loss(50.0 * (view.scored.entropy * batch.mask).sum(), self.count(batch))


def test_entropy_that_collapses_is_reported_and_entropy_that_falls_by_learning_is_not() -> None:
    recipe = recipes.rloo(LANGUAGE).set("rollout.num_starts", 3).set("actor.layers", 1)
    recipe = recipe.set("policy.learning_rate", 0.01)
    stage = replace(recipe.stages[0], regularizers=(EntropyPenalty(),))
    loop = Loop(replace(recipe, stages=(stage,)), catalogue.find_task("addition-1"), seed=0, num_steps=30)
    (found,) = raised_by("live policy", alarms_of(loop, 25))[:1]
    assert not found.stop
    assert "sign of the entropy term" in found.message
    task = catalogue.find_task("bandit")
    healthy = Loop(catalogue.recipe_for("rloo", task, {"policy.learning_rate": 0.3}), task, seed=0, num_steps=60)
    outcome, sure = [], []
    for _ in range(60):
        step = healthy.step()
        assert raised_by("live policy", step.alarms) == []
        assert step.fresh is not None
        outcome.append(float(groups.outcome(step.fresh).mean()))
        sure.append(-float(step.fresh.logp[step.fresh.mask].mean()))
    assert sure[-1] < 0.05 * sure[0], "it is as sure as the other one"
    assert outcome[-1] > outcome[0]


def gathered(actions: Tensor, logp: float, outcome: Sequence[float]) -> Moment:
    """A moment after gathering rows of one decision each."""
    task = catalogue.find_task("bandit")
    recipe = catalogue.recipe_for("rloo", task, {})
    mask = torch.ones(len(outcome), 1, dtype=torch.bool)
    fresh = Experience(
        context={}, action=actions, mask=mask, logp=torch.full((len(outcome), 1), logp),
        reward=torch.tensor(outcome).unsqueeze(1), terminal=mask, truncated=~mask,
    )  # fmt: skip
    return Moment(recipe, Progress(), None, fresh, {})


class Off(nn.Module):
    """An actor in bfloat16 whose log-probabilities are off by these numbers."""

    def __init__(self, gaps: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.gaps = nn.Parameter(torch.zeros(1, dtype=torch.bfloat16)), gaps

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        return Scored(batch.logp + self.gaps[: len(batch)])


@pytest.mark.parametrize(
    ("noise", "bias", "stops"), [(0.04, 0.0, False), (0.04, 0.04, True), (0.2, 0.0, True), (0.0, float("nan"), True)]
)
def test_rounding_in_bfloat16_is_told_from_wrong_settings_by_its_sign(noise: float, bias: float, stops: bool) -> None:
    """Rounding of SmolLM2-135M: 0.032 on average. A gap of one sign is a KL divergence."""
    drawn = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    moment = gathered(torch.zeros(64, 1, dtype=torch.long), -1.0, [0.0] * 64)
    moment = replace(moment, actor=Off(noise * (drawn - drawn.mean()) + bias))
    assert bool(SampledEqualsTrained().gathered(moment, {})) is stops


def test_continuous_policies_collapse_by_their_deviation() -> None:
    actions, guard = torch.zeros(4, 1, 2), LivePolicy()
    state = guard.init()
    wide, narrower, narrow = -2.0, -2.0 + 2 * 3.0, -2.0 + 2 * 5.0
    assert guard.gathered(gathered(actions, wide, [0.0, 1.0, 2.0, 3.0]), state) == []
    assert [guard.gathered(gathered(actions, narrower, [0.0, 1.0, 2.0, 0.0]), state) for _ in range(6)] == [[]] * 6
    assert [len(guard.gathered(gathered(actions, narrow, [0.0] * 4), state)) for _ in range(5)] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 1), (0.01, 0)])
def test_learning_rates_of_zero_on_every_stage_are_reported(rate: float, expected: int) -> None:
    task = catalogue.find_task("cartpole")
    recipe = catalogue.recipe_for("ppo", task, {})
    names = {f"{stage.name}.learning_rate": rate for stage in recipe.stages}
    loop = Loop(catalogue.recipe_for("ppo", task, names), task, seed=0, num_steps=50)
    found = raised_by("something is trained", alarms_of(loop, 5))
    assert len(found) == expected
    assert all("learning rate of every stage" in alarm.message for alarm in found)


def test_a_run_without_any_gradient_is_reported_in_its_middle() -> None:
    loop = bandit_loop(rewards=(ConstantReward(),))
    found = raised_by("something is trained", alarms_of(loop, 12))
    assert [alarm.message.startswith("no weight has moved in 10 steps") for alarm in found] == [True]


def test_skipped_updates_are_counted_over_the_run() -> None:
    guard = FewSkipped()
    state, moment = guard.init(), gathered(torch.zeros(1, 1), -1.0, [0.0])
    healthy = [guard.updated(replace(moment, tried=10), state) for _ in range(20)]
    assert healthy == [[]] * 20
    state = guard.init()
    fault = ("the gradient of stage 'policy' is not finite",)
    alarms = [
        alarm
        for step in range(40)
        for alarm in guard.updated(replace(moment, tried=4, faults=fault if step % 5 == 0 else ()), state)
    ]
    assert [alarm.message.partition(" were")[0] for alarm in alarms] == [
        "1 of 20 updates (5%)", "2 of 40 updates (5%)", "4 of 80 updates (5%)", "8 of 160 updates (5%)",
    ]  # fmt: skip


def test_a_run_that_skips_many_updates_says_which_share() -> None:
    task = catalogue.find_task("bandit")
    recipe = catalogue.recipe_for("rloo", task, {})
    stage = replace(recipe.stages[0], objective=(*recipe.stages[0].objective, SometimesExplodes()))
    found = alarms_of(Loop(replace(recipe, stages=(stage,)), task, seed=0, num_steps=60), 60)
    assert len(raised_by("finite steps", found)) > 2
    assert raised_by("few skipped", found)


@dataclass(frozen=True)
class SometimesExplodes(Objective):
    """A loss whose gradient is not finite where the sum of the actions is a multiple of seven."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> torch.Tensor:
        return batch.mask.sum()

    def __call__(self, batch: Experience, view: Any) -> Loss:
        explodes = int(batch.action[batch.mask].sum()) % 7 == 0
        return Loss((view.scored.logp * batch.mask).sum() * (float("inf") if explodes else 0.0), self.count(batch))


@pytest.mark.parametrize(("rate", "expected"), [(0.0, True), (None, False)])
def test_a_critic_that_explains_nothing_late_in_the_run_is_reported(rate: float | None, expected: bool) -> None:
    task = catalogue.find_task("cartpole")
    settings = {"source.epochs": 2} | ({} if rate is None else {"value.learning_rate": rate})
    loop = Loop(catalogue.recipe_for("ppo", task, settings), task, seed=0, num_steps=20)
    assert bool(raised_by("critic explains", alarms_of(loop, 20))) == expected


@pytest.mark.parametrize(("cut", "expected"), [(0.9, 1), (0.4, 0)])
def test_answers_cut_at_the_limit_are_reported(cut: float, expected: int) -> None:
    guard = FEW_CUT
    state, moment = guard.init(), gathered(torch.zeros(1, 1), -1.0, [0.0])
    alarms = [alarm for _ in range(5) for alarm in guard.updated(replace(moment, metrics={"cut": cut}), state)]
    assert len(alarms) == expected


def test_an_untrained_policy_that_never_ends_its_answers_is_reported() -> None:
    task = catalogue.find_task("addition-1")
    recipe = recipes.rloo(LANGUAGE).set("rollout.num_starts", 3).set("actor.layers", 1)
    found = raised_by("few cut", alarms_of(Loop(recipe, task, seed=0, num_steps=5), 5))
    assert ["cut at the length limit for 5 steps" in alarm.message for alarm in found] == [True]


@pytest.mark.parametrize(
    ("trained", "held_out", "expected"),
    [
        ([1.0, 1.0, 1.0, 0.0], [0.0, 0.8, 0.0], [True, True, False, True]),
        ([1.0, 1.0, 0.0, 0.0], [0.0, 0.9, 0.0], [False] * 4),
        ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [False] * 4),
        ([9.0, 9.0, 9.0, 9.0], [0.0, 0.0, 0.0], [False] * 4),
    ],
)  # fmt: skip
def test_a_held_out_score_far_below_the_training_score_is_reported(
    trained: list[float], held_out: list[float], expected: list[bool]
) -> None:
    """A gap of 0.48 is, at evaluations 1, 2 and 4; one of 0.2 is not, none is the other way, none are returns."""
    guard, moment = HeldOutFollows(), gathered(torch.zeros(4, 1), -1.0, trained)
    fresh = moment.fresh.add({"score": torch.tensor(trained), VERIFIED: torch.tensor(trained).unsqueeze(1)})
    state = guard.init()
    assert guard.gathered(replace(moment, fresh=fresh), state) == []
    assert [bool(guard.evaluated(held_out, state)) for _ in range(4)] == expected


def test_scores_that_no_verifier_gave_and_rows_of_others_are_not_compared() -> None:
    guard, moment = HeldOutFollows(), gathered(torch.zeros(2, 1), -1.0, [1.0, 1.0])
    state, ones = guard.init(), torch.ones(2)
    guard.gathered(replace(moment, fresh=moment.fresh.add({"score": ones})), state)
    hinted = moment.fresh.add({"score": ones, VERIFIED: ones.unsqueeze(1)})
    hinted = hinted.with_columns(source=torch.full((2,), int(Origin.HINTED)))
    guard.gathered(replace(moment, fresh=hinted), state)
    assert state == {"score": None, "below": 0}
    assert guard.evaluated([0.0], state) == []


def test_guards_see_every_evaluation_of_a_run_after_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, alarm = list[Sequence[float]](), Alarm("held-out score follows", "by heart")
    monkeypatch.setattr(Loop, "observe_scores", lambda loop, scores: seen.append(scores) or [alarm])
    run = assay.train("rloo", "bandit", steps=4, evaluations=2, out=tmp_path / "run", mode=Mode.SILENT)
    assert seen[-1] == run.scores_after.tolist()
    assert len(seen) == 2
    assert run.alarms == [alarm, alarm]


@dataclass(frozen=True)
class Reversed(Prepare):
    """A sign error: every advantage has the other sign."""

    needs: ClassVar[frozenset[Need]] = frozenset()

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return experience.add({"advantage": -experience.column("advantage")})


def reward_alarms(rewards: Sequence[float], noise: float = 0.05) -> list[Alarm]:
    """The alarms of a run of 100 steps with these rewards of an answer, and noise drawn once for all tests."""
    guard, generator = RewardHolds(), torch.Generator().manual_seed(0)
    state, found = guard.init(), list[Alarm]()
    for step, reward in enumerate(rewards):
        noisy = reward + noise * float(torch.randn((), generator=generator))
        metrics = {"reward_per_decision": noisy / 8.0, "length": 8.0}
        moment = Moment(bandit_loop().recipe, Progress(step=step, num_steps=100), None, None, metrics)
        found += guard.updated(moment, state)
    return found


COLLAPSED = [0.43] * 10 + [max(0.0, 0.43 - 0.02 * step) for step in range(90)]
GAINED_AND_LOST = [0.1 + 0.8 * min(step, 60 - step) / 30 for step in range(60)] + [0.1] * 40


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        (COLLAPSED, "fell from 0.4"),
        (GAINED_AND_LOST, "fell from 0.8"),
        ([0.43] * 100, ""),
        ([0.1 + 0.008 * step for step in range(100)], ""),
        ([0.1 + 0.016 * step for step in range(50)] + [0.7] * 50, ""),
        ([-1100.0 - step / 2 for step in range(100)], ""),
    ],
    ids=["falls to 0", "loses its gain", "constant", "rises", "keeps most of its gain", "falls by a few percent"],
)
def test_a_reward_that_falls_while_it_is_trained_on_is_reported(rewards: list[float], expected: str) -> None:
    alarms = reward_alarms(rewards)
    assert bool(alarms) == bool(expected)
    assert all(expected in alarm.message and not alarm.stop for alarm in alarms)


def test_steps_without_experience_say_nothing_of_the_reward() -> None:
    guard = RewardHolds()
    state = guard.init()
    moment = Moment(bandit_loop().recipe, Progress(num_steps=100), None, None, {"reward_per_decision": 1.0})
    assert guard.updated(moment, state) == []
    assert state == guard.init()


def test_a_run_that_is_paid_against_its_score_raises_the_alarm() -> None:
    """As rlpr did: the loss pushes answers that its own reward does not pay for."""
    task = catalogue.find_task("bandit")
    recipe = catalogue.recipe_for("rloo", task, {"policy.learning_rate": "0.1"})
    (credit, *rest) = recipe.credit
    loop = Loop(replace(recipe, credit=(credit, *rest, Reversed())), task, seed=0, num_steps=60)
    assert raised_by("reward holds", alarms_of(loop, 60))


def test_alarms_are_bounded_and_counted_beyond() -> None:
    alarms = Alarms()
    alarms.add(Alarm("a", f"number {place}") for place in range(1000))
    alarms.add([Alarm("b", "once", stop=True)])
    assert alarms.counts == {"a": 1000, "b": 1}
    assert [alarm.message for alarm in alarms.kept][-3:] == ["number 998", "number 999", "once"]
    assert len(alarms.kept) == alarms.most + 1
    assert Alarms.of(alarms.snapshot()) == alarms


@pytest.mark.parametrize("make", [recipes.gspo, p3o], ids=["gspo", "p3o"])
def test_an_update_that_clips_most_of_its_answers_is_reported(make: Any) -> None:
    """The mean over a step hides it: the first update has ratio 1 and clips nothing."""
    once = make(PLACES).set("num_starts", 8).set("learning_rate", 0.5)
    task, found = catalogue.find_task("judge"), []
    for recipe in (once, once.set("source.epochs", 2)):
        loop = Loop(recipe, task, seed=0, num_steps=2)
        steps = [loop.step() for _ in range(2)]
        most = max(step.metrics["most_clipped"] for step in steps)
        found.append((most, any(alarm.guard == "few clipped" for step in steps for alarm in step.alarms)))
    assert all(step.metrics["clipped"] <= 0.5 for step in steps)
    assert found[0] == (0.0, False)
    assert found[1][0] > 0.5
    assert found[1][1]
