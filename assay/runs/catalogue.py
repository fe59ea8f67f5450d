"""Finds methods and tasks by name, file or import path. There is no registry: methods are the modules of `methods/`,
tasks those of `tasks/`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.optimizers import Adam
from assay.core.recipe import Recipe, Stage
from assay.core.schedules import with_peak
from assay.core.settings import parsed_number
from assay.core.slots import ModelSpec, Task
from assay.models.bodies.transformer import Transformer
from assay.models.model import Critic
from assay.parts.sources.demonstrations import Demonstrations
from assay.recipes.method import FAMILIES, Method
from assay.recipes.presets import Preset, preset_for
from assay.runs import method_index
from assay.runs.method_names import known_method, unknown
from assay.runs.method_names import method_address as method_address
from assay.runs.method_names import method_key as method_key
from assay.runs.user_code import methods_and_tasks
from assay.runs.user_code.addresses import TASKS, Address, installed_address, parsed_address
from assay.runs.user_code.loading import load
from assay.tasks.control.transforms import transform_of
from assay.tasks.language import files
from assay.tasks.language.redteam_chat import OF_FILES

WORLDS = ("textworld-express", "scienceworld", "textarena", "minigrid", "openenv")
"""Libraries of text games."""
ADAPTED = ("reasoning-gym", "pettingzoo", "envpool", "warp", *WORLDS)
"""Prefixes of the names of other libraries' tasks."""


def shell_files(path: str) -> Task:
    """Returns the task of shell sessions of a file. Its module imports the sandbox."""
    from assay.tasks.language.shell import shell_task

    return shell_task(path)


def code_files(path: str) -> Task:
    """Returns the task of a file of problems that are solved by executing code. Its module imports the sandbox."""
    from assay.tasks.language.code_task import code_task

    return code_task(path)


OVER_FILES: Mapping[str, Callable[[str], Task]] = {**OF_FILES, "shell": shell_files, "code": code_files}
"""Tasks over the rows of files, by the name before the colon."""
SHORT = {name.lower(): f"{name}-v5" for name in ("Hopper", "HalfCheetah", "Walker2d", "Ant")}
"""Names of MuJoCo's tasks as papers on offline data have them, and their Gymnasium ids."""
GYMNASIUM_ID = re.compile(r"([\w/-]+/)?\w[\w-]*-v\d+")
"""Ids that Gymnasium knows; its form module:ID, which imports the module, is own code."""

PRETRAINED_RATE = 5e-6
"""Default peak learning rate of pretrained actors."""

PRETRAINED_SUPERVISED_RATE = 2e-5
"""Default peak learning rate of a pretrained actor on demonstrations alone (sft, warm-ups): their gradient has none of
the noise of sampled answers. TRL's default too."""

PRETRAINED_CRITIC_RATE = 1e-5
"""Default peak learning rate of critics and reward models on a pretrained network; larger than the actor's, since their
heads start at 0."""

TASK_FILES = ("tasks/*/*.py", "datasets/mini.py", "claims/testbeds/*/__init__.py")
"""Files of the package that may define tasks, in a mapping `LEVELS` from name to maker."""


# ---------------------------------------------------------------------------------------------------- methods
def methods() -> Mapping[str, Method]:
    """Returns every built-in method that can be imported, by key."""
    return method_index.methods()


def method_text(name: str) -> str:
    """Returns the docstring of a method: what it changes, the formula, the reason."""
    own = method_address(name)
    module = load(own.source) if own else importlib.import_module(method_index.entries()[method_key(name)].module)
    return (module.__doc__ or (own.stem if own else name)).strip()


