"""Rewards: the verifier as a part, rewards made of rewards, and rewards that remember. Numbers are worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Experience, InfraFault, Outcome, Score, State, concatenate
from assay.core.slots import Reward, Rollout, Scene, Task
from assay.core.verifier import VERIFIED, Verifier
from assay.engine.gathering import REWARDED
from assay.engine.loop import Loop
from assay.engine.loop_metrics import averages
from assay.ops import random
from assay.parts.rewards.combine import Gated, Product, StandardisedInGroup, Weighted, WeightedSum
from assay.parts.rewards.function import FromFunction
from assay.parts.rewards.labels import ByLabel
from assay.parts.rewards.text import Matches
from assay.parts.rollouts.episodes import Episodes
from assay.recipes.presets import LANGUAGE, TABLE
from assay.rollouts import text
from assay.runs import catalogue
from assay.runs.distributed.rollout_worker import models_of
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask, completion_ids, prompt_ids


@dataclass(frozen=True)
class Sums:
    """N+1= with one right answer; notes everything that it is asked to verify. "?" is a fault of the machine."""

    asked: list[str] = field(default_factory=list)

    def item(self, ordinal: int, split: int) -> Item:
        label = "hard" if ordinal % 2 else "easy"
        return Item(f"{ordinal}+1=", str(ordinal + 1), str(ordinal + 1), {"label": label})

    def verify(self, item: Item, completion: str) -> Outcome:
        self.asked.append(completion)
        return InfraFault("down") if completion == "?" else Score(float(completion == item.answer))


def task_of() -> PromptTask:
    return PromptTask("sums", Sums(), text.CharacterTokenizer(), max_prompt=6, max_tokens=5)


def said(task: PromptTask, starts: Sequence[int], completions: Sequence[str]) -> Experience:
    """Completions as they were sampled: not verified, reward 0."""
    prompts = [prompt_ids(task.tokenizer, task.items.item(start, 0).prompt, task.max_prompt) for start in starts]
    tokens = [completion_ids(task.tokenizer, one, task.max_tokens) for one in completions]
    return text.written(prompts, tokens, torch.tensor(starts), task.tokenizer.vocabulary.pad)


def asked(task: PromptTask) -> list[str]:
    assert isinstance(task.items, Sums)
    return task.items.asked


def length(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    return [float(len(row["completion"])) for row in rows]


def row_totals(experience: Experience) -> list[float]:
    """What each row earned; nothing is earned elsewhere than on its last decision."""
    last = torch.where(experience.mask, torch.arange(experience.num_columns), -1).amax(1)
    for row, column in enumerate(last.tolist()):
        assert not experience.reward[row].clone().index_fill(0, torch.tensor(max(column, 0)), 0.0).any()
    return experience.reward.sum(1).tolist()


def outcome_of(reward: Reward, starts: Sequence[int], completions: Sequence[str]) -> tuple[Experience, Scene]:
    task = task_of()
    scene = Scene(task)
    return reward(said(task, starts, completions), scene), scene


# ---------------------------------------------------------------------------------------------------- the verifier
def test_the_verifier_puts_the_tasks_verdict_on_the_last_decision_and_keeps_it() -> None:
    rewarded, _ = outcome_of(Verifier(), [1, 1, 2], ["2", "3", "3"])
    assert row_totals(rewarded) == [1.0, 0.0, 1.0]
    assert rewarded.column("score").tolist() == [1.0, 0.0, 1.0]
    assert torch.equal(rewarded.column(VERIFIED), rewarded.reward)


def test_what_was_verified_is_restored_and_not_verified_again() -> None:
    task = task_of()
    once = Verifier()(said(task, [1, 2], ["2", "5"]), Scene(task))
    changed = once.with_columns(reward=torch.full_like(once.reward, 7.0))
    again = Verifier()(changed, Scene(task))
    assert torch.equal(again.reward, once.reward)
    assert asked(task) == ["2", "5"]


def test_rewards_of_steps_stay_and_need_no_second_column() -> None:
    task = cartpole()
    shown = task.demonstrate(np.arange(2), 0)
    rewarded = Verifier()(shown, Scene(task))
    assert torch.equal(rewarded.reward, shown.reward)
    assert VERIFIED not in rewarded.extra
    assert rewarded.column("score").tolist() == shown.reward.sum(1).tolist()


def test_a_fault_of_the_machine_leaves_training_whatever_else_rewards_it() -> None:
    style = Weighted(FromFunction(length), 0.5)
    for order in ({"style": style, "right": Weighted(Verifier())}, {"right": Weighted(Verifier()), "style": style}):
        rewarded, _ = outcome_of(WeightedSum(order), [1, 1], ["?", "2"])
        assert rewarded.mask.any(1).tolist() == [False, True]
        assert rewarded.reward.sum(1).tolist() == [0.0, 1.5]


# ---------------------------------------------------------------------------------------------------- combinations
def test_a_weighted_sum_by_hand() -> None:
    """verdicts 1, 0, 1; lengths 1, 2, 1; -1 a row: 2 v + 0.5 n - 1."""
    reward = WeightedSum(
        {
            "verifier": Weighted(Verifier(), 2.0),
            "length": Weighted(FromFunction(length), 0.5),
            "constant": Weighted(FromFunction(lambda rows: [-1.0] * len(rows))),
            "watched": Weighted(FromFunction(lambda rows: [9.0] * len(rows)), 0.0),
        }
    )
    rewarded, scene = outcome_of(reward, [1, 1, 2], ["2", "33", "3"])
    assert row_totals(rewarded) == [1.5, 0.0, 1.5]
    assert rewarded.column("score").tolist() == [1.0, 0.0, 1.0], "the task's own, whatever comes after it"
    assert averages(scene.metrics) == {
        "reward/verifier": pytest.approx(2 / 3), "reward/length": pytest.approx(4 / 3),
        "reward/constant": -1.0, "reward/watched": 9.0,
    }  # fmt: skip
    columns = {name: rewarded.column(f"reward/{name}").sum(1).tolist() for name in reward.components}
    assert columns == {
        "verifier": [1.0, 0.0, 1.0], "length": [1.0, 2.0, 1.0], "constant": [-1.0] * 3, "watched": [9.0] * 3,
    }  # fmt: skip


def test_without_a_verifier_the_score_is_the_combined_reward() -> None:
    """Lengths 1, 2 and a constant 3: 0.5 n + 2 * 3 added, 3 n multiplied; not the last component's 3."""
    parts = {"length": FromFunction(length), "constant": FromFunction(lambda rows: [3.0] * len(rows))}
    added = WeightedSum({"length": Weighted(parts["length"], 0.5), "constant": Weighted(parts["constant"], 2.0)})
    for reward, expected in ((added, [6.5, 7.0]), (Product(parts), [3.0, 6.0]), (Gated(*parts.values()), [3.0, 3.0])):
        rewarded, _ = outcome_of(reward, [1, 1], ["2", "33"])
        assert row_totals(rewarded) == expected
        assert rewarded.column("score").tolist() == expected
    rewarded, _ = outcome_of(WeightedSum({"inner": Weighted(Product({"right": Verifier()}), 5.0)}), [1, 1], ["2", "33"])
    assert rewarded.column("score").tolist() == [1.0, 0.0], "a verifier further inside counts too"


