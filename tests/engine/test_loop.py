"""The one loop: selection rounds, exactly-once starts, seeds that belong to items, and state that can be put away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay import recipes
from assay.core import store
from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Progress, State, Sums
from assay.core.schedules import Linear
from assay.core.slots import Curriculum, Optimizer, Scene, Select
from assay.engine.loop import Loop, Step, freeze_states, thaw_states
from assay.engine.loop_metrics import means
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.parts.curricula.in_order import InOrder
from assay.recipes.presets import LANGUAGE, TABLE
from assay.runs import catalogue
from tests.resume.cases import CASES
from tests.scenes import feeding


def bandit_recipe(**changes: Any) -> Recipe:
    recipe = replace(recipes.dapo(TABLE), **changes)
    return recipe.set("rollout.num_starts", 4).set("rollout.group_size", 3)


@dataclass
class Starts(Curriculum):
    """A curriculum that counts as InOrder does and notes what it gave."""

    given: list[list[int]]

    def init(self, scene: Scene) -> State:
        return InOrder().init(scene)

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        starts = InOrder()(scene, state)
        self.given.append(starts.tolist())
        return starts

    def observe(self, experience: Experience, scene: Scene, state: State) -> None:
        InOrder().observe(experience, scene, state)


@dataclass
class KeepFirst(Select):
    """Keeps the first groups of each round, as many as its list says."""

    kept: Sequence[int]
    max_rounds: int = 3
    round: int = 0

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        labels = torch.unique(experience.group)[: self.kept[self.round]]
        self.round += 1
        return experience.rows(torch.isin(experience.group, labels))


# ---------------------------------------------------------------------------------------------------- selection
@pytest.mark.parametrize(
    ("kept", "rounds", "groups"),
    [
        ([4], 1, 4),
        ([3, 1], 2, 4),
        ([3, 4], 2, 4),
        ([1, 1, 1], 3, 3),
        ([0, 0, 4], 3, 4),
        ([0, 4], 2, 4),
    ],
)
def test_gathers_until_as_many_groups_are_kept_as_were_asked_for(kept: list[int], rounds: int, groups: int) -> None:
    select, given = KeepFirst(kept), list[list[int]]()
    loop = Loop(
        bandit_recipe(select=select, curriculum=Starts(given)), catalogue.find_task("bandit"), seed=0, num_steps=1
    )
    step = loop.step()
    assert select.round == rounds == len(given)
    assert len(torch.unique(step.fresh.group)) == groups
    assert len(step.fresh) == 3 * groups
    assert loop.progress.decisions == 4 * 3 * rounds, "what was thrown away was sampled too"


def test_where_nothing_is_kept_there_is_nothing_to_learn_from() -> None:
    loop = Loop(bandit_recipe(select=KeepFirst([0, 0, 0])), catalogue.find_task("bandit"), seed=0, num_steps=1)
    before = loop.engine.flats["actor"].values.clone()
    step = loop.step()
    assert step.metrics["selected"] == 0.0
    assert not step.fresh.mask.any()
    assert torch.equal(loop.engine.flats["actor"].values, before)


def test_dynamic_sampling_drops_the_groups_without_signal() -> None:
    loop = Loop(bandit_recipe(), catalogue.find_task("bandit"), seed=0, num_steps=3)
    for _ in range(3):
        fresh = loop.step().fresh
        for group in torch.unique(fresh.group):
            outcomes = fresh.extra["score"][fresh.group == group]
            assert outcomes.max() > outcomes.min()


# ---------------------------------------------------------------------------------------------------- exactly once
@pytest.mark.parametrize("break_after", [None, 0, 1, 2, 4])
def test_every_start_is_drawn_exactly_once_in_order_whatever_is_selected_or_resumed(break_after: int | None) -> None:
    given: list[list[int]] = []
    recipe = bandit_recipe(select=KeepFirst([1] * 99), curriculum=Starts(given))
    task = catalogue.find_task("bandit")
    loop = Loop(recipe, task, seed=0, num_steps=5)
    for number in range(5):
        loop.step()
        if number == break_after:
            saved = loop.snapshot()
            loop = Loop(recipe, task, seed=0, num_steps=5)
            loop.restore(saved)
    flat = [start for starts in given for start in starts]
    assert flat == list(range(5 * 3 * 4))


def test_demonstrations_and_pairs_are_taken_exactly_once_in_order() -> None:
    task = catalogue.find_task("addition-1")
    recipe = recipes.sft(LANGUAGE).set("source.batch", 3)
    seen: list[int] = []
    state = recipe.source.init(Scene(task))
    for number in range(4):
        for batch in recipe.source(feeding(task, None, Draw(0, (number,))), state):
            seen += batch.column("start").tolist()
        state = thaw_states(recipe.source.init(Scene(task)), freeze_states(state))
    assert seen == list(range(12))


# ---------------------------------------------------------------------------------------------------- seeds of items
def small_actor() -> Any:
    torch.manual_seed(3)
    task = catalogue.find_task("addition-1")
    return Policy(Transformer(width=16, layers=2, heads=2)).build(task.spec).double()


ACTOR, TASK = small_actor(), catalogue.find_task("addition-1")


def completions(starts: Sequence[int], samples: Sequence[int], seed: int = 0) -> list[tuple[list[int], list[float]]]:
    """Tokens and log-probabilities of each row."""
    arrays = np.asarray(starts, np.int64), np.asarray(samples, np.int64)
    played = TASK.play(ACTOR, *arrays, Draw(seed, (0,)), split=0, greedy=False)
    return [
        (played.action[row][played.mask[row]].tolist(), played.logp[row][played.mask[row]].tolist())
        for row in range(len(starts))
    ]


ALONE = {(start, sample): completions([start], [sample])[0] for start in range(5) for sample in range(3)}


Rows = list[tuple[int, int]]


@given(st.lists(st.sampled_from(sorted(ALONE)), min_size=1, max_size=12, unique=True))
def test_a_completion_belongs_to_its_start_and_sample_whatever_else_is_in_the_batch(rows: Rows) -> None:
    found = completions([start for start, _ in rows], [sample for _, sample in rows])
    assert found == [ALONE[row] for row in rows]


def test_samples_starts_and_seeds_differ_from_each_other() -> None:
    assert len({str(tokens) for tokens, _ in ALONE.values()}) > 10
    assert completions([0], [0], seed=1) != completions([0], [0], seed=0)


def test_equal_prompts_with_different_ordinals_get_different_completions() -> None:
    prompts = [item.prompt for item in TASK.items_of(np.arange(2000), 0)]
    first, second = next(
        (early, late) for late, prompt in enumerate(prompts) for early in [prompts.index(prompt)] if early != late
    )
    assert completions([first], [0])[0][0] != completions([second], [0])[0][0]


@pytest.mark.parametrize("task", ["bandit", "chain", "gridworld"])
def test_episodes_are_the_same_however_the_starts_are_split_into_batches(task: str) -> None:
    found = catalogue.find_task(task)
    loop = Loop(catalogue.recipe_for("rloo", found, {}), found, seed=0, num_steps=1)
    starts, samples = np.repeat(np.arange(6), 3), np.tile(np.arange(3), 6)

    def played(rows: slice) -> Experience:
        return found.play(loop.actor, starts[rows], samples[rows], Draw(0, (0,)), split=0, greedy=False)

    whole, parts = played(slice(None)), [played(slice(0, 7)), played(slice(7, 8)), played(slice(8, 18))]
    row = 0
    for part in parts:
        for index in range(len(part)):
            length = int(part.mask[index].sum())
            assert int(whole.mask[row].sum()) == length
            for name in ("action", "logp", "reward", "terminal", "truncated"):
                assert torch.equal(getattr(whole, name)[row, :length], getattr(part, name)[index, :length]), name
            row += 1


# ---------------------------------------------------------------------------------------------------- randomness
def trained(case: str, num_steps: int = 2, **changes: Any) -> dict[str, Any]:
    plan = replace(CASES[case](), **changes)
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps)
    for _ in range(num_steps):
        loop.step()
    return loop.snapshot()


SOME = ["ppo cartpole", "dqn cartpole", "sac pendulum", "grpo tokens", "ppo with a constraint"]


@pytest.mark.parametrize("case", SOME)
def test_a_run_is_a_function_of_its_seed_and_of_nothing_else(case: str) -> None:
    first = trained(case)
    torch.manual_seed(12345)
    np.random.seed(12345)  # noqa: NPY002 - the stream that a run must not use
    torch.rand(17)
    assert not store.difference(first, trained(case))
    assert store.difference(first, trained(case, seed=99))


@pytest.mark.parametrize("case", SOME)
def test_a_run_leaves_the_global_streams_alone(case: str) -> None:
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    trained(case)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.parametrize("case", SOME)
def test_a_snapshot_continues_bitwise(case: str) -> None:
    plan = CASES[case]()
    loop, other = (Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps) for _ in range(2))
    loop.step()
    other.restore(copied(loop.snapshot()))
    loop.step()
    other.step()
    assert not store.difference(loop.snapshot(), other.snapshot())


def copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: copied(item) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [copied(item) for item in tree]
    return tree.clone() if isinstance(tree, Tensor) else tree


def test_a_snapshot_of_another_seed_is_refused() -> None:
    plan = CASES["reinforce bandit"]()
    one, other = (Loop(plan.recipe, plan.task, seed=seed, num_steps=3) for seed in (1, 2))
    with pytest.raises(AssayError, match="has seed 1, this run has 2"):
        other.restore(one.snapshot())


def test_with_learning_rate_zero_the_weights_stay_bitwise_the_same() -> None:
    task = catalogue.find_task("bandit")
    loop = Loop(catalogue.recipe_for("grpo", task, {"learning_rate": 0.0}), task, seed=0, num_steps=50)
    before = loop.engine.flats["actor"].values.clone()
    assert [alarm for _ in range(50) for alarm in loop.step().alarms if alarm.stop] == []
    assert torch.equal(before, loop.engine.flats["actor"].values)


# ---------------------------------------------------------------------------------------------------- trees
class Live:
    """An object with a state of its own."""

    def __init__(self, value: int) -> None:
        self.value = value

    def snapshot(self) -> State:
        return {"value": self.value}

    def restore(self, state: State) -> None:
        self.value = state["value"]


def test_live_objects_are_put_away_as_their_snapshots_and_take_them_back() -> None:
    saved = freeze_states({"a": [Live(1), {"b": Live(2)}], "c": torch.ones(2), "d": (1, "x", None)})
    assert saved["a"] == [{"value": 1}, {"b": {"value": 2}}]
    assert saved["d"] == [1, "x", None]
    mine = {"a": [Live(0), {"b": Live(0)}], "c": torch.zeros(2), "d": (0, "", None)}
    first, second = mine["a"][0], mine["a"][1]["b"]
    back = thaw_states(mine, saved)
    assert (back["a"][0], back["a"][1]["b"]) == (first, second), "the same objects"
    assert (first.value, second.value) == (1, 2)
    assert torch.equal(back["c"], torch.ones(2))
    assert back["d"] == [1, "x", None]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )
)
def test_a_tree_of_plain_values_comes_back_as_it_was(tree: Any) -> None:
    assert thaw_states(tree, freeze_states(tree)) == freeze_states(tree)
    assert thaw_states({}, freeze_states({"x": tree})) == {"x": freeze_states(tree)}


# ---------------------------------------------------------------------------------------------------- the rest
def test_time_is_counted_by_phase() -> None:
    step = Step(Progress())
    for _ in range(2):
        with step.time_phase("sample"):
            pass
    assert list(step.seconds) == ["sample"]
    assert step.seconds["sample"] > 0


def test_metrics_are_sums_over_counts_and_the_effective_share_of_samples() -> None:
    ratios = torch.tensor([1.0, 1.0, 4.0])
    sums = {
        "ratio": [(ratios[:2].sum(), torch.tensor(2)), (ratios[2], torch.tensor(1))],
        "ratio_squared": [(ratios.square().sum(), torch.tensor(3.0))],
        "nothing": [(torch.tensor(0.0), torch.tensor(0.0))],
    }
    found = means([sums])
    assert found["ratio"] == 2.0
    assert found["nothing"] == 0.0
    assert found["effective_samples"] == pytest.approx(36.0 / (3 * 18.0))
    assert "ratio_squared" not in found


def test_schedules_move_with_the_loop() -> None:
    task = catalogue.find_task("bandit")
    recipe = catalogue.recipe_for("rloo", task, {}).set("learning_rate", Linear(0.0, 1.0))
    loop = Loop(recipe, task, seed=0, num_steps=4)
    before = loop.engine.flats["actor"].values.clone()
    loop.step()
    assert torch.equal(before, loop.engine.flats["actor"].values), "the rate begins at 0"
    loop.step()
    assert not torch.equal(before, loop.engine.flats["actor"].values)


def test_a_source_of_fresh_data_without_a_rollout_says_what_is_missing() -> None:
    task = catalogue.find_task("bandit")
    recipe = replace(catalogue.recipe_for("rloo", task, {}), rollout=None)
    with pytest.raises(AssayError, match="no rollout"):
        Loop(recipe, task, seed=0, num_steps=1).step()


@dataclass(frozen=True)
class Around(Optimizer):
    """An optimizer that is called with finite gradients only."""

    inner: Adam
    clip_norm = 0.0

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Steps the inner one."""
        self.inner.step(values, gradients, sums, state)


