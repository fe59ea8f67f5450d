"""Arms of a comparison: recipes by name, and the runs that a comparison asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import numbered
from assay.recipes.method import Method
from assay.runs import catalogue
from assay.runs.checks import checked_folder, checked_seeds
from assay.runs.pools import Job, Pool, Processes
from assay.runs.user_code.running import try_rewards
from assay.statistics.sequential import SequentialTest

AUTO = SequentialTest(size=5, interims=4)
"""Seeds per interim analysis, and the maximum of interim analyses: between 5 and 20 seeds per arm."""


@dataclass(frozen=True)
class Arm:
    """An arm: a method by name or a recipe, with its own settings."""

    name: str
    method: str | Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)


def parsed_arms(words: Sequence[str]) -> tuple[Arm, ...]:
    """Parses arms of a command line: NAME or NAME:VARIANT, then :path=value,path=value for settings.

    Equal words are separate arms.
    """
    arms = []
    for word in words:
        method, changes = split_arm(word)
        settings = {}
        for change in filter(None, changes.split(",")):
            path, sign, value = change.partition("=")
            if not sign or not path or not value:
                raise AssayError(f"arm '{word}': '{change}' is not of the form path=value. Write NAME:path=value.")
            settings[path] = value
        found = catalogue.find_method(method)[1]
        own = catalogue.method_address(method) is not None
        arms.append(Arm(f"{recipe_name(found, method)}{changes and ':'}{changes}" if own else word, method, settings))
    names = numbered([arm.name for arm in arms])
    return tuple(replace(arm, name=name) for arm, name in zip(arms, names, strict=True))


def split_arm(word: str) -> tuple[str, str]:
    """Returns the method of an arm, a variant included, and its settings."""
    pieces = word.split(":")
    is_variant = len(pieces) > 1 and "=" not in pieces[1]
    return ":".join(pieces[: 1 + is_variant]), ":".join(pieces[1 + is_variant :])


def recipe_name(method: Method, word: str) -> str:
    """Returns the name that the recipe of an own method has in the first of its presets; if that has no recipe, the
    name of the file.
    """
    try:
        return method.recipe(method.presets[0]).name
    except AssayError:
        return Path(word.partition(":")[0]).name


@dataclass(frozen=True)
class Setup:
    """A comparison to run. If `seeds` is None, the sequential test decides. `options` go to the `make_plan` of every
    run; after `minutes` no further run starts. The run option `decisions` gives every run the same number of decisions
    instead of the same number of steps, which gather different amounts of data in different methods. With
    `equal_decisions` the scores of a task are read where every run has taken as many decisions as the shortest of them.
    """

    arms: tuple[Arm, ...]
    tasks: tuple[str, ...]
    folder: Path
    seeds: int | None = 3
    options: Mapping[str, Any] = field(default_factory=dict)
    minutes: float | None = None
    workers: int | None = None
    test: SequentialTest = AUTO
    pool: Pool = Processes()
    equal_decisions: bool = False

    def check(self) -> None:
        """Refuses an impossible comparison before compute is spent."""
        if len(set(self.tasks)) < len(self.tasks):
            raise AssayError(f"--task names {', '.join(self.tasks)}. Name each task once.")
        if self.seeds is not None:
            checked_seeds(self.seeds, more=", or auto")
        if self.workers is not None and self.workers < 1:
            raise AssayError(f"--jobs is {self.workers}. Use at least 1.")
        checked_folder(self.folder, ("code.json", "comparison.json"))
        if self.minutes is not None and not self.minutes > 0:
            raise AssayError(f"--budget is {self.minutes:g}. Use a positive number of minutes.")
        if self.seeds is None and len(self.arms) < 2:
            raise AssayError("--seeds auto needs several arms. Name at least two methods, or give a number of seeds.")
        for arm in self.arms:
            for task in self.tasks:
                plan = self.job(arm, task, 0).plan()
                if self.equal_decisions and plan.recipe.rollout is None:
                    raise AssayError(
                        f"--equal-decisions compares where all have taken as many decisions, but {arm.name} takes "
                        "none: it gathers no experience. Leave out the option or the arm."
                    )
                try_rewards(plan.task, plan.recipe)

    def job(self, arm: Arm, task: str, seed: int) -> Job:
        """Returns the job of one run."""
        folder = self.folder / plain_name(arm.name) / plain_name(task) / f"seed-{seed}"
        shared = dict(self.options.get("settings") or {})
        options = {**self.options, "settings": shared | dict(arm.settings)}
        return Job(arm.name, task, seed, folder, arm.method, options)


def plain_name(text: str) -> str:
    """Returns a name for a folder: of a file its stem; letters, digits, dots and dashes."""
    source, _, name = text.partition(":")
    own = f"{Path(source).stem}:{name}" if source.endswith(".py") else text
    short = Path(text).stem if text.endswith((".json", ".jsonl")) else own
    return re.sub(r"[^\w.=+-]+", "-", short).strip("-.") or "arm"
