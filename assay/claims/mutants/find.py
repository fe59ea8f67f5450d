"""Finds the mutants of a method.

From the difference to its base: the whole base, every slot put back, every swapped part put back. From the code of its
own parts and of the shared parts, heads and functions that its recipe uses: one mutant for each place where a rule
applies. From its claims: the edits listed in `Claims.mutants`. From its recipes: one for each setting (see `settings`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import is_dataclass
from functools import cache, partial
from types import CodeType, FunctionType
from typing import Any

from assay.claims.claim import Edit
from assay.claims.find import find_claims
from assay.recipes.method import Method
from assay.claims.mutants.edits import compiled, edited, installed, raw, replaced, tree_of
from assay.claims.mutants.mutant import Mutant
from assay.claims.mutants.rules import variants
from assay.claims.mutants.settings import setting_mutants
from assay.claims.shipped import home, recorded_settings
from assay.core.difference import Change, differences, taken
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import children
from assay.recipes.presets import Preset
from assay.runs import catalogue, method_index
from assay.runs.user_code.loading import load

SHARED = (
    *(f"assay.parts.{name}." for name in (
        "objectives", "credit", "critics", "fits", "targets", "predictions", "aggregations", "regularizers",
        "constraints", "rewards",
    )),
    *(f"assay.models.heads.{name}." for name in ("bounded", "bins", "value", "score")),
    *(f"assay.ops.{name}." for name in ("groups", "returns", "divergences")),
)
"""Packages whose functions are changed if the method uses them, besides its own code. Shared rollouts, sources,
curricula and distributions are not of one method; their laws and tests check them.
"""
LEFT_OUT = (
    "__post_init__", "__repr__", "check", "examples", "together", "needs", "reads", "writes", "title", "models",
    "count", "num_starts", "frame", "describe", "build",
)
"""Functions that declare or check something and compute no number."""
NOT_MECHANISM = ("steps", "hidden", "width", "optimizer", "name", "body", "batch", "capacity")
"""Last names of paths whose values are sizes and rates, not the mechanism."""


def mutants(key: str, method: Method) -> list[Mutant]:
    """Returns all mutants: those of the difference to the base, those written down, those of the code and, if the
    settings are recorded, those of the settings.
    """
    own = [*swaps(method), *map(written, find_claims(key).mutants), *edits(key, method)]
    return own if recorded_settings(key) is None else [*own, *setting_mutants(method)]


# ---------------------------------------------------------------------------------------------------- put back
def swaps(method: Method) -> list[Mutant]:
    """Returns the mutants in which the base, one of its slots, or one of its parts is put back."""
    function = raw(method.recipe)
    if method.base is None or function is None:
        return []
    base, ours = method.base(home(method)), method.recipe(home(method))
    changes = [one.path for one in differences(base, ours) if one.is_part and not is_size(one)]
    # dict.fromkeys: each path once, the widest first.
    paths: list[tuple[str, ...]] = list(dict.fromkeys([(), *map(slot_path, changes), *changes]))
    found = []
    for path in paths:
        if is_buildable(partial(taken, ours, base, path)):
            told = ".".join(path) or "the whole recipe"
            found.append(Mutant("base", f"{told} as in {base.name}", partial(put_back, function, method, path)))
    return found


def slot_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the path of the slot that holds a changed part."""
    return path[:3] if path[0] == "stages" and len(path) > 2 else path[:1]


def is_size(change: Change) -> bool:
    """Returns whether a change is one of size or rate, or of a network's body."""
    return any(name in NOT_MECHANISM for name in change.path)


def is_buildable(make: Callable[[], Recipe]) -> bool:
    """Returns whether the changed recipe can be made and checked."""
    try:
        make().check()
    except (AssayError, TypeError, AttributeError, ValueError):  # parts that only fit together
        return False
    return True


def put_back(function: FunctionType, method: Method, path: tuple[str, ...]) -> AbstractContextManager[None]:
    """Makes the recipe function return its recipe with the value at `path` as in the base."""

    def change(ours: Recipe, args: tuple[Any, ...]) -> Recipe:
        place = args[0] if args and isinstance(args[0], Preset) else method.presets[0]
        assert method.base is not None
        return taken(ours, method.base(place), path)

    return replaced(function, change)


