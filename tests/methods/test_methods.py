"""Every method: builds in each of its worlds, describes itself, and its exact claims hold: a few steps in each of its
worlds are among them (`assay/claims/wiring.py`). With --all-cases two steps at a smaller size train in each world.
"""

from __future__ import annotations

import ast
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.claims.find import find_claims
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Scored
from assay.core.score_range import readers_of
from assay.core.settings import describe, settings
from assay.core.slots import Scene
from assay.engine import evaluation
from assay.engine.flat import weights_of
from assay.engine.loop import Loop
from assay.parts.sources.relabelled import Relabelled
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, TABLE
from assay.runs import catalogue
from assay.runs.checks import check_values
from tests.methods.batches import empty

METHODS = sorted(catalogue.methods())
TASK_OF_WORLD = {
    LANGUAGE.name: "addition-1",
    CONTROL.name: "cartpole",
    CONTINUOUS.name: "pendulum",
    TABLE.name: "bandit",
}
WITH_GOALS = {CONTROL.name: "four-rooms", CONTINUOUS.name: "pointmaze-umaze"}
"""Where the methods are tried whose source asks for goals to wander between."""
SMALL = {
    "rollout.num_starts": 4,
    "rollout.group_size": 3,
    "rollout.num_envs": 4,
    "rollout.steps": 8,
    "source.warmup": 8,
    "source.updates": 2,
    "source.batch": 8,
    "source.capacity": 256,
    "source.episodes": 1,
    "actor.width": 16,
    "actor.layers": 1,
    "actor.heads": 2,
}
"""Sizes for two quick steps; those that a recipe does not have are left out."""
EVERYWHERE = {
    "source.updates": 2,
    "source.batch": 8,
    "source.epochs": 2,
    "source.minibatches": 2,
    "replay.updates": 2,
    "replay.batch": 8,
    "log.episodes": 5,
    "Log.episodes": 5,
}
"""The most that sources of a recipe have, those of its stages too, by the end of the setting's name."""


def small_recipe(name: str, task: str):
    recipe = catalogue.recipe_for(name, catalogue.find_task(task), {})
    for path, value in SMALL.items():
        try:
            recipe = recipe.set(path, value)
        except AssayError:
            continue
    for path, value in settings(recipe).items():
        most = EVERYWHERE.get(".".join(path[-2:]))
        if most is not None and value > most and path[0] != "before":
            recipe = recipe.set(".".join(path), most)
    return recipe


def task_for(name: str, world: str) -> str:
    """A small task of the world, or the method's own if one of its parts refuses that one."""
    recipe, address = small_recipe(name, TASK_OF_WORLD[world]), TASK_OF_WORLD[world]
    if isinstance(recipe.source, Relabelled):
        return WITH_GOALS[world]
    scene = Scene(catalogue.find_task(address))
    parts = (*recipe.rewards, *recipe.credit, recipe.rollout, recipe.source, recipe.curriculum)
    try:
        _ = [part.init(scene) for part in parts if part is not None]
    except AssayError:
        return catalogue.methods()[name].default_task
    return address


