"""Resolves the words that a plan is made from: addresses, code, preset, recipe, warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Task
from assay.core.spaces import Vocabulary
from assay.recipes.presets import CLASSIC, D4RL, MUJOCO, preset_for, suite_of
from assay.runs import catalogue
from assay.runs.checks import (
    has_demonstrations,
)
from assay.runs.options import RunOptions
from assay.runs.user_code.consent import Code, Consent, checked_code, own_sources
from assay.tasks.language.files import anchored_files


def recipe_of(
    method: str | Recipe, task: Task, actor: Any, preset: str | None, has_data: bool
) -> tuple[str | None, Recipe, str | None]:
    """Returns the method's key (None of a recipe that the caller made), its recipe with the actor on the task, and the
    name of the preset.
    """
    if isinstance(method, str):
        preset = chosen_preset(task, has_data) if preset is None else preset
        return catalogue.find_method(method)[0], catalogue.recipe_for(method, task, {}, actor, preset), preset
    if preset not in (None, CLASSIC):
        raise AssayError(f"preset is '{preset}', but recipe '{method.name}' is complete. Give a method's name.")
    return None, method if actor is None else catalogue.with_pretrained(method, actor), preset


def default_warmup(recipe: Recipe, task: Task, preset: str | None, *, is_trained: bool) -> int:
    """Returns the supervised steps before a recipe that samples from a token policy without any training: those of
    the preset, 0 of a task without demonstrations.
    """
    untrained = isinstance(task.spec.action, Vocabulary) and not is_trained
    needed = untrained and bool(recipe.rollout or recipe.copies) and has_demonstrations(task)
    return preset_for(task, preset).warmup if needed else 0



def found_task(task: str, options: RunOptions) -> tuple[str, Task]:
    """Returns a task by name or file, with its address."""
    address = task if catalogue.built_in_task(task) else anchored(task)
    return address, catalogue.find_task(address, needs_answers=not options.own.scores)



def code_of(
    method: str | Recipe, task: str | Task, options: RunOptions, consent: Consent | None
) -> tuple[Code, Sequence[str]]:
    """Returns the digests of the own code that a plan names, and the files that have changed since a run folder
    recorded them; imports nothing. Recipes and tasks that are values were made from code that is loaded already.
    """
    named = [None if not isinstance(method, str) else catalogue.method_address(method)]
    named += [None if not isinstance(task, str) else catalogue.task_address(task)]
    sources = [address.source for address in named if address is not None]
    sources += [source for group in options for source in group.sources()]
    code, changed = checked_code(sources, options.own.seals(), consent)
    loaded = [own_sources(value) for value in (method, task) if not isinstance(value, str)]
    return {source: files for some in (code, *loaded) for source, files in sorted(some.items())}, changed


def chosen_preset(task: Task, has_data: bool) -> str:
    """Returns the preset that a task names; d4rl instead of mujoco if the data come from files."""
    preset = suite_of(task)
    return D4RL.suite if has_data and preset == MUJOCO.suite else preset


def anchored(address: str) -> str:
    """Returns existing paths as absolute ones, so that a run can be resumed from anywhere; other words unchanged."""
    if own := catalogue.task_address(address):
        return str(own)
    game, files = catalogue.game_and_files(address)
    return game + anchored_files(files) if files else address
