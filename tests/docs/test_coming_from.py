"""Pages for users of other libraries: their defaults are those of the installed packages, ours those of the recipes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from assay import probes, recipes
from assay.core.recipe import Recipe
from assay.core.settings import find_setting, read
from assay.recipes.presets import CONTROL, MUJOCO
from assay.runs.catalogue import PRETRAINED_RATE
from tests.docs.blocks import ROOT, Block, blocks_of, python_of
from tests.peers import test_trl as peer
from tests.peers.gaps import LARGEST_GAP, gap

TRL, SB3, VERL = (f"docs/coming_from_{name}.md" for name in ("trl", "stable_baselines3", "verl"))
RECIPES = {TRL: recipes.grpo(), SB3: recipes.ppo(CONTROL), VERL: recipes.grpo()}
HEADING = "## Settings and defaults"
RATE = "with a model, constant"
NO_PEERS = "the extra 'peers' is not installed"


def rows(page: str) -> list[list[str]]:
    """Returns the cells of the table of settings: theirs, their default, ours, our default."""
    text = (ROOT / page).read_text().split(HEADING)[1].split("\n## ")[0]
    table = [line for line in text.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in table]
    assert cells
    assert all(len(row) == 4 for row in cells)
    return cells


def coded(cell: str) -> str:
    """Returns the words in code with which a cell begins, or ""."""
    found = re.match(r"`([^`]*)`", cell)
    return found[1] if found else ""


def told(page: str, side: int) -> dict[str, Any]:
    """Returns the settings in a column of the table, and the defaults in the next column."""
    found = {coded(row[side]): coded(row[side + 1]) for row in rows(page)}
    return {name: ast.literal_eval(text) for name, text in found.items() if name and text}


def setting(recipe: Recipe, path: str) -> Any:
    """Returns the value of a setting."""
    return read(recipe, find_setting(recipe, path))


def block_with(page: str, words: str) -> Block:
    """Returns the one block of Python of a page that has these words."""
    (found,) = [block for block in python_of(ROOT / page) if words in block.text]
    return found


def run_block(block: Block, changed: dict[str, str] | None = None) -> dict[str, Any]:
    """Returns the names that a block defines, after some of its words were replaced."""
    text, module = block.text, ModuleType("block")
    for old, new in (changed or {}).items():
        assert old in text
        text = text.replace(old, new)
    exec(compile(text, f"{block.page}:{block.line}", "exec", dont_inherit=True), vars(module))
    return vars(module)


# ---------------------------------------------------------------------------------------------------- defaults
@pytest.mark.parametrize("page", RECIPES)
def test_our_defaults_are_those_of_the_recipe(page: str) -> None:
    ours = {path: value for path, value in told(page, 2).items() if "." in path}
    assert len(ours) >= 6
    assert ours == {path: setting(RECIPES[page], path) for path in ours}
    rates = [ast.literal_eval(coded(row[3])) for row in rows(page) if row[2] == RATE]
    assert rates == ([] if page == SB3 else [PRETRAINED_RATE])


@pytest.mark.filterwarnings("ignore")
def test_defaults_of_trl_are_those_of_the_package() -> None:
    trl = pytest.importorskip("trl", minversion="1.16", reason=NO_PEERS)
    known = {field.name: field.default for field in dataclasses.fields(trl.GRPOConfig)}
    theirs = told(TRL, 0)
    assert len(theirs) >= 10
    assert theirs == {name: getattr(known[name], "value", known[name]) for name in theirs}


@pytest.mark.filterwarnings("ignore")
def test_defaults_of_stable_baselines3_are_those_of_the_package() -> None:
    sb3 = pytest.importorskip("stable_baselines3", reason=NO_PEERS)
    known = {name: one.default for name, one in inspect.signature(sb3.PPO.__init__).parameters.items()}
    theirs = told(SB3, 0)
    assert len(theirs) >= 10
    assert theirs == {name: known[name] for name in theirs}


def test_their_settings_of_ppo_are_our_preset_for_mujoco_and_the_command_on_the_page() -> None:
    theirs, preset = told(SB3, 0), recipes.ppo(MUJOCO)
    same = {
        "rollout.steps": "n_steps", "source.epochs": "n_epochs", "policy.learning_rate": "learning_rate",
        "discount": "gamma", "gae_lambda": "gae_lambda", "trust.low": "clip_range", "policy.clip_norm": "max_grad_norm",
        "EntropyBonus.coefficient": "ent_coef",
    }  # fmt: skip
    assert {path: setting(preset, path) for path in same} == {path: theirs[name] for path, name in same.items()}
    assert setting(preset, "source.minibatches") == theirs["n_steps"] // theirs["batch_size"]
    assert setting(preset, "rollout.num_envs") == 1
    commands = [command for block in blocks_of(ROOT / SB3) for command in block.commands()]
    (command,) = [command for command in commands if "source.epochs" in command]
    words, recipe = shlex.split(command), RECIPES[SB3]
    for path, value in [word.split("=") for before, word in zip(words, words[1:], strict=False) if before == "--set"]:
        recipe = recipe.set(path, value)
    assert (recipe.rollout, recipe.source, recipe.credit) == (preset.rollout, preset.source, preset.credit)
    assert recipe.stages == preset.stages


# ---------------------------------------------------------------------------------------------------- scripts
@pytest.mark.filterwarnings("ignore")
def test_the_script_for_trl_calls_it_with_arguments_that_it_has() -> None:
    trl = pytest.importorskip("trl", minversion="1.16", reason=NO_PEERS)
    calls = [node for node in ast.walk(ast.parse(block_with(TRL, "GRPOTrainer(").text)) if isinstance(node, ast.Call)]
    given = {node.func.id: node.keywords for node in calls if isinstance(node.func, ast.Name)}
    for name in ("GRPOConfig", "GRPOTrainer"):
        assert {one.arg for one in given[name]} <= set(inspect.signature(getattr(trl, name)).parameters)


@pytest.mark.filterwarnings("ignore")
def test_the_script_for_stable_baselines3_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stable_baselines3", reason=NO_PEERS)
    monkeypatch.chdir(tmp_path)
    block = block_with(SB3, "from stable_baselines3 import PPO")
    names = run_block(block, {"100_000": "1", "n_steps=256, batch_size=512": "n_steps=16, batch_size=64"})
    assert names["action"].shape == (8,)
    assert names["model"].gamma == 0.98


@pytest.mark.filterwarnings("ignore")
def test_their_default_loss_as_a_recipe_is_the_loss_of_trl(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason=NO_PEERS)
    trl = pytest.importorskip("trl", minversion="1.16", reason=NO_PEERS)
    recipe = run_block(block_with(TRL, "as_trl ="))["as_trl"]
    logp, their_logp = (peer.LOGP.clone().requires_grad_() for _ in range(2))
    theirs, _ = peer.their_loss(peer.trainer(trl, "GRPO", tmp_path), their_logp)
    ours = probes.loss(recipe, peer.experience(), logp).loss
    slopes = [torch.autograd.grad(loss, at)[0] for loss, at in ((ours, logp), (theirs, their_logp))]
    assert gap(ours, theirs) <= LARGEST_GAP
    assert gap(*slopes) <= LARGEST_GAP
    paper = probes.loss(recipes.grpo(), peer.experience(), peer.LOGP).loss
    assert gap(paper, theirs) > 100 * LARGEST_GAP, "the aggregation makes a difference on this batch"


def test_the_advantages_on_the_page_for_verl_are_those_of_one_right_answer_of_eight() -> None:
    recipe, text = run_block(block_with(VERL, "as_verl ="))["as_verl"], (ROOT / VERL).read_text()
    found = [0.875 / (0.125**0.5 + setting(one, "scale.epsilon")) for one in (recipe, recipes.grpo())]
    assert f"{found[0]:.6f} and {found[1]:.6f}" in text
