"""Methods and tasks from own code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Task
from assay.recipes.method import Method
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, PREFERENCES, TABLE, Preset
from assay.runs.user_code.addresses import Address
from assay.runs.user_code.loading import load, value_of
from assay.tasks.language.text_environment import conversation_task, is_conversation

DEFAULT_TASKS = {
    LANGUAGE.name: "countdown",
    CONTROL.name: "cartpole",
    CONTINUOUS.name: "pendulum",
    TABLE.name: "gridworld",
    PREFERENCES.name: "preferences",
}
"""The task of an own recipe that names none, by the first kind of task that it works on."""


# ---------------------------------------------------------------------------------------------------- methods
def own_method(address: Address) -> Method:
    """Returns the method of an address: the file's METHOD, its function `recipe`, a Recipe, one of these by its name,
    or a variant of METHOD.

    AssayError says what a file may hold if it holds no such thing.
    """
    found = vars(load(address.source))
    method = found.get("METHOD")
    if address.name and address.name not in found and isinstance(method, Method):
        return variant(method, address)
    if address.name:
        return method_of(value_of(address), address)
    value = method if method is not None else found.get("recipe")
    if value is None:
        raise AssayError(
            f"{address.source} has no method. Define METHOD, or a function recipe(defaults) that returns a Recipe, or "
            f"name a value: {address.source}:NAME"
        )
    return method_of(value, address)


def variant(method: Method, address: Address) -> Method:
    """Returns a variant of the file's METHOD."""
    if address.name not in method.variants:
        has = ", ".join(method.variants) or "none"
        raise AssayError(f"{address.source} has no '{address.name}', and its METHOD has these variants: {has}.")
    recipe = partial(renamed, address.name, method.variants[address.name])
    return replace(method, recipe=recipe, base=method.recipe, aliases=(), variants={})


def renamed(name: str, function: Callable[..., Recipe], *arguments: Any) -> Recipe:
    """Returns a recipe under another name."""
    return replace(function(*arguments), name=name)


def method_of(value: Any, address: Address) -> Method:
    """Returns a METHOD as it is, and a recipe or a function that makes one as a method."""
    if isinstance(value, Method):
        return value
    function = partial(given, value) if isinstance(value, Recipe) else value
    if not callable(function) or isinstance(function, type):
        raise AssayError(f"{address} is {value!r:.60}, not a METHOD, a Recipe, or a function that returns a Recipe.")
    takes = inspect.signature(function).parameters if not isinstance(value, Recipe) else {"defaults": None}
    made = partial(checked_recipe, function, bool(takes), address)
    presets, errors = [], []
    for preset in (LANGUAGE, CONTROL, CONTINUOUS, TABLE, PREFERENCES):
        try:
            made(preset).check()
            presets.append(preset)
        except AssayError as error:
            errors.append(str(error))
    if not presets:
        raise AssayError(f"{address} works with no kind of task: {errors[0]}")
    return Method("", made, tuple(presets), DEFAULT_TASKS[presets[0].name], family="own")


def given(recipe: Recipe, defaults: Preset) -> Recipe:
    """Returns the recipe, whatever the defaults are."""
    return recipe


def checked_recipe(function: Callable[..., Any], takes_defaults: bool, address: Address, defaults: Preset) -> Recipe:
    """Returns what the function makes; AssayError if it raises or makes something else."""
    try:
        recipe = function(defaults) if takes_defaults else function()
    except AssayError:
        raise
    except (Exception, SystemExit) as error:
        raise AssayError(f"{address} raises {type(error).__name__} with {defaults.name} defaults: {error}") from error
    if not isinstance(recipe, Recipe):
        raise AssayError(f"{address} returned {type(recipe).__name__}. It must return a Recipe.")
    return recipe


# ---------------------------------------------------------------------------------------------------- tasks
def task_maker(address: Address) -> Callable[..., Any]:
    """Returns what makes the task or environment of an address: a class or a function, called without arguments or
    with settings by name.

    A value that is a task already takes no settings. AssayError for an address without a name.
    """
    if not address.name:
        raise AssayError(f"{address.source} is a file. Name the environment in it: {address.source}:NAME")
    value = value_of(address)
    if is_task(value):
        return partial(same, value)
    if not callable(value):
        raise AssayError(f"{address} is {value!r:.60}, not an environment, a task, or a function that returns one.")
    function: Callable[..., Any] = value
    return function


def same(task: Any) -> Any:
    """Returns the task."""
    return task


def is_task(value: Any) -> bool:
    """Returns whether a value is a task; its class is not."""
    return isinstance(value, Task) and not isinstance(value, type)


def own_task(address: Address, make: Callable[[], Any]) -> Task:
    """Returns the task that `make` returns, or that of the conversations or Gymnasium environments that it makes.

    A class of environments is not called here: it is tried in another process first, which it may crash.
    """
    from assay.tasks.adapters.gymnasium import environment_task

    if is_environment_class(make) and not is_conversation(make):
        return environment_task(address.name, make)
    try:
        first = conversation_task(address.name, make) if is_conversation(make) else make()
    except AssayError:
        raise
    except (Exception, SystemExit) as error:
        raise AssayError(f"{address} raises {type(error).__name__} when it is called: {error}. Fix it.") from error
    if is_task(first):
        task: Task = first
        return task
    if not all(callable(getattr(first, name, None)) for name in ("reset", "step")):
        raise AssayError(f"{address} returned {type(first).__name__}. It must return a gymnasium.Env or a task.")
    return environment_task(address.name, make)


def is_environment_class(make: Callable[..., Any]) -> bool:
    """Returns whether it is a class with `reset` and `step`, possibly with settings."""
    inner = make.func if isinstance(make, partial) else make
    return isinstance(inner, type) and all(callable(getattr(inner, name, None)) for name in ("reset", "step"))
