"""`assay data`: generates offline datasets with trained agents, converts between formats, describes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Task
from assay.core.spaces import Box
from assay.datasets import agents, altered, files, made
from assay.datasets.dataset import Dataset
from assay.datasets.flaws import flaws
from assay.recipes.presets import Preset
from assay.report.dataset_quality import imitation, measure
from assay.report.datasets import print_datasets
from assay.runs import catalogue
from assay.runs.checks import checked_seed
from assay.runs.method_names import unknown
from assay.runs.options.training import parse_settings

WITH_AGENT: Mapping[str, Callable[[agents.Agent, int], made.Made]] = {
    "medium": made.Medium,
    "medium-replay": lambda agent, episodes: made.MediumReplay(agent),
    "expert": made.Expert,
    "medium-expert": made.MediumExpert,
}
MOST_EPISODES = 1_000_000
SUFFIX = ".safetensors"
KINDS = ("random", "scripted", "demonstrated", "play", "own", *WITH_AGENT)


def data(options: argparse.Namespace) -> int:
    """`assay data`: runs one of its commands; `--set` are settings of the agent."""
    options.settings = parse_settings(vars(options).get("set_", []))
    return COMMANDS[options.data_command](options)


def chosen(recipe: Recipe, preset: Preset) -> Recipe:
    """Returns the recipe as it is: it was chosen by name already."""
    return recipe


def kind_of(name: str, task: Task, options: argparse.Namespace) -> made.Made:
    """Returns the description of a kind of dataset by its name."""
    if name not in KINDS:
        raise unknown("kind of dataset", name, KINDS, f"Choose one of: {', '.join(KINDS)}.")
    if name == "random":
        return made.Random(options.episodes, options.seed)
    if name == "scripted":
        return made.Scripted(options.episodes, options.noise, options.seed)
    if name == "demonstrated":
        return made.Demonstrated(options.episodes, options.action_noise, options.system_noise, options.seed)
    if name == "play":
        return made.Played(options.episodes, options.noise, options.seed)
    if name == "own":
        return made.Own(options.seed)
    method = options.method or ("sac" if isinstance(task.spec.action, Box) else "ppo")
    recipe = catalogue.recipe_for(method, task, options.settings)
    return WITH_AGENT[name](agents.Agent(partial(chosen, recipe), options.steps, options.seed), options.episodes)


def make(options: argparse.Namespace) -> int:
    """`assay data make`: writes one file per kind into a folder, or one kind into the file that is named."""
    if not 1 <= options.episodes <= MOST_EPISODES:
        raise AssayError(f"--episodes is {options.episodes}. Use a number from 1 to {MOST_EPISODES:,}.")
    if options.steps < 0:
        raise AssayError(f"--steps is {options.steps}. Use 0 (the recipe's) or a number of steps.")
    if not 0 <= options.noise <= 1:
        raise AssayError(f"--noise is {options.noise:g}. Use a share from 0 to 1.")
    checked_seed(options.seed)
    if options.out.suffix == SUFFIX and len(options.kinds) > 1:
        raise AssayError(f"--out {options.out} is one file, for {len(options.kinds)} kinds. Name a folder.")
    if options.out.suffix == SUFFIX and options.out.exists():
        raise AssayError(f"--out {options.out} exists. Name a new file, or a folder.")
    task = catalogue.find_task(options.task)
    kinds = [kind_of(name, task, options) for name in options.kinds]
    paths = []
    for kind in kinds:
        if not options.json and isinstance(kind, made.Medium | made.MediumReplay | made.Expert | made.MediumExpert):
            agents.trained(kind.agent, task, tell_progress)
        path = options.out / f"{made.plain(options.task)}-{kind.name}-{options.seed}{SUFFIX}"
        path = options.out if options.out.suffix == SUFFIX else path
        rows = kind.make(task)
        paths.append(files.write(replace(rows, about={**rows.about, "task": options.task}), path))
    return show(paths, options.json)


def tell_progress(step: int, steps: int, score: float) -> None:
    """Prints the progress of the agent's training in one line on stderr."""
    print(f"training the agent: step {step}/{steps}, held-out score {score:.4g}", file=sys.stderr)


def convert(options: argparse.Namespace) -> int:
    """`assay data convert`: writes the same rows in another format."""
    return show([files.write(files.read(options.source), options.target)], options.json)


def alter(options: argparse.Namespace) -> int:
    """`assay data alter`: writes a file altered by rules, in order."""
    checked_seed(options.seed)
    rules = tuple(altered.rule_of(text) for text in options.rules)
    data = files.read(options.file)
    if options.out.exists():
        raise AssayError(f"--out {options.out} exists. Name a new file")
    return show([files.write(altered.altered(data, rules, options.seed), options.out)], options.json)


def describe(options: argparse.Namespace) -> int:
    """`assay data describe`."""
    task = catalogue.find_task(options.task) if options.task else None
    return show(options.files, options.json, task, options.reference)


def show(addresses: Sequence[str | Path], as_json: bool, task: Task | None = None, reference: str | None = None) -> int:
    """Prints the contents of the files as a table or as JSON, with their quality and coverage."""
    rows = [files.read(address) for address in addresses]
    against = None if reference is None else files.read(reference)
    check_alike([*map(str, addresses), *([reference] if reference else [])], [*rows, *([against] if against else [])])
    if task is not None:
        rows[0].check_fits(task.spec, task.name)
    measured = measure(rows, task, against)
    found: list[dict[str, Any]] = [
        {"file": str(address), "reference": reference}
        | one.summary()
        | more
        | {"flaws": flaws(one), "imitation": imitation(one)}
        for address, one, more in zip(addresses, rows, measured, strict=True)
    ]
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_datasets(found)
    return 0


def check_alike(names: Sequence[str], rows: Sequence[Dataset]) -> None:
    """Raises AssayError if the files have other observations or actions: their pairs cannot be compared."""
    for name, one in zip(names, rows, strict=True):
        for what in ("observation", "action"):
            mine, first = (list(getattr(each, what).shape[1:]) for each in (one, rows[0]))
            if mine != first:
                told = f"{name}: its {what}s have shape {mine}, those of {names[0]} {first}"
                raise AssayError(f"{told}. Describe files of one task together")


COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "make": make,
    "convert": convert,
    "describe": describe,
    "alter": alter,
}