def test_no_component_sees_the_reward_of_another() -> None:
    @dataclass(frozen=True)
    class Doubles(Reward):
        def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
            return experience.with_columns(reward=2.0 * experience.reward)

    task = task_of()
    before = said(task, [1], ["2"])
    before = before.with_columns(reward=3.0 * before.terminal.float())
    both = WeightedSum({"length": Weighted(FromFunction(length)), "doubles": Weighted(Doubles())})(before, Scene(task))
    assert row_totals(both) == [1.0 + 6.0]


def test_a_product_by_hand() -> None:
    reward = Product({"verifier": Verifier(), "length": FromFunction(length)})
    rewarded, scene = outcome_of(reward, [9, 9, 1], ["10", "11", "2"])
    assert row_totals(rewarded) == [2.0, 0.0, 1.0]
    assert rewarded.column("score").tolist() == [1.0, 0.0, 1.0]
    assert averages(scene.metrics)["reward/length"] == pytest.approx(5 / 3)
    alone, _ = outcome_of(Product(), [9, 9], ["10", "11"])
    assert row_totals(alone) == [1.0, 0.0]


def test_a_gate_by_hand() -> None:
    reward = Gated(Verifier(), FromFunction(length), threshold=0.5, closed=-1.0)
    rewarded, scene = outcome_of(reward, [9, 9, 1], ["10", "11", "2"])
    assert row_totals(rewarded) == [2.0, -1.0, 1.0]
    assert averages(scene.metrics) == {"reward/gate": pytest.approx(2 / 3), "reward/then": pytest.approx(5 / 3)}
    at_threshold, _ = outcome_of(Gated(FromFunction(length), Verifier(), threshold=2.0), [9, 1], ["10", "2"])
    assert row_totals(at_threshold) == [0.0, 0.0], "above the threshold, not at it"


