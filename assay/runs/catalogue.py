"""Finds methods and tasks by name, file or import path. There is no registry: methods are the modules of `methods/`,
tasks those of `tasks/`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import assay.methods
import assay.tasks
from assay.claims.claim import Method
from assay.core.errors import AssayError
from assay.core.hints import nearest
from assay.core.optimizers import Adam
from assay.core.recipe import Recipe, Stage
from assay.core.schedules import with_peak
from assay.core.settings import parsed_number
from assay.core.slots import ModelSpec, Task
from assay.models.bodies.transformer import Transformer
from assay.models.model import Critic
from assay.recipes.defaults import Defaults, defaults_of
from assay.runs.own import things
from assay.runs.own.addresses import Address, parsed_address
from assay.runs.own.files import file_of
from assay.runs.own.loading import load
from assay.tasks.language import files

GYMNASIUM_ID = re.compile(r"([\w/-]+/)?\w[\w-]*-v\d+")
"""Ids that Gymnasium knows; its form module:ID, which imports the module, is own code."""

PRETRAINED_RATE = 5e-6
"""Default peak learning rate of pretrained actors."""

PRETRAINED_CRITIC_RATE = 1e-5
"""Default peak learning rate of critics on a pretrained network; larger, since their heads start at 0."""


def modules_of(package: ModuleType) -> list[ModuleType]:
    """Returns the modules and packages directly inside a package, in alphabetical order."""
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def folder_of(name: str) -> Path:
    """Returns the folder of a built-in method, or of a variant's method: `methods/KEY`."""
    return Path(next(iter(assay.methods.__path__))) / name.partition(":")[0].replace("-", "_").replace(".", "_")


def file_beside(name: str, ending: str) -> Path:
    """Returns a file that belongs to a method: `methods/KEY/ENDING`, or STEM.ENDING beside the file of an own one."""
    own = method_address(name)
    return folder_of(name) / ending if own is None else file_of(own.source).with_name(f"{own.stem}.{ending}")


def method_key(name: str) -> str:
    """Returns the name that a method's claims are kept under: without the variant, or the address of an own method."""
    return name.partition(":")[0] if method_address(name) is None else name


@cache
def methods() -> Mapping[str, Method]:
    """Returns every method by its name: its `key`, or the module's name with '-' for '_'."""
    found = [(module.METHOD, name_of(module)) for module in modules_of(assay.methods)]
    return {method.key or name.replace("_", "-"): method for method, name in found}


def name_of(module: ModuleType) -> str:
    """Returns the last part of a module's name."""
    return module.__name__.rsplit(".", 1)[1]


def method_text(name: str) -> str:
    """Returns the docstring of a method: what it changes, the formula, the reason."""
    own = method_address(name)
    module = load(own.source) if own else importlib.import_module(f"{assay.methods.__name__}.{folder_of(name).name}")
    return (module.__doc__ or (own.stem if own else name)).strip()


def verdict(name: str) -> dict[str, Any] | None:
    """Returns the committed verdict of the method's measured claims, if there is one."""
    path = file_beside(name, "verdict.json")
    return json.loads(path.read_text()) if path.is_file() else None


@cache
def tasks() -> Mapping[str, Callable[..., Task]]:
    """Returns every built-in task by its name: the `LEVELS` of the modules of `tasks/`; adapters have none."""
    found: dict[str, Callable[..., Task]] = {}
    for folder in modules_of(assay.tasks):
        for module in modules_of(folder) if name_of(folder) != "adapters" else []:
            for name, make in vars(module).get("LEVELS", {}).items():
                if name in found:
                    raise AssayError(f"two tasks are called '{name}'. Rename the one of {module.__name__}")
                found[name] = make
    return found


def unknown(kind: str, name: str, known: Iterable[str], hint: str) -> NoReturn:
    """Raises AssayError for an unknown name; suggests a similar known name, if there is one."""
    near = nearest(name, known)
    meant = f" Did you mean '{near}'?" if near else ""
    raise AssayError(f"there is no {kind} '{name}'.{meant} {hint}")


@cache
def names() -> Mapping[str, str]:
    """Returns every name that a method can be called by: keys, aliases, METHOD:VARIANT and VARIANT; each means one
    of them.

    AssayError for a name that means two.
    """
    found: dict[str, str] = {}
    for key, method in methods().items():
        variants = {f"{key}:{variant}": f"{key}:{variant}" for variant in method.variants}
        short = {variant: f"{key}:{variant}" for variant in method.variants}
        for name, meant in ({key: key} | dict.fromkeys(method.aliases, key) | variants | short).items():
            if found.setdefault(name, meant) != meant:
                raise AssayError(f"'{name}' is a name of {found[name]} and of {meant}. Rename one of them.")
    return found