def worlds_of(name: str) -> list[str]:
    """The worlds to train a method in; a method of preference pairs alone has none. Where outcomes are read as right or
    wrong, returns outside of 0 to 1 are refused, which `tests/runs/test_reward_range.py` tries.
    """
    method = catalogue.methods()[name]
    returns = (CONTROL.name, CONTINUOUS.name)
    return [
        world.name
        for world in method.presets
        if world.name in TASK_OF_WORLD and not (world.name in returns and readers_of(method.recipe(world)))
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case a world of each method."""
    if {"name", "world"} <= set(metafunc.fixturenames):
        everywhere = metafunc.config.getoption("--all-cases")
        cases = [(name, world) for name in METHODS for world in worlds_of(name)] if everywhere else []
        metafunc.parametrize(("name", "world"), cases)


@pytest.mark.parametrize("name", METHODS)
def test_builds_in_each_of_its_worlds(name: str) -> None:
    method = catalogue.methods()[name]
    for world in method.presets:
        recipe = method.recipe(world)
        recipe.check()
        assert recipe.name == name


@pytest.mark.all_cases
def test_two_steps_train_and_no_guard_stops_them(name: str, world: str) -> None:
    address = task_for(name, world)
    task = catalogue.find_task(address)
    loop = Loop(small_recipe(name, address), task, seed=1, num_steps=2)
    before = weights_of(loop.actor)
    alarms = [alarm for _ in range(2) for alarm in loop.step().alarms]
    assert not [alarm for alarm in alarms if alarm.stop]
    after = weights_of(loop.actor)
    assert all(torch.isfinite(tensor).all() for tensor in after.values())
    stages = any("actor" in stage.trains for stage in loop.recipe.stages)  # a policy may be made by phases alone
    trained = stages and loop.engine.updates > 0 and world != "table"
    if trained and world != "language":  # an untrained transformer may find no right answer, hence nothing to learn
        assert any(not torch.equal(before[name], tensor) for name, tensor in after.items())


@pytest.mark.parametrize("name", METHODS)
def test_describes_itself(name: str) -> None:
    method = catalogue.methods()[name]
    recipe = method.recipe(method.presets[0])
    text = catalogue.method_text(name)
    assert recipe.name == name
    assert text.startswith(f"{name}: ")
    assert len(text.splitlines()[0]) <= 120
    assert " = " in text or " <- " in text or "loss" in text
    assert json.loads(json.dumps(describe(recipe)))["part"] == "Recipe"
    assert settings(recipe)
    assert catalogue.find_task(method.default_task)


EXACT = {f"{name}: {claim.name}": claim for name in METHODS for claim in find_claims(name).exact}


@pytest.mark.parametrize("claim", EXACT)
def test_exact_claim_holds(claim: str) -> None:
    finding = EXACT[claim].run()
    assert finding.holds, f"{finding.claim}: {finding.value}, expected {finding.expected}"


@pytest.mark.parametrize("name", METHODS)
def test_recipes_of_measured_claims_can_work(name: str) -> None:
    for claim in find_claims(name).measured:
        for side in (claim.ours, claim.theirs):
            if isinstance(side, Recipe):
                side.check()
                check_values(side)


def test_every_method_states_an_exact_claim() -> None:
    assert [name for name in METHODS if not find_claims(name).exact] == []


def test_recipes_beside_the_claims_have_names_of_their_own() -> None:
    """`assay check FILE.py` finds recipes by their names; in a collection they would escape the laws."""
    modules = {name: import_module(method.recipe.__module__) for name, method in catalogue.methods().items()}
    hidden = [
        f"{name}: {key}"
        for name, module in modules.items()
        for key, value in vars(module).items()
        if isinstance(value, tuple | list | dict) and holds_recipe(value)
    ]
    assert hidden == []


def holds_recipe(value: Any) -> bool:
    """Returns whether a recipe is in a collection."""
    return any(isinstance(one, Recipe) for one in (value.values() if isinstance(value, dict) else value))


def test_bodies_of_base_recipes_are_short() -> None:
    for path in Path(recipes.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                body = node.end_lineno - node.body[0].end_lineno
                assert body <= 26, f"{path.name}: {node.name} has {body} lines of body"


TOKEN_OBJECTIVES = ["rec", "nft", "clip-cov", "rover"]
POLICY_GRADIENTS = ["reinforce", "rloo", "grpo", "dr_grpo", "dapo", "cispo", "ppo", "a2c", "dpo", *TOKEN_OBJECTIVES]


@pytest.mark.parametrize("name", POLICY_GRADIENTS)
def test_finds_the_best_arm_of_a_bandit(name: str) -> None:
    task = catalogue.find_task("bandit")
    loop = Loop(catalogue.recipe_for(name, task, {}), task, seed=0, num_steps=20)
    for _ in range(20):
        loop.step()
    probability = loop.actor.body.table.detach().softmax(-1)[0, -1]
    assert float(probability) > 0.8


@pytest.mark.parametrize("key", TOKEN_OBJECTIVES)
def test_an_empty_mask_gives_no_step(key: str) -> None:
    recipe = catalogue.methods()[key].recipe(LANGUAGE)
    batch = recipe.credit[0](empty())
    for part in recipe.credit[1:]:
        batch = part(batch)
    term = recipe.stages[0].objective[0]
    batch = batch.add({"uniform_logp_old": torch.zeros_like(batch.logp)})
    logits = torch.zeros(*batch.mask.shape, 7, dtype=torch.float64)
    loss = term(batch, probes.tensors.TensorView(Scored(batch.logp, logits=logits, uniform=batch.logp), {}))
    assert float(loss.sum) == 0.0
    assert int(loss.count) == 0


@pytest.mark.parametrize("key", TOKEN_OBJECTIVES)
def test_the_same_parts_serve_tokens_and_control(key: str) -> None:
    recipe = catalogue.methods()[key].recipe
    tokens, control = ([type(term) for term in recipe(world).stages[0].terms] for world in (LANGUAGE, CONTROL))
    assert tokens == control


def test_a_wrong_law_would_be_seen() -> None:
    """The best-arm test can fail: with learning rate 0 nothing is learnt."""
    task = catalogue.find_task("bandit")
    loop = Loop(catalogue.recipe_for("rloo", task, {"learning_rate": 0.0}), task, seed=0, num_steps=20)
    for _ in range(20):
        loop.step()
    assert float(loop.actor.body.table.detach().softmax(-1)[0, -1]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("name", "steps", "target"), [("ppo", 15, 100.0), ("bc", 8, 250.0)])
def test_learns_to_balance_a_pole(name: str, steps: int, target: float) -> None:
    """Two of three seeds reach the target, about 20 before training; the third runs only where it decides."""
    task = catalogue.find_task("cartpole")
    scores: list[float] = []
    for seed in range(3):
        loop = Loop(catalogue.recipe_for(name, task, {}), task, seed=seed, num_steps=steps)
        for _ in range(steps):
            loop.step()
        scores.append(float(evaluation.scores(loop.actor, task, num=10).mean()))
        if sum(score > target for score in scores) == 2:
            return
    pytest.fail(f"held-out returns {scores}: at least two must be above {target}")