# ---------------------------------------------------------------------------------------------------- code
def written(edit: Edit) -> Mutant:
    """Returns the mutant of an edit."""
    function, code = edited(edit.function, edit.old, edit.new)
    return Mutant("written", edit.name, partial(installed, function, code))


def edits(key: str, method: Method) -> list[Mutant]:
    """Returns the mutants that rules make of the functions of a method."""
    found = []
    for name, function in functions_of(key, method).items():
        names: list[str] = []
        for rule, told, code in changes_of(function):
            names.append(f"{name}: {told}")
            nth = f" (#{names.count(names[-1])})" if names.count(names[-1]) > 1 else ""
            found.append(Mutant(rule, names[-1] + nth, partial(installed, function, code), function.__code__))
    return found


@cache
def changes_of(function: FunctionType) -> list[tuple[str, str, CodeType]]:
    """Returns rule, description and code of each change of a function; once, since methods share functions."""
    made = [(rule, told, compiled(function, changed)) for rule, told, changed in variants(tree_of(function))]
    return [(rule, told, code) for rule, told, code in made if code is not None and is_other(code, function.__code__)]


def is_other(new: CodeType, old: CodeType) -> bool:
    """Returns whether two codes differ in more than line numbers."""
    return (new.co_code, new.co_consts, new.co_names) != (old.co_code, old.co_consts, old.co_names)


def functions_of(key: str, method: Method) -> dict[str, FunctionType]:
    """Returns the functions that compute the numbers of a method, by name: own ones first."""
    recipe = method.recipe(home(method))
    own = own_module(key)
    parts, values = list(parts_in(recipe)), [value for part in parts_in(recipe) for _, value in children(part)]
    waiting = [pair for part in parts for cls in type(part).__mro__ for pair in methods_of(cls)]
    waiting += [(one.__qualname__, one) for value in values if isinstance(one := raw(value), FunctionType)]
    found: dict[str, FunctionType] = {}
    while waiting:
        name, function = waiting.pop(0)
        if function is None or name in found or not belongs(function, own):
            continue
        if function.__name__ in LEFT_OUT or (function.__name__.startswith("__") and function.__name__ != "__call__"):
            continue
        found[name] = function
        waiting += mentioned(function)
    return dict(sorted(found.items(), key=lambda item: not is_inside(item[1].__module__, own)))


def own_module(key: str) -> str:
    """Returns the module of a method's own code: its file or folder, or a user's file. Local modules that a user's file
    imports are known as modules inside it (see `user_code.loading`).
    """
    address = catalogue.method_address(key)
    if address is not None:
        return load(address.source).__name__
    return method_index.entries()[catalogue.method_key(key)].module


def is_inside(module: str, own: str) -> bool:
    """Returns whether a module is another one or inside it."""
    return f"{module}.".startswith(f"{own}.")


def parts_in(node: Any) -> Iterator[Any]:
    """Yields every part in a recipe, those of its phases included."""
    if is_dataclass(node) and not isinstance(node, type):
        yield node
    for _, item in children(node):
        yield from parts_in(item)


def belongs(function: FunctionType, own: str) -> bool:
    """Returns whether a function is the method's own or in a shared package."""
    return is_inside(function.__module__, own) or f"{function.__module__}.".startswith(SHARED)


def methods_of(cls: type) -> list[tuple[str, FunctionType]]:
    """Returns the functions that a class defines, properties included, by qualified name."""
    found = [(name, raw(value)) for name, value in vars(cls).items()]
    return [(f"{cls.__name__}.{name}", function) for name, function in found if function is not None]


def mentioned(function: FunctionType) -> list[tuple[str, FunctionType]]:
    """Returns the functions, and the methods of the classes, that a function names: by a global name or as an
    attribute of an imported module.
    """
    found: list[tuple[str, FunctionType]] = []
    for node in ast.walk(tree_of(function)):
        target: Any = None
        if isinstance(node, ast.Name):
            target = function.__globals__.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = function.__globals__.get(node.value.id)
            target = getattr(module, node.attr, None) if type(module) is type(sys) else None
        plain = raw(target) if callable(target) and not isinstance(target, type) else None
        found += methods_of(target) if isinstance(target, type) else []
        found += [(plain.__qualname__, plain)] if plain is not None else []
    return found