def find_method(name: str) -> tuple[str, Method]:
    """Returns a method by name, alias or METHOD:VARIANT; '-' and '_' are the same, and so are capitals. A file or an
    import path is an own method (see `user_code.methods_and_tasks.own_method`). Imports that method and no other.

    Returns its full name and the method. A variant is the method with the variant's recipe, derived from the method's;
    a prefix KEY- of its name may be left out.
    """
    own = method_address(name)
    if own is not None:
        return str(own), methods_and_tasks.own_method(own)
    key, variant = known_method(name)
    method = method_index.import_method(key)
    if not variant:
        return key, method
    full = next((one for one in (variant, f"{key}-{variant}") if one in method.variants), None)
    if full is None:
        has = ", ".join(method.variants) or "none"
        raise AssayError(f"method '{key}' has no variant '{variant}'. It has: {has}")
    recipe = partial(named_recipe, full, method.variants[full])
    return f"{key}:{full}", replace(method, recipe=recipe, base=method.recipe, aliases=(), variants={})


def named_recipe(name: str, function: Callable[..., Recipe], *arguments: Any) -> Recipe:
    """Returns a variant's recipe under the variant's name."""
    return replace(function(*arguments), name=name)


# ---------------------------------------------------------------------------------------------------- tasks
@cache
def task_files() -> Mapping[str, str]:
    """Returns the text of each module that defines tasks, by the module's name."""
    root = Path(__file__).parents[1]
    files = [file for pattern in TASK_FILES for file in sorted(root.glob(pattern))]
    texts = {".".join(file.relative_to(root.parent).with_suffix("").parts): file.read_text() for file in files}
    return {name.removesuffix(".__init__"): text for name, text in texts.items() if "\nLEVELS" in text}


@cache
def tasks() -> Mapping[str, Callable[..., Task]]:
    """Returns every built-in task by its name: the `LEVELS` of the modules that define tasks."""
    found: dict[str, Callable[..., Task]] = {}
    for module in task_files():
        for name, make in importlib.import_module(module).LEVELS.items():
            if name in found:
                raise AssayError(f"two tasks are called '{name}'. Rename the one of {module}")
            found[name] = make
    return found


@cache
def built_in_task(name: str) -> Callable[..., Task] | None:
    """Returns what makes a built-in task; None if there is no such task.

    `LEVELS` decides. Only modules whose text can make the name are imported: those with the name itself, then those
    that number it (f"sorting-{level}", f"queries-{turns}-blind"), then those that compose names (f"{game}{form}").
    """
    stem, first = name.rpartition("-")[0], name.partition("-")[0]
    texts = {module: text[text.index("\nLEVELS") :] for module, text in task_files().items()}
    for sign in (f'"{name}"', f'f"{stem}-{{', f'f"{first}-{{', 'f"{'):
        for module in (module for module, text in texts.items() if sign in text):
            make: Callable[..., Task] | None = importlib.import_module(module).LEVELS.get(name)
            if make is not None:
                return make
    return None


def task_address(name: str) -> Address | None:
    """Returns the address of an own environment or task: FILE.py:NAME, package.module:NAME, or the name that an
    installed package gives it; None for any other name.
    """
    if "," in name.partition(".py")[0] or transform_of(name) is not None:
        return None
    key = name.partition(":")[0]
    own = installed_address(TASKS, name)
    if own is None and key not in ADAPTED:
        own = parsed_address(name)
    return None if own is None or built_in_task(key) else own


