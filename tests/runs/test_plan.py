"""Plans and recipes: defaults, settings by name, what is refused, and fingerprints that name a run's numbers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import assay
from assay import recipes
from assay.cli import main as cli
from assay.cli.options import plan_arguments
from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Experience, Progress, State
from assay.core.schedules import Linear, WarmUp
from assay.core.settings import describe, find_setting, settings
from assay.core.slots import Reward, Scene
from assay.engine.placement import Placement
from assay.parts.constraints.multiplier import Ascent, Multiplier
from assay.parts.credit.temporal import Gae, Whiten
from assay.parts.regularizers.divergence import EntropyBonus
from assay.parts.rollouts.explore import EpsilonGreedy
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, PREFERENCES, TABLE
from assay.runs import catalogue
from assay.runs.config import as_json, differing, read_config
from assay.runs.options import run_options
from assay.runs.phase_plans import phase_plan, phases_of
from assay.runs.plan import Plan, make_plan, plan_of, repeat_command

TASKS = {
    LANGUAGE.name: "addition-1",
    CONTROL.name: "cartpole",
    CONTINUOUS.name: "pendulum",
    TABLE.name: "chain",
}
SOURCED = {"dump": "sorting-3-to-8"}
"""Methods that choose between the sources of a task."""
PAIRS = [
    (name, SOURCED.get(name, TASKS[world.name]))
    for name, method in sorted(catalogue.methods().items())
    for world in method.presets
    if world is not PREFERENCES
]


# ---------------------------------------------------------------------------------------------------- defaults
@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_every_method_has_a_plan_in_each_of_its_worlds(name: str, task: str) -> None:
    plan = make_plan(name, task)
    assert (plan.method, plan.address, plan.seed) == (name, task, 0)
    assert plan.steps == plan.recipe.steps > 0
    assert plan.evaluate_every == 0 or max(1, plan.steps // 10) <= plan.evaluate_every < plan.steps
    assert plan.save_every == 0
    assert json.loads(json.dumps(plan.config()))["recipe"]["part"] == "Recipe"


@pytest.mark.parametrize(
    ("name", "task", "warmup"),
    [
        ("grpo", "addition-1", LANGUAGE.warmup),
        ("dpo", "addition-1", LANGUAGE.warmup),
        ("sft", "addition-1", 0),
        ("grpo", "cartpole", 0),
        ("ppo", "chain", 0),
    ],
)
def test_only_token_methods_that_sample_are_warmed_up(name: str, task: str, warmup: int) -> None:
    assert make_plan(name, task).warmup == warmup
    assert make_plan(name, task, warmup=7).warmup == 7


def test_the_warm_up_trains_the_same_actor_on_demonstrations() -> None:
    plan = make_plan("grpo", "addition-1", seed=5, settings={"actor.width": 32}, warmup=40)
    (phase,) = phases_of(plan)
    warm = phase_plan(plan, phase, None)
    assert (warm.method, warm.steps, warm.seed, warm.warmup) == ("sft", 40, 5, 0)
    assert warm.recipe.actor == plan.recipe.actor
    assert warm.config()["fingerprint"] != plan.config()["fingerprint"]


@pytest.mark.parametrize(("steps", "evaluations", "every"), [(100, 10, 10), (7, 10, 1), (10, 3, 3), (50, 0, 0)])
def test_evaluations_are_spread_over_the_run(steps: int, evaluations: int, every: int) -> None:
    assert make_plan("ppo", "cartpole", steps=steps, evaluations=evaluations).evaluate_every == every


@pytest.mark.parametrize("changes", [{"steps": 0}, {"steps": -1}, {"warmup": -1}, {"evaluations": -1}])
def test_numbers_that_make_no_run_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(AssayError, match=next(iter(changes))):
        make_plan("ppo", "cartpole", **changes)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: make_plan("grpo", "bandit", settings=["steps=1"]), "settings is .*Use a dict"),  # type: ignore[arg-type]
        (lambda: make_plan("grpo", "bandit", settings={1: 2}), "settings is .*Use a dict"),  # type: ignore[dict-item]
        (lambda: make_plan("grpo", "bandit", placement="cpu"), "placement is 'cpu'.*Use a Placement"),  # type: ignore[arg-type]
        (lambda: make_plan("grpo", "addition-1", model=3), "model is 3. Use the folder"),  # type: ignore[arg-type]
        (lambda: make_plan("grpo", "x" * 10_000), "task 'xxx.* has 10,000 characters"),
        (lambda: assay.train("grpo", "bandit", out=3), "out is 3. Use a text or a Path or None"),  # type: ignore[arg-type]
        (lambda: assay.resume(None), "folder is None. Use a path"),  # type: ignore[arg-type]
        (lambda: assay.resume(None, trust_code=True), "folder is None. Use a path"),  # type: ignore[arg-type]
        (lambda: assay.load(3), "folder is 3. Use a path"),  # type: ignore[arg-type]
        (lambda: assay.evaluate(None), "run is None. Use a path"),  # type: ignore[arg-type]
        (lambda: assay.compare(None, "bandit"), "methods is None. Give a list"),  # type: ignore[arg-type]
        (lambda: run_options({"tool": [1]}), "--tool is .*Use a list of texts"),
    ],
)
def test_arguments_of_another_type_are_refused_in_one_sentence(call: Any, why: str) -> None:
    with pytest.raises(AssayError, match=why):
        call()


def test_a_recipe_of_ones_own_takes_settings_too() -> None:
    plan = make_plan(recipes.ppo(CONTROL), "cartpole", settings={"rollout.num_envs": 3})
    assert plan.method is None
    assert plan.recipe.rollout.num_envs == 3


# ---------------------------------------------------------------------------------------------------- fingerprints
SCRIPT = """
import json, sys
from assay.runs.plan import make_plan
print(json.dumps([make_plan(name, task).config()["fingerprint"] for name, task in json.loads(sys.argv[1])]))
"""


def test_the_same_plan_has_the_same_fingerprint_in_every_process() -> None:
    here = [make_plan(name, task).config()["fingerprint"] for name, task in PAIRS]
    assert len(set(here)) == len(here), "and no two plans share one"
    command = [sys.executable, "-c", SCRIPT, json.dumps(PAIRS)]
    environment = os.environ | {"PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "2"}
    there = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
    assert json.loads(there.stdout) == here


BASE: dict[str, Any] = {"steps": 20, "seed": 1, "settings": {"rollout.num_envs": 4}, "warmup": 0, "evaluations": 5}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 21},
        {"seed": 2},
        {"settings": {"rollout.num_envs": 5}},
        {"settings": {}},
        {"settings": {"rollout.num_envs": 4, "policy.learning_rate": 0.001}},
        {"warmup": 3},
        {"evaluations": 4},
        {"placement": Placement(micro_batch=8)},
        {"placement": Placement(tokens=500)},
        {"placement": Placement(precision=torch.bfloat16)},
    ],
    ids=str,
)
def test_whatever_decides_the_numbers_changes_the_fingerprint(change: dict[str, Any]) -> None:
    before, after = (make_plan("ppo", "cartpole", **BASE | extra).config() for extra in ({}, change))
    assert before["fingerprint"] != after["fingerprint"]


def test_how_often_is_saved_does_not_change_the_fingerprint() -> None:
    plan = make_plan("ppo", "cartpole", **BASE)
    assert replace(plan, save_every=17).config()["fingerprint"] == plan.config()["fingerprint"]


def numbers(recipe: Recipe) -> list[tuple[str, ...]]:
    found = settings(recipe).items()
    return [path for path, value in found if isinstance(value, float) and not isinstance(value, bool)]


@given(data=st.data())
def test_changing_any_number_of_a_recipe_changes_the_fingerprint(data: st.DataObject) -> None:
    name, task = data.draw(st.sampled_from(PAIRS))
    plan = make_plan(name, task)
    path = data.draw(st.sampled_from(numbers(plan.recipe)))
    value = data.draw(st.floats(0.01, 0.99))
    other = replace(plan, recipe=plan.recipe.set(".".join(path), value))
    same = settings(other.recipe)[path] == settings(plan.recipe)[path]
    assert (other.config()["fingerprint"] == plan.config()["fingerprint"]) == same


def test_arrays_of_a_task_are_in_the_fingerprint() -> None:
    prints = {make_plan("ppo", task).config()["fingerprint"] for task in ("chain", "gridworld", "cliff")}
    assert len(prints) == 3
    one = torch.arange(6.0)
    assert as_json(one) != as_json(one + 1e-7)
    assert as_json(one) != as_json(one.double())
    assert as_json(one) != as_json(one.view(2, 3))
    assert as_json({"a": [one.numpy()]}) == {"a": [as_json(one)]}
    assert as_json(np.asfortranarray(one.view(2, 3).numpy())) == as_json(one.view(2, 3))


# ---------------------------------------------------------------------------------------------------- there and back
VALUES: dict[str, list[dict[str, Any]]] = {
    "ppo": [{}, {"rollout.num_envs": 4, "Gae.gae_lambda": 0.9, "Whiten.centre": False, "policy.learning_rate": "1e-3"}],
    "dqn": [{"actor.hidden": (32, 16), "epsilon.end": 0.1, "optimizer.betas": (0.8, 0.99)}, {"actor.hidden": "32,16"}],
    "grpo": [{"trust.high": 0.3, "actor.width": 32.0}],
}


@pytest.mark.parametrize("name", VALUES)
def test_a_plan_is_the_same_when_read_back_from_its_folder(tmp_path: Path, name: str) -> None:
    for number, changes in enumerate(VALUES[name]):
        task = catalogue.methods()[name].default_task
        plan = replace(make_plan(name, task, steps=30, seed=4, settings=changes, warmup=2), save_every=7)
        folder = tmp_path / str(number)
        store.write_json(folder / "config.json", plan.config() | {"machine": {}})
        again = plan_of(folder)
        assert again.config() == plan.config()
        assert again.recipe == plan.recipe


@pytest.mark.parametrize(("name", "task"), [("grpo", "addition-1"), ("ppo", "cartpole"), ("dqn", "cartpole")])
def test_the_command_that_repeats_a_plan_makes_the_same_plan(name: str, task: str) -> None:
    changes = {"dqn": {"actor.hidden": (8, 8)}, "ppo": {"rollout.steps": 5}}.get(name, {})
    placement = Placement(micro_batch=16, tokens=900, recompute=True, compiled=True, shards=4, ranks=2)
    plan = make_plan(name, task, steps=30, seed=4, settings=changes, warmup=3, placement=placement)
    words = shlex.split(repeat_command(plan))
    options = cli.parser().parse_args(words[1:])
    again = make_plan(options.name, options.task, seed=options.seed, **plan_arguments(options))
    assert again.config() == plan.config() | {"settings": again.config()["settings"]} | {
        "fingerprint": again.config()["fingerprint"]
    }
    assert again.recipe == plan.recipe
    assert again.config()["fingerprint"] == plan.config()["fingerprint"]


def test_a_recipe_that_only_python_knows_has_no_command() -> None:
    assert repeat_command(make_plan(recipes.ppo(CONTROL), "cartpole")) == ""


def test_what_differs_from_a_folder_is_named(tmp_path: Path) -> None:
    plan = make_plan("ppo", "cartpole", steps=30)
    store.write_json(tmp_path / "config.json", plan.config())
    assert differing(tmp_path, plan.config()) == "its config.json was edited"
    other = make_plan("ppo", "cartpole", steps=31, seed=3, settings={"rollout.steps": 9}, warmup=1)
    assert differing(tmp_path, other.config()) == "different: seed, steps, settings.rollout.steps and 2 more"


def test_a_config_needs_every_field_that_decides(tmp_path: Path) -> None:
    config = make_plan("ppo", "cartpole").config()
    for name in ("method", "task", "steps", "seed", "settings", "precision", "save_every"):
        store.write_json(tmp_path / "config.json", {key: value for key, value in config.items() if key != name})
        with pytest.raises(AssayError, match=name):
            read_config(tmp_path / "config.json")


@pytest.mark.parametrize(("name", "value"), [("tokens", "900"), ("shards", True), ("ranks", 1.0), ("compiled", None)])
def test_a_placement_that_no_run_writes_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    store.write_json(tmp_path / "config.json", make_plan("ppo", "cartpole").config() | {name: value})
    with pytest.raises(AssayError, match=f"--{name} is {value!r}"):
        plan_of(tmp_path)


# ---------------------------------------------------------------------------------------------------- settings by name
def ppo(**changes: Any) -> Recipe:
    return replace(recipes.ppo(CONTROL), **changes)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("rollout.num_envs", "16", 16),
        ("num_envs", "16", 16),
        ("rollout.num_envs", 16.0, 16),
        ("rollout.num_envs", "1e2", 100),
        ("Gae.gae_lambda", "0.9", 0.9),
        ("Gae.gae_lambda", 1, 1.0),
        ("credit.gae_lambda", ".5", 0.5),
        ("stages.policy.optimizer.learning_rate", "1e-3", 1e-3),
        ("policy.learning_rate", "1e-3", 1e-3),
        ("Whiten.centre", "no", False),
        ("Whiten.centre", "True", True),
        ("Whiten.centre", False, False),
        ("actor.hidden", "32, 16", (32, 16)),
        ("actor.hidden", "(32,16)", (32, 16)),
        ("actor.hidden", (8,), (8,)),
        ("policy.betas", "0.8,0.99", (0.8, 0.99)),
    ],
)
def test_a_setting_is_found_by_any_end_of_its_path_and_takes_its_own_type(path: str, value: Any, expected: Any) -> None:
    changed, where = ppo().set(path, value), find_setting(ppo(), path)
    assert settings(changed)[where] == expected
    assert type(settings(changed)[where]) is type(expected)
    assert {full for full, now in settings(changed).items() if now != settings(ppo())[full]} <= {where}
    assert changed.set(path, value) == changed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("learning_rate", 1, "ambiguous.*stages.policy.optimizer.learning_rate, stages.value.optimizer.learning_rate"),
        ("rollout.num_envs", "many", "rollout.num_envs is 128"),
        ("rollout.num_envs", "1.5", "rollout.num_envs"),
        ("rollout.num_envs", True, "rollout.num_envs"),
        ("Whiten.centre", "maybe", "centre"),
        ("actor.hidden", "a,b", "hidden"),
        ("rollout.explore", "noise", "is a part"),
        ("rollout.num_env", 3, "Did you mean 'rollout.num_envs'"),
        ("zzz", 3, "has no setting 'zzz'"),
        ("", 3, "no setting ''"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_the_reason(path: str, value: Any, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        ppo().set(path, value)


def test_setting_leaves_the_recipe_as_it_was() -> None:
    recipe = ppo()
    before = describe(recipe)
    recipe.set("rollout.num_envs", 3)
    assert describe(recipe) == before
    assert recipe == ppo()


@given(st.sampled_from(PAIRS))
def test_every_setting_can_be_set_to_what_it_is_by_its_full_path(pair: tuple[str, str]) -> None:
    recipe = catalogue.recipe_for(pair[0], catalogue.find_task(pair[1]), {})
    for path, value in settings(recipe).items():
        if len(path) > 1:
            assert recipe.set(".".join(path), value) == recipe


def test_a_name_with_dots_of_its_own_can_be_set() -> None:
    recipe = catalogue.recipe_for("dph-rl", catalogue.find_task("addition"), {})
    path = next(path for path in settings(recipe) if any("." in word for word in path))
    assert recipe.set(".".join(path), settings(recipe)[path]) == recipe


@pytest.mark.parametrize("path", ["name", "steps"])
def test_a_full_path_is_never_ambiguous(path: str) -> None:
    assert ppo().set(path, settings(ppo())[(path,)]) == ppo()


# ---------------------------------------------------------------------------------------------------- schedules
def test_a_schedule_stands_where_a_number_stands() -> None:
    recipe = ppo().set("EntropyBonus.coefficient", Linear(1.0, 0.0))
    half = recipe.at(Progress(step=5, num_steps=10))
    assert settings(half)[("stages", "policy", "regularizers", "EntropyBonus", "coefficient")] == 0.5
    assert recipe.at(Progress(step=99, num_steps=10)).stages[0].regularizers[0].coefficient == 0.0
    assert ppo().at(Progress()) is not recipe


def test_without_a_schedule_the_recipe_is_itself() -> None:
    recipe = recipes.grpo()
    assert recipe.at(Progress(step=3, num_steps=9)) is recipe


def test_schedules_deep_in_a_recipe_are_resolved() -> None:
    recipe = recipes.dqn(CONTROL)
    values = [recipe.at(Progress(step=n, num_steps=10)).rollout.explore.epsilon for n in (0, 3, 10)]
    assert values == pytest.approx([1.0, 0.04, 0.04])
    warmed = recipe.set("values.learning_rate", WarmUp(0.1, share=0.5))
    rates = [warmed.at(Progress(step=n, num_steps=10)).stages[0].optimizer.learning_rate for n in (0, 1, 4, 9)]
    assert rates == pytest.approx([0.02, 0.04, 0.1, 0.1])


def test_a_schedule_in_python_can_be_replaced_by_a_number() -> None:
    recipe = recipes.dqn(CONTROL)
    plain = replace(recipe, rollout=replace(recipe.rollout, explore=EpsilonGreedy(0.1)))
    assert plain.set("explore.epsilon", "0.2").rollout.explore.epsilon == 0.2


def test_two_parts_of_one_class_keep_their_own_schedules() -> None:
    stage = replace(ppo().stages[0], regularizers=(EntropyBonus(Linear(1.0, 1.0)), EntropyBonus(Linear(2.0, 2.0))))
    now = replace(ppo(), stages=(stage,)).at(Progress())
    assert [part.coefficient for part in now.stages[0].regularizers] == [1.0, 2.0]
    second = replace(ppo(), stages=(stage,)).set("EntropyBonus-2.coefficient", 3.0).stages[0].regularizers
    assert second == (stage.regularizers[0], EntropyBonus(3.0))


# ---------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (ppo(critics={}, stages=ppo().stages[:1]), "needs state values"),
        (ppo(critics={}), "trains 'value', which is not a model"),
        (replace(recipes.dpo(LANGUAGE), copies={}), "reference"),
        (ppo(credit=(Gae(discount=1.5), Whiten())), "credit.Gae.discount is 1.5. It must be between 0 and 1"),
        (ppo(stages=(replace(ppo().stages[0], trains=()),)), "stage 'policy' has no model or no loss"),
        (ppo(stages=(replace(ppo().stages[0], trains=("nobody",)),)), "'nobody', which is not a model"),
        (replace(recipes.rloo(TABLE), rollout=replace(recipes.rloo(TABLE).rollout, group_size=1)), "LeaveOneOut"),
        (replace(recipes.dapo(TABLE), rollout=replace(recipes.dapo(TABLE).rollout, group_size=1)), "at least 2"),
    ],
)
def test_a_recipe_that_cannot_learn_is_refused(recipe: Recipe, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        make_plan(recipe, "cartpole" if recipe.name == "ppo" else "bandit")


@dataclass(frozen=True)
class OddNames(Reward):
    """A part whose settings have the names of others and a meaning of their own."""

    rate: float = 7.0
    scale: float = -3.0
    epsilon: float = 0.0
    steps: int = -1
    high: float = float("inf")

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        return experience


def test_parts_of_ones_own_may_use_any_name() -> None:
    recipe = ppo(constraints=(Multiplier(-5.0, Ascent(50.0)),), rewards=(OddNames(),))
    assert isinstance(make_plan(recipe, "cartpole"), Plan)


def test_a_single_sample_each_is_fine_where_nothing_is_compared_in_groups() -> None:
    assert make_plan("reinforce", "bandit", settings={"group_size": 1}).recipe.rollout.group_size == 1
    assert make_plan("ppo", "addition-1", settings={"group_size": 1}).recipe.rollout.group_size == 1