def method_address(name: str) -> Address | None:
    """Returns the address of an own method: FILE.py, FILE.py:NAME, package.module:NAME; None for any other name."""
    asked = name.lower().replace("_", "-")
    return None if asked in names() or asked.partition(":")[0] in names() else parsed_address(name)


def find_method(name: str) -> tuple[str, Method]:
    """Returns a method by name, alias, variant or METHOD:VARIANT; '-' and '_' are the same, and so are capitals. A file
    or an import path is an own method (see `own.things.own_method`).

    Returns its full name and the method. A variant is the method with the variant's recipe, derived from the method's.
    """
    own = method_address(name)
    if own is not None:
        return str(own), things.own_method(own)
    asked = name.lower().replace("_", "-")
    key, _, variant = asked.partition(":")
    full = names().get(f"{names().get(key, key)}:{variant}" if variant else asked)
    if full is None and variant and key in names():
        has = ", ".join(methods()[names()[key].partition(":")[0]].variants) or "none"
        raise AssayError(f"method '{key}' has no variant '{variant}'. It has: {has}")
    if full is None:
        unknown("method", name, names(), "assay list shows all; a file (FILE.py) works too.")
    key, _, variant = full.partition(":")
    method = methods()[key]
    if not variant:
        return full, method
    recipe = partial(named, variant, method.variants[variant])
    return full, replace(method, recipe=recipe, base=method.recipe, aliases=(), variants={})


def named(name: str, function: Callable[..., Recipe], *arguments: Any) -> Recipe:
    """Returns a variant's recipe under the variant's name."""
    return replace(function(*arguments), name=name)


def task_address(name: str) -> Address | None:
    """Returns the address of an own environment or task: FILE.py:NAME, package.module:NAME; None for any other name."""
    adapted = name.partition(":")[0] in {*tasks(), "reasoning-gym", "pettingzoo", "envpool"}
    return None if adapted or "," in name.partition(".py")[0] else parsed_address(name)


def find_task(name: str, *, needs_answers: bool = True) -> Task:
    """Returns a task by name: built in, with some of its numbers set (NAME:SETTING=NUMBER,SETTING=NUMBER), a Gymnasium
    id such as HalfCheetah-v5, reasoning-gym:NAME, pettingzoo:FAMILY.GAME, envpool:ID, or files of prompts or pairs
    (.jsonl, see `tasks.language.files`).

    FILE.py:NAME and package.module:NAME are own environments, classes or functions, possibly with :SETTING=NUMBER;
    package.module:ID-v0 is a Gymnasium id that the module registers. A file of prompts without answers is refused if
    the task `needs_answers`.
    """
    if not name.strip():
        raise AssayError("--task is empty. Name a task (see 'assay list') or a file.")
    if name in tasks():
        return tasks()[name]()
    key, _, dials = name.partition(":")
    if key in tasks():
        return with_dials(key, tasks()[key], dials)
    if own := task_address(name):
        return own_task(own)
    if files.names_files(name):
        return files.task_of_files(name, needs_answers)
    if name.startswith("reasoning-gym:"):
        from assay.tasks.adapters.reasoning_gym import reasoning_gym_task

        return reasoning_gym_task(name)
    if name.startswith("pettingzoo:"):
        from assay.tasks.adapters.pettingzoo import pettingzoo_task

        return pettingzoo_task(name)
    if name.startswith("envpool:"):
        from assay.tasks.adapters.envpool import envpool_task

        return envpool_task(name)
    if GYMNASIUM_ID.fullmatch(name):
        from assay.tasks.adapters.gymnasium import gymnasium_task

        return gymnasium_task(name)
    unknown(
        "task",
        name,
        tasks(),
        "assay list shows all; a Gymnasium id such as CartPole-v1, a .jsonl file or FILE.py:NAME works too.",
    )


def own_task(address: Address) -> Task:
    """Returns the task of own code: of a class or function, with its numbers set, or of an id that a module registers
    with Gymnasium.
    """
    name, _, dials = address.name.partition(":")
    if GYMNASIUM_ID.fullmatch(name):
        from assay.tasks.adapters.gymnasium import gymnasium_task

        load(address.source)
        return gymnasium_task(name)
    plain = Address(address.source, name)
    make = things.task_maker(plain)
    return things.own_task(plain, partial(with_dials, str(plain), make, dials) if dials else make)