def find_task(name: str, *, needs_answers: bool = True) -> Task:
    """Returns a task by name: built in, with some of its numbers set (NAME:SETTING=NUMBER,SETTING=NUMBER), a Gymnasium
    id such as HalfCheetah-v5 (or halfcheetah), reasoning-gym:NAME, pettingzoo:FAMILY.GAME, envpool:ID, warp:NAME, a
    text game such as textworld-express:coin (see `tasks.adapters.text_worlds`), or files of prompts or pairs (.jsonl,
    see `tasks.language.files`).

    delayed=4:TASK, disturbed=0.3:TASK and budgeted=20:TASK change what becomes of the actions of a control task.
    red-teaming:SEEDS.jsonl is the game over the seeds of a file, shell:FILE.jsonl a shell in a sandbox,
    code:FILE.jsonl an interpreter of SQL, bash or Python.
    FILE.py:NAME and package.module:NAME are own environments, classes or functions, possibly with :SETTING=NUMBER;
    package.module:ID-v0 is a Gymnasium id that the module registers. A file of prompts without answers is refused if
    the task `needs_answers`.
    """
    if not name.strip():
        raise AssayError("--task is empty. Name a task (see 'assay list') or a file.")
    if (change := transform_of(name)) is not None:
        return transformed(name, *change)
    name = SHORT.get(name, name)
    key, _, dials = name.partition(":")
    if key in OVER_FILES and all(game_and_files(name)):
        return OVER_FILES[key](dials)
    if "." not in key and key not in ADAPTED and (make := built_in_task(key)):
        return with_dials(key, make, dials) if dials else make()
    if own := task_address(name):
        return own_task(own)
    if files.names_files(name):
        return files.task_of_files(name, needs_answers)
    if (adapted := adapted_task(name)) is not None:
        return adapted
    raise unknown(
        "task",
        name,
        [*tasks(), *metadata.entry_points(group=TASKS).names],
        "assay list shows all; a Gymnasium id such as CartPole-v1, a .jsonl file or FILE.py:NAME works too.",
    )


def adapted_task(name: str) -> Task | None:
    """Returns a task of another package by its prefix or as a Gymnasium id, None for any other name; each adapter is
    imported for a task of its own alone.
    """
    if name.startswith("reasoning-gym:"):
        from assay.tasks.adapters.reasoning_gym import reasoning_gym_task

        return reasoning_gym_task(name)
    if name.startswith("pettingzoo:"):
        from assay.tasks.adapters.pettingzoo import pettingzoo_task

        return pettingzoo_task(name)
    if name.startswith("envpool:"):
        from assay.tasks.adapters.envpool import envpool_task

        return envpool_task(name)
    if name.startswith("warp:"):
        from assay.tasks.adapters.warp import warp_task

        return warp_task(name)
    if name.partition(":")[0] in WORLDS:
        from assay.tasks.adapters.text_worlds import text_world_task

        return text_world_task(name)
    if GYMNASIUM_ID.fullmatch(name):
        from assay.tasks.adapters.gymnasium import gymnasium_task

        return gymnasium_task(name)
    return None


def matching(names: Sequence[str]) -> list[str]:
    """Returns names of tasks, those with a `*` replaced by the built-in tasks that they fit (`mini-pendulum-*`)."""
    found = list[str]()
    for name in names:
        fitting = [one for one in tasks() if fnmatchcase(one, name)] if "*" in name else [name]
        if not fitting:
            raise AssayError(f"no task is called {name}. 'assay list' shows the built-in ones")
        found += fitting
    return found


def transformed(name: str, change: Callable[[Any], Task], inner: str) -> Task:
    """Returns a task by name with its actions changed; AssayError for own code and for tasks that are not stepped."""
    if task_address(inner) is not None:
        where = f"assay.tasks.control.transforms.{name.partition('=')[0]}(task, ...)"
        raise AssayError(f"task '{name}' is own code. Change it there: {where}")
    return change(find_task(inner))