def test_a_table_by_label_and_outcome() -> None:
    """Starts 1 and 3 are hard, 2 is easy."""
    table = {"hard": {"wrong": -0.5, "right": 2.0}, "easy": {"wrong": -3.0, "right": 1.0}}
    rewarded, _ = outcome_of(ByLabel(table), [1, 3, 2, 2], ["2", "0", "3", "0"])
    assert row_totals(rewarded) == [2.0, -0.5, 1.0, -3.0]
    assert rewarded.column("score").tolist() == [1.0, 0.0, 1.0, 0.0]


def test_a_label_without_an_entry_and_a_task_without_labels_are_named() -> None:
    with pytest.raises(AssayError, match="no entry for the label 'easy'"):
        outcome_of(ByLabel({"hard": {"right": 1.0}}), [1, 2], ["2", "3"])
    with pytest.raises(AssayError, match="has no column 'topic'"):
        outcome_of(ByLabel({"hard": {"right": 1.0}}, label="topic"), [1], ["2"])
    task = cartpole()
    with pytest.raises(AssayError, match="not a text task"):
        ByLabel({"hard": {"right": 1.0}})(task.demonstrate(np.arange(1), 0), Scene(task))


def test_standardised_in_group_by_hand() -> None:
    """Lengths 1, 2, 3 of one group: mean 2, deviation 1. 1, 1 of another: 0. One alone: 0. A faulty row: apart."""
    reward = StandardisedInGroup(FromFunction(length), epsilon=0.0)
    rewarded, _ = outcome_of(reward, [1, 1, 1], ["2", "22", "222"])
    assert row_totals(rewarded) == pytest.approx([-1.0, 0.0, 1.0])
    equal, _ = outcome_of(replace(reward, epsilon=1e-6), [1, 1, 2], ["2", "3", "44"])
    assert row_totals(equal) == [0.0, 0.0, 0.0]
    task = task_of()
    judged = Verifier()(said(task, [1, 1, 1], ["2", "0", "?"]), Scene(task))
    half = 0.5 / math.sqrt(0.5)
    assert row_totals(StandardisedInGroup(epsilon=0.0)(judged, Scene(task))) == pytest.approx([half, -half, 0.0])


COMPOSED: dict[str, tuple[Reward, ...]] = {
    "verifier": (Verifier(),),
    "twice": (Verifier(), Verifier()),
    "sum": (WeightedSum({"verifier": Weighted(Verifier()), "again": Weighted(Verifier(), 2.0)}),),
    "product": (Product({"one": Verifier(), "two": Verifier(), "length": FromFunction(length)}),),
    "gate": (Gated(Verifier(), Verifier()),),
    "table": (ByLabel({"easy": {"right": 1.0}, "hard": {"right": 2.0}}), Verifier()),
    "group": (Verifier(), StandardisedInGroup(Verifier())),
    "nested": (
        WeightedSum(
            {
                "gated": Weighted(Gated(Verifier(), FromFunction(length))),
                "ranked": Weighted(StandardisedInGroup(Product({"verifier": Verifier()}))),
                "verifier": Weighted(Verifier()),
            }
        ),
        Verifier(),
    ),
}


@pytest.mark.parametrize("rewards", COMPOSED.values(), ids=COMPOSED)
def test_every_row_is_verified_exactly_once_whatever_is_composed(rewards: tuple[Reward, ...]) -> None:
    task = task_of()
    experience = said(task, [1, 1, 2], ["2", "3", "3"])
    for reward in rewards:
        experience = reward(experience, Scene(task))
    assert asked(task) == ["2", "3", "3"]
    assert experience.column("score").tolist() == [1.0, 0.0, 1.0]


def test_a_function_alone_verifies_nothing() -> None:
    task = task_of()
    rewarded = FromFunction(length)(said(task, [1], ["22"]), Scene(task))
    assert row_totals(rewarded) == [2.0]
    assert asked(task) == []


