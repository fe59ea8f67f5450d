"""Preset: chosen by the task's spec or its preset, never by which object a recipe was given."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import assay
from assay import recipes
from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.record import Progress
from assay.core.schedules import Delayed, Linear, Scaled, WarmUp, with_peak
from assay.core.spaces import Discrete, Image, Spec
from assay.engine.loop import Loop
from assay.models.bodies.by_data import StandardisedByData
from assay.models.bodies.convolution import Convolution
from assay.parts.fits.squared import Huber, Squared
from assay.recipes.presets import (
    CONTINUOUS,
    CONTROL,
    D4RL,
    GENERAL,
    GENERAL_CONTROL,
    LANGUAGE,
    MUJOCO,
    PREFERENCES,
    TABLE,
    Preset,
    on_images,
    preset_for,
    preset_for_spec,
    why_preset,
)
from assay.report.methods import method_facts
from assay.runs import catalogue
from assay.runs.plan import make_plan, plan_of, repeat_command

CLASSICS = (LANGUAGE, CONTROL, CONTINUOUS, TABLE, PREFERENCES)
NUMBERS = ("steps", "preset")


def same_parts(left: Any, right: Any) -> bool:
    """Whether two recipes differ in their budget at most; a phase has its steps beside its recipe."""
    return bool(without_budget(left) == without_budget(right))


def without_budget(recipe: Any) -> Any:
    """Returns the recipe with one step, and so the recipes of its phases."""
    before = tuple(replace(phase, recipe=without_budget(phase.recipe)) for phase in recipe.before)
    return replace(recipe, steps=1, before=before)


# ---------------------------------------------------------------------------------------------------- identity
@pytest.mark.parametrize("name", sorted(catalogue.methods()))
def test_changed_defaults_keep_their_meaning(name: str) -> None:
    method = catalogue.methods()[name]
    for defaults in method.presets:
        assert same_parts(method.recipe(replace(defaults, steps=10)), method.recipe(defaults))


def test_a_shorter_language_run_keeps_its_critics_of_tokens() -> None:
    recipe = catalogue.methods()["archer"].recipe
    assert recipe(replace(LANGUAGE, steps=10)).critics == recipe(LANGUAGE).critics


def test_a_shorter_discrete_run_keeps_its_action_values() -> None:
    assert recipes.cql(replace(CONTROL, steps=10)).actor == recipes.cql(CONTROL).actor
    assert recipes.cql(replace(CONTROL, steps=10)).actor != recipes.cql(CONTINUOUS).actor


def test_no_recipe_asks_which_object_its_defaults_are() -> None:
    names = "LANGUAGE|CONTROL|CONTINUOUS|TABLE|PREFERENCES|MUJOCO|D4RL"
    asks = re.compile(rf"\b(is|is not|==|!=) ({names})\b|\b(world|defaults) is\b|\b(world|defaults)\.(name|preset)\b")
    root = Path(assay.__file__).parent
    files = [*root.glob("recipes/*.py"), *root.glob("methods/**/*.py")]
    found = [f"{file.name}: {line}" for file in files for line in file.read_text().splitlines() if asks.search(line)]
    assert files
    assert found == []


# ---------------------------------------------------------------------------------------------------- choice
@pytest.mark.parametrize(
    ("task", "expected"),
    [("addition-1", LANGUAGE), ("cartpole", CONTROL), ("pendulum", CONTINUOUS), ("chain", TABLE)],
)
def test_the_spec_decides(task: str, expected: Preset) -> None:
    found = catalogue.find_task(task)
    assert preset_for_spec(found.spec) == expected
    assert preset_for(found) == expected


def test_every_classic_is_another_kind_and_the_presets_are_of_one() -> None:
    assert len({each.kind for each in CLASSICS}) == len(CLASSICS)
    assert MUJOCO.kind == D4RL.kind == CONTINUOUS.kind


def test_a_preset_is_taken_by_name_and_recorded() -> None:
    plan = make_plan("sac", "pendulum", preset="mujoco", steps=3)
    assert plan.recipe == recipes.sac(MUJOCO)
    assert plan.config()["preset"] == "mujoco"
    assert "--preset mujoco" in repeat_command(plan)
    classic = make_plan("sac", "pendulum", steps=3)
    assert classic.recipe == recipes.sac(CONTINUOUS)
    assert "preset" not in classic.config()
    assert "--preset" not in repeat_command(classic)


def test_a_preset_is_read_back_from_a_run_folder(tmp_path: Path) -> None:
    small = {"steps": 2, "out": tmp_path, "settings": {"source.updates": 1, "batch": 4, "warmup": 1}}
    assay.train("sac", "pendulum", preset="mujoco", evaluations=0, **small)
    assert plan_of(tmp_path).preset == "mujoco"
    assert plan_of(tmp_path).recipe.stages[0].optimizer == MUJOCO.off_policy.optimizer


@pytest.mark.parametrize(
    ("method", "task", "preset", "message"),
    [
        ("sac", "pendulum", "mjc", "there is no preset 'mjc'. Use classic, general, mujoco, d4rl"),
        ("ppo", "cartpole", "mujoco", "preset 'mujoco' is for continuous control; task 'cartpole' is control"),
        (recipes.sac(), "pendulum", "mujoco", "recipe 'sac' is complete"),
    ],
)
def test_a_preset_that_does_not_fit_is_refused(method: Any, task: str, preset: str, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        make_plan(method, task, preset=preset)


def test_environments_of_mujoco_have_its_preset_and_others_do_not() -> None:
    pytest.importorskip("mujoco", reason="the extra 'control' is not installed")
    found = catalogue.find_task("InvertedPendulum-v5")
    assert preset_for(found) == MUJOCO
    assert preset_for(found, "classic") == CONTINUOUS
    assert make_plan("ppo", "InvertedPendulum-v5").preset == "mujoco"
    assert preset_for(catalogue.find_task("Pendulum-v1")) == CONTINUOUS


def test_environments_that_nothing_was_tuned_on_have_the_general_preset() -> None:
    pytest.importorskip("gymnasium", reason="the extra 'control' is not installed")
    found, small = catalogue.find_task("Acrobot-v1"), catalogue.find_task("CartPole-v1")
    assert (preset_for(found), preset_for(small)) == (GENERAL_CONTROL, CONTROL)
    assert preset_for(catalogue.find_task("MountainCarContinuous-v0")) == GENERAL
    assert make_plan("ppo", "Acrobot-v1").preset == "general"
    assert "preset general: no numbers here were tuned" in why_preset(found)
    assert "preset classic" in why_preset(small)
    facts = method_facts("dqn", "Acrobot-v1")
    assert "general" in facts["preset"]
    assert facts["settings"]["stages.values.optimizer.learning_rate"] == 1e-4


def test_the_numbers_of_stable_baselines3() -> None:
    for preset in (GENERAL, GENERAL_CONTROL):
        ppo = recipes.ppo(preset)
        assert (ppo.rollout.num_envs * ppo.rollout.steps, ppo.source.epochs) == (2048, 10)  # type: ignore[union-attr]
        assert (preset.gae.discount, preset.gae.gae_lambda, preset.entropy) == (0.99, 0.95, 0.0)
        assert preset.optimizer.learning_rate == 3e-4
    sac, dqn = recipes.sac(GENERAL), recipes.dqn(GENERAL_CONTROL)
    assert [stage.optimizer.learning_rate for stage in sac.stages] == [3e-4, 3e-4]
    assert dqn.stages[0].optimizer == Adam(1e-4, clip_norm=10.0)
    gathered, replay = dqn.rollout.num_envs * dqn.rollout.steps, dqn.source  # type: ignore[union-attr]
    assert (replay.batch, gathered / replay.updates) == (32, 4), "an update for every four decisions"
    assert dqn.copies["target"].every * 4 == 10_000
    assert isinstance(dqn.stages[0].critic[0].fit, Huber)


def test_on_images_dqn_has_the_settings_for_images_and_on_vectors_those_of_cartpole() -> None:
    space = Image(4, 84, 84)
    for preset in (on_images(CONTROL, space), preset_for_spec(Spec(space, Discrete(3), 100))):
        dqn = recipes.dqn(preset)
        assert dqn.steps * dqn.rollout.num_envs * dqn.rollout.steps == pytest.approx(1e6, rel=0.01)  # type: ignore[union-attr]
        assert dqn.stages[0].optimizer.learning_rate == 1e-4
        assert (dqn.copies["target"].every, dqn.source.batch) == (1_000, 32)
        assert isinstance(dqn.stages[0].critic[0].fit, Huber)
        assert isinstance(dqn.actor.body, Convolution)  # type: ignore[attr-defined]
    plain = recipes.dqn(CONTROL)
    assert plain.copies["target"].every == 128
    assert isinstance(plain.stages[0].critic[0].fit, Squared)


def test_files_of_data_for_a_mujoco_task_take_the_preset_of_d4rl() -> None:
    from assay.runs.resolved import chosen_preset

    task = replace(catalogue.find_task("pendulum"), preset="mujoco")  # type: ignore[type-var]
    assert chosen_preset(task, has_data=False) == "mujoco"
    assert chosen_preset(task, has_data=True) == "d4rl"
    assert chosen_preset(catalogue.find_task("pendulum"), has_data=True) == "classic"


# ---------------------------------------------------------------------------------------------------- numbers
def test_the_published_numbers() -> None:
    ppo, sac, td3 = recipes.ppo(MUJOCO), recipes.sac(MUJOCO), recipes.td3(MUJOCO)
    assert ppo.steps * 2048 == pytest.approx(1e6, rel=0.01)
    assert (MUJOCO.gae.discount, MUJOCO.gae.gae_lambda) == (0.99, 0.95)
    assert MUJOCO.optimizer.learning_rate == 3e-4, "constant, as in table 3 of the paper"
    for recipe in (sac, td3):
        assert recipe.steps * 8 == 1_000_000
        assert [stage.optimizer for stage in recipe.stages] == [Adam(3e-4, clip_norm=0.0)] * 2
        assert recipe.source.warmup == 100  # type: ignore[attr-defined]
    for method in ("iql", "cql", "td3-bc"):
        recipe = catalogue.find_method(method)[1].recipe(D4RL)
        source: Any = recipe.source
        assert recipe.steps * source.updates == 1_000_000
        assert (source.batch, source.logs[0].reward_scale) == (256, 1.0)
        for one in (recipe.actor.body, recipe.critics["q"].body):
            assert isinstance(one, StandardisedByData) == (method == "td3-bc")
            body = one.body if isinstance(one, StandardisedByData) else one
            assert body.hidden == (256, 256)
            assert body.activation in (None, nn.ReLU), "None is ReLU for actors trained through critics"
    cql, iql = (catalogue.find_method(method)[1].recipe(D4RL) for method in ("cql", "iql"))
    assert cql.stages[0].critic[1].weight == 2.5, "5 in the authors' code, beside twice our error"
    assert [stage.optimizer.learning_rate for stage in cql.stages] == [3e-4, 1e-4]
    assert (iql.actor.body.activation, iql.critics["value"].body.activation) == (nn.ReLU, nn.ReLU)


@pytest.mark.parametrize("name", ["ppo", "sac", "td3", "a2c", "iql", "cql", "td3-bc", "dual-rl"])
@pytest.mark.parametrize("defaults", [MUJOCO, D4RL], ids=["mujoco", "d4rl"])
def test_a_preset_trains(name: str, defaults: Preset) -> None:
    recipe = catalogue.find_method(name)[1].recipe(defaults)
    small = {"source.updates": 2, "source.batch": 8, "rollout.steps": 64, "source.warmup": 8}
    for path, value in small.items():
        try:
            recipe = recipe.set(path, value)
        except AssayError:
            continue
    loop = Loop(recipe, catalogue.find_task("pendulum"), seed=0, num_steps=2)
    assert loop.step().alarms == []


# ---------------------------------------------------------------------------------------------------- schedules
class Wave:
    """A schedule that nobody knows: 0, 4, 0."""

    def at(self, progress: Progress) -> float:
        return 16.0 * progress.fraction * (1.0 - progress.fraction)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (3e-4, 5e-6),
        (0.0, 0.0),
        (Linear(4e-3, 0.0), Linear(5e-6, 0.0)),
        (Linear(1e-3, 4e-3, share=0.5), Linear(1.25e-6, 5e-6, share=0.5)),
        (Linear(0.0, 0.0), Linear(0.0, 0.0)),
        (WarmUp(1e-3, share=0.1), WarmUp(5e-6, share=0.1)),
        (Delayed(1e-4), Delayed(5e-6)),
        (Delayed(0.0), Delayed(0.0)),
        (Scaled(Delayed(1.0), 1e-3), Scaled(Scaled(Delayed(1.0), 1e-3), 5e-3)),
    ],
)
def test_a_schedule_keeps_its_shape_under_another_peak(schedule: Any, expected: Any) -> None:
    assert with_peak(schedule, 5e-6) == expected


def test_a_schedule_of_ones_own_is_scaled() -> None:
    wave: Any = Wave()
    made: Any = with_peak(wave, 5e-6)
    values = [made.at(Progress(step, 100)) for step in range(101)]
    assert max(values) == pytest.approx(5e-6)
    assert values == pytest.approx([wave.at(Progress(step, 100)) * 5e-6 / 4.0 for step in range(101)])