def game_and_files(name: str) -> tuple[str, str]:
    """Returns (`GAME:`, FILES) of a game over the rows of files; ("", name) of any other task."""
    game, colon, rest = name.partition(":")
    return (game + colon, rest) if colon and game in OVER_FILES and files.names_files(rest) else ("", name)


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
    make = methods_and_tasks.task_maker(plain)
    return methods_and_tasks.own_task(plain, partial(with_dials, str(plain), make, dials) if dials else make)


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
    recipe that have the same actor are changed in the same way, those that only a model from scratch needs are left
    out; other models stay as they are.
    """
    critics = {name: on_pretrained(critic, actor) for name, critic in recipe.critics.items()}
    new = {name for name in critics if critics[name] is not recipe.critics[name]}
    is_supervised = recipe.rollout is None and isinstance(recipe.source, Demonstrations)
    peak = PRETRAINED_SUPERVISED_RATE if is_supervised else PRETRAINED_RATE
    stages = tuple(with_pretrained_rate(stage, new, peak) for stage in recipe.stages)
    before = tuple(
        replace(phase, recipe=with_pretrained(phase.recipe, actor)) if phase.recipe.actor == recipe.actor else phase
        for phase in recipe.before
        if not phase.from_scratch
    )
    return replace(recipe, actor=actor, critics=critics, stages=stages, before=before)


def on_pretrained(critic: ModelSpec, actor: ModelSpec) -> ModelSpec:
    """Returns a critic of tokens on a copy of the pretrained network; any other critic as it is."""
    from assay.models.pretrained.body import PretrainedBody
    from assay.models.pretrained.transformers import Pretrained

    if not isinstance(actor, Pretrained) or not isinstance(critic, Critic) or not isinstance(critic.body, Transformer):
        return critic
    return replace(critic, body=PretrainedBody(actor))


def with_pretrained_rate(stage: Stage, critics: Collection[str], peak: float = PRETRAINED_RATE) -> Stage:
    """Returns a stage whose learning rate peaks at `peak` if it trains the actor, at the rate of pretrained critics if
    it trains one of `critics`; else as it is.
    """
    if not isinstance(stage.optimizer, Adam) or not {"actor", *critics} & set(stage.trains):
        return stage
    rate = with_peak(stage.optimizer.learning_rate, peak if "actor" in stage.trains else PRETRAINED_CRITIC_RATE)
    return replace(stage, optimizer=replace(stage.optimizer, learning_rate=rate))


def fits(method: Method, defaults: Preset) -> bool:
    """Returns whether a method works on the kind of task that these defaults are for, whatever their numbers."""
    return any(option.kind == defaults.kind for option in method.presets)


def action_words(defaults: Preset) -> str:
    """Returns the kind of actions of a control task."""
    return "discrete" if defaults.discrete else "continuous"


def alternatives(method: Method, defaults: Preset) -> list[str]:
    """Returns the methods to start with that work with these defaults, at most two: those of the method's family first,
    then those whose own task is of this kind, and those that need no recorded data.
    """
    begin = [key for key, entry in method_index.entries().items() if entry.start_for]
    fitting = {key: found for key in begin if fits(found := method_index.import_method(key), defaults)}

    def distance(key: str) -> tuple[bool, bool, int]:
        one = fitting[key]
        at_home = preset_for(find_task(one.default_task)).name == defaults.name
        return one.family != method.family, not at_home, FAMILIES.index(one.family)

    return sorted(fitting, key=distance)[:2]


def recipe_for(
    name: str,
    task: Task,
    settings: Mapping[str, Any],
    actor: ModelSpec | None = None,
    preset: str | None = None,
) -> Recipe:
    """Returns the method's recipe for a task with settings changed; raises AssayError if the method does not work on
    this kind of task.

    Defaults are those of the task (see `preset_for`) or of `preset`. A pretrained `actor` takes the place of theirs
    (see `with_pretrained`).
    """
    key, method = find_method(name)
    defaults = preset_for(task, preset)
    if not fits(method, defaults):
        works = ", ".join(sorted({option.name for option in method.presets}))
        kind = defaults.name if defaults.tokens else f"{defaults.name} with {action_words(defaults)} actions"
        others = " or ".join(alternatives(method, defaults)) or "another method"
        where = f"method '{key}' works on these kinds of task: {works}; task '{task.name}' is {kind}"
        raise AssayError(f"{where}. Use {others}, or another task")
    if actor is None:
        recipe = method.recipe(defaults)
    else:  # no entropy bonus, as in TRL and verl: over a whole vocabulary it raises what a trained model rules out
        recipe = with_pretrained(method.recipe(replace(defaults, entropy=0.0)), actor)
    for path, value in settings.items():
        recipe = recipe.set(path, value)
    return recipe