@pytest.mark.parametrize("kind", [WeightedSum, Product])
def test_no_components_and_a_stolen_name_are_refused(kind: Callable[..., Reward]) -> None:
    with pytest.raises(AssayError, match="components is empty"):
        kind({})
    stolen: Any = FromFunction(length)
    with pytest.raises(AssayError, match="the name 'verifier'"):
        kind({"verifier": Weighted(stolen) if kind is WeightedSum else stolen})


# ---------------------------------------------------------------------------------------------------- in a run
@dataclass(frozen=True)
class RunningMean(Reward):
    """The verdict minus the mean of all verdicts so far, with noise of its own; logs how often it was called."""

    noise: float = 0.1

    def init(self, scene: Scene) -> State:
        return {"sum": 0.0, "count": 0, "calls": 0}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        total = (experience.reward * experience.mask).sum(1)
        mean = state["sum"] / max(1, state["count"])
        state["sum"] += float(total.sum())
        state["count"] += len(total)
        state["calls"] += 1
        scene.log("calls", state["calls"])
        noise = self.noise * random.uniform_tensor(scene.draw, (len(total),)).to(total.dtype)
        reward = (total - mean + noise).unsqueeze(1) * (experience.terminal & experience.mask)
        return experience.with_columns(reward=reward)


def bandit_loop(*rewards: Reward, rollout: Rollout | None = None) -> Loop:
    recipe: Recipe = replace(recipes.rloo(TABLE), rewards=rewards)
    recipe = recipe.set("rollout.num_starts", 4).set("rollout.group_size", 3)
    recipe = recipe if rollout is None else replace(recipe, rollout=rollout)
    return Loop(recipe, catalogue.find_task("bandit"), seed=5, num_steps=6)


STATEFUL: dict[str, tuple[Reward, ...]] = {
    "alone": (Verifier(), RunningMean()),
    "inside a sum": (Verifier(), WeightedSum({"running": Weighted(RunningMean()), "plain": Weighted(Verifier())})),
    "inside a gate": (Verifier(), Gated(Verifier(), RunningMean(), threshold=-9.0)),
    "inside a group": (Verifier(), StandardisedInGroup(RunningMean())),
    "in a product": (Verifier(), Product({"running": RunningMean(), "plain": Verifier()})),
    "two of one kind": (Verifier(), RunningMean(), RunningMean(0.2)),
}


@pytest.mark.parametrize("rewards", STATEFUL.values(), ids=STATEFUL)
def test_a_reward_that_remembers_resumes_bitwise(rewards: tuple[Reward, ...]) -> None:
    through, stopped = bandit_loop(*rewards), bandit_loop(*rewards)
    for _ in range(3):
        through.step()
        stopped.step()
    saved = stopped.snapshot()
    resumed = bandit_loop(*rewards)
    resumed.restore(saved)
    for _ in range(2):
        mine, theirs = resumed.step(), through.step()
        assert mine.metrics == theirs.metrics
        assert mine.fresh is not None
        assert theirs.fresh is not None
        assert torch.equal(mine.fresh.reward, theirs.fresh.reward)
    assert resumed.states["rewards"] == through.states["rewards"]
    assert torch.equal(resumed.engine.flats["actor"].values, through.engine.flats["actor"].values)
    forgetful = bandit_loop(*rewards)
    forgetful.restore({**saved, "states": {**saved["states"], "rewards": forgetful.snapshot()["states"]["rewards"]}})
    fresh = forgetful.step().fresh
    assert fresh is not None
    assert forgetful.states["rewards"] != through.states["rewards"], "the state matters"


def test_two_parts_of_one_kind_draw_different_noise_and_components_are_in_the_metrics() -> None:
    loop = bandit_loop(Verifier(), WeightedSum({"one": Weighted(RunningMean()), "two": Weighted(RunningMean())}))
    step = loop.step()
    assert {"reward/one", "reward/two", "calls"} <= set(step.metrics)
    assert step.fresh is not None
    assert not torch.equal(step.fresh.column("reward/one"), step.fresh.column("reward/two"))
    assert [state["calls"] for state in loop.states["rewards"][1].values()] == [1, 1]