@pytest.mark.parametrize("is_steady", [True, False])
def test_an_update_without_any_decision_changes_nothing_but_the_count(is_steady: bool) -> None:
    """Momentum and weight decay alone would move the weights."""
    task = catalogue.find_task("bandit")
    loop = Loop(catalogue.recipe_for("grpo", task, {}), task, seed=0, num_steps=4)
    fresh = loop.step().fresh
    assert fresh is not None
    adam = Adam(learning_rate=0.1, weight_decay=0.1)
    stage = replace(loop.recipe.stages[0], optimizer=adam if is_steady else Around(adam))
    batch = loop.engine.annotate(fresh, loop.recipe.needs)
    empty = replace(batch, mask=torch.zeros_like(batch.mask))

    def state() -> list[torch.Tensor]:
        kept = loop.engine.optimizers[stage.name]
        return [one.clone() for one in (*loop.engine.pieces(stage), *kept["first"], *kept["second"], kept["steps"])]

    before, updates = state(), loop.engine.updates
    done = loop.engine.update(stage, empty)
    loop.engine.follow({})
    assert (done.fault, done.is_skipped) == ("", True)
    assert all(torch.equal(now, then) for now, then in zip(state(), before, strict=True))
    assert loop.engine.updates == updates + 1
    assert not loop.engine.update(stage, batch).is_skipped
    assert not any(torch.equal(now, then) for now, then in zip(state(), before, strict=True))