def with_dials(name: str, make: Callable[..., Any], dials: str) -> Any:
    """Returns a task with some of its numbers set: "noise=2,branching=4" are arguments of its function.

    AssayError for an argument that it does not have, or a value of another type.
    """
    known = {
        key: parameter.default
        for key, parameter in inspect.signature(make).parameters.items()
        if isinstance(parameter.default, int | float)
    }
    chosen: dict[str, Any] = {}
    for one in dials.split(","):
        key, _, value = one.partition("=")
        if key not in known:
            has = ", ".join(f"{key}={default:g}" for key, default in known.items()) or "none"
            raise AssayError(f"task '{name}' has no setting '{key}'. It has: {has}")
        try:
            chosen[key] = parsed_number(value, type(known[key]))
        except ValueError:
            kind = "a whole number" if isinstance(known[key], int) else "a number"
            raise AssayError(f"task '{name}': {key}='{value}' is not {kind}. Try {key}={known[key]:g}") from None
    return make(**chosen)


def with_pretrained(recipe: Recipe, actor: ModelSpec) -> Recipe:
    """Returns the recipe with a pretrained actor, its critics of tokens on copies of the same network.

    Learning rates of what is pretrained keep their schedule, with a peak that suits trained weights. Phases before the
    recipe that have the same actor are changed in the same way; other models stay as they are.
    """
    critics = {name: on_pretrained(critic, actor) for name, critic in recipe.critics.items()}
    new = {name for name in critics if critics[name] is not recipe.critics[name]}
    stages = tuple(with_pretrained_rate(stage, new) for stage in recipe.stages)
    before = tuple(
        replace(phase, recipe=with_pretrained(phase.recipe, actor)) if phase.recipe.actor == recipe.actor else phase
        for phase in recipe.before
    )
    return replace(recipe, actor=actor, critics=critics, stages=stages, before=before)


def on_pretrained(critic: ModelSpec, actor: ModelSpec) -> ModelSpec:
    """Returns a critic of tokens on a copy of the pretrained network; any other critic as it is."""
    from assay.models.pretrained.body import PretrainedBody
    from assay.models.pretrained.transformers import Pretrained

    if not isinstance(actor, Pretrained) or not isinstance(critic, Critic) or not isinstance(critic.body, Transformer):
        return critic
    return replace(critic, body=PretrainedBody(actor))


def with_pretrained_rate(stage: Stage, critics: Collection[str]) -> Stage:
    """Returns a stage whose learning rate peaks at the rate of pretrained actors if it trains the actor, at that of
    pretrained critics if it trains one of `critics`; else as it is.
    """
    if not isinstance(stage.optimizer, Adam) or not {"actor", *critics} & set(stage.trains):
        return stage
    peak = PRETRAINED_RATE if "actor" in stage.trains else PRETRAINED_CRITIC_RATE
    rate = with_peak(stage.optimizer.learning_rate, peak)
    return replace(stage, optimizer=replace(stage.optimizer, learning_rate=rate))


def fits(method: Method, defaults: Defaults) -> bool:
    """Returns whether a method works on the kind of task that these defaults are for, whatever their numbers."""
    return any(option.kind == defaults.kind for option in method.worlds)


def recipe_for(
    name: str,
    task: Task,
    settings: Mapping[str, Any],
    actor: ModelSpec | None = None,
    preset: str | None = None,
) -> Recipe:
    """Returns the method's recipe for a task with settings changed; raises AssayError if the method does not work on
    this kind of task.

    Defaults are those of the task (see `defaults_of`) or of `preset`. A pretrained `actor` takes the place of theirs
    (see `with_pretrained`).
    """
    key, method = find_method(name)
    defaults = defaults_of(task, preset)
    if not fits(method, defaults):
        works = ", ".join(sorted({option.name for option in method.worlds}))
        raise AssayError(
            f"method '{key}' works in these worlds: {works}; task '{task.name}' is {defaults.name}. Choose another "
            "task or method"
        )
    recipe = method.recipe(defaults)
    if actor is not None:
        recipe = with_pretrained(recipe, actor)
    for path, value in settings.items():
        recipe = recipe.set(path, value)
    return recipe