# ---------------------------------------------------------------------------------------------------- while gathering
@dataclass(frozen=True)
class Looking(Episodes):
    """Looks at rewards while it gathers: of all rows, of the first ones only, of all by parts, or of none."""

    looks: str = "all"

    def __call__(self, scene: Scene, state: State) -> Experience:
        fresh = super().__call__(scene, state)
        half = len(fresh) // 2
        parts = [fresh.rows(slice(0, half)), fresh.rows(slice(half, len(fresh)))]
        if self.looks == "all":
            return scene.reward(fresh)
        if self.looks == "parts":
            return concatenate([scene.reward(part) for part in parts])
        if self.looks == "some":
            return concatenate([scene.reward(parts[0]), parts[1]])
        if self.looks == "marks lost":
            rewarded = scene.reward(fresh)
            return rewarded.add({REWARDED: torch.arange(len(fresh)) < half})
        return fresh


def test_a_rollout_that_looked_at_rewards_is_not_rewarded_again() -> None:
    plain, looked, parts = (
        bandit_loop(Verifier(), RunningMean(), rollout=Looking(4, 3, looks=looks)) for looks in ("none", "all", "parts")
    )
    steps = [loop.step() for loop in (plain, looked, parts)]
    assert [loop.states["rewards"][1]["calls"] for loop in (plain, looked, parts)] == [1, 1, 2]
    assert steps[0].fresh is not None
    assert steps[1].fresh is not None
    assert torch.equal(steps[0].fresh.reward, steps[1].fresh.reward)
    assert REWARDED not in steps[1].fresh.extra
    assert torch.equal(plain.engine.flats["actor"].values, looked.engine.flats["actor"].values)


@pytest.mark.parametrize("looks", ["some", "marks lost"])
def test_a_rollout_that_rewards_some_rows_only_is_refused(looks: str) -> None:
    with pytest.raises(AssayError, match=r"Pass all rows through scene\.reward"):
        bandit_loop(Verifier(), RunningMean(), rollout=Looking(4, 3, looks=looks)).step()


def test_completions_are_verified_once_in_a_run() -> None:
    task = task_of()
    recipe = replace(recipes.rloo(LANGUAGE), rewards=COMPOSED["nested"])
    for path, value in (("rollout.num_starts", 2), ("rollout.group_size", 3), ("actor.layers", 1), ("actor.width", 16)):
        recipe = recipe.set(path, value)
    loop = Loop(recipe, task, seed=0, num_steps=2)
    loop.step()
    assert len(asked(task)) == 6
    loop.step()
    assert len(asked(task)) == 12


def test_the_tasks_verdict_is_the_default_reward() -> None:
    assert recipes.rloo(TABLE).rewards == (Verifier(),)
    task: Task = catalogue.find_task("bandit")
    step = Loop(recipes.rloo(TABLE), task, seed=0, num_steps=1).step()
    assert step.fresh is not None
    assert torch.equal(step.fresh.extra["score"], step.fresh.reward.sum(1))


def test_matches_are_counted_asked_for_once_or_paid_less_and_less() -> None:
    said = {"b": (0.0, 0.0, 0.0), "ab": (0.0, 1.0, 0.5), "a\na": (1.0, 1.0, 0.75), "aaa": (0.0, 1.0, 0.875)}
    for place, part in enumerate((Matches("a", 2), Matches("a", 0), Matches("a", 0, decay=0.5))):
        ours = replace(recipes.grpo(), rewards=(part,))
        assert probes.reward_gap(ours, {text: worth[place] for text, worth in said.items()}) == 0.0
    for decay in (-0.1, 1.0):
        with pytest.raises(AssayError, match=r"Matches\.decay"):
            Matches("a", 0, decay=decay)


def test_a_combination_reads_the_models_of_its_components() -> None:
    recipe = catalogue.methods()["rlpr"].recipe()
    assert models_of(recipe) == ("actor", "start")
    with pytest.raises(AssayError, match="WeightedSum reads 'start', which is not a model of this recipe"):
        replace(recipe, copies={}).check()


def test_a_function_that_fails_on_a_demonstration_fails_before_the_run() -> None:
    def broken(rows: list[dict[str, Any]]) -> list[float]:
        return [float(row["absent"]) for row in rows]

    with pytest.raises(AssayError, match="broken raised KeyError"):
        FromFunction(broken).init(Scene(addition(1)))
