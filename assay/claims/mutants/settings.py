"""Mutants of settings: one number, switch, optional part or option of a shipped recipe is another.

| setting | mutant |
|---|---|
| true or false | the other |
| whole number n | 2 n; 0 becomes 1 |
| number x | x / 2; 0 becomes 0.5 |
| several numbers | the first one, by the rules above |
| an optional part or number | none |
| an option of a system | left out |

All settings of the recipe on the default task are changed, and those in which the recipes on other presets and the
variants differ from it. A recipe that its own checks refuse is no mutant: it cannot be run by mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any

from assay.claims.mutants.edits import raw, replaced
from assay.claims.mutants.mutant import Mutant
from assay.claims.shipped import Shipped, same, shipped_recipes
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import changed, children, read, settings
from assay.recipes.method import Method

SETTING = "setting"
Path = tuple[str, ...]


def setting_mutants(method: Method) -> list[Mutant]:
    """Returns the mutants of all settings of a method's recipes, and of its options; each change of a function once."""
    found: dict[tuple[Any, ...], Mutant] = {}
    first = dict[Path, Any]()
    for one in shipped_recipes(method):
        recipe, function = one.recipe(), plain_function(one)
        own = values_of(recipe)
        for path, old in own.items():
            if function is None or (path in first and same(first[path], old)):
                continue
            for other in others(recipe, path, old):
                told = f"{'.'.join(path)} {show_setting(old)} -> {show_setting(other)}"
                if (function, told) not in found and is_accepted(recipe, path, other):
                    install = partial(set_in, function, path, old, other)
                    found[function, told] = Mutant(SETTING, f"{one.name}: {told}", install)
        first = first or own
    return [*found.values(), *(without_option(method, name) for name in method.options)]


def plain_function(one: Shipped) -> FunctionType | None:
    """Returns the Python function that makes a recipe, that inside a `partial` too."""
    make: Any = one.make
    while isinstance(make, partial):
        make = make.func
    return raw(make)


def values_of(recipe: Recipe) -> dict[Path, Any]:
    """Returns settings, and the optional parts, by path."""
    return {**dict(optional_parts(recipe, ())), **settings(recipe)}


def optional_parts(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yields the parts, by path, in fields that may be None."""
    for name, item in children(value):
        if is_dataclass(item) and may_be_none(value, name):
            yield (*path, name), item
        yield from optional_parts(item, (*path, name))


def may_be_none(holder: Any, name: str) -> bool:
    """Returns whether a field of a part may be None, by its declared type."""
    return is_dataclass(holder) and any(one.name == name and "None" in str(one.type) for one in fields(holder))


def others(recipe: Recipe, path: Path, old: Any) -> list[Any]:
    """Returns the values that take the place of a setting; none for text, functions and what is not optional."""
    found = [None] if old is not None and may_be_none(read(recipe, path[:-1]), path[-1]) else []
    if isinstance(old, tuple) and old and isinstance(old[0], int | float):
        return [*found, (*other_numbers(old[0]), *old[1:])]
    return [*found, *other_numbers(old)] if isinstance(old, bool | int | float) else found


def other_numbers(old: float) -> list[Any]:
    """Returns another number of the same kind."""
    if isinstance(old, bool):
        return [not old]
    return [2 * old or 1] if isinstance(old, int) else [old / 2 or 0.5]


def is_accepted(recipe: Recipe, path: Path, other: Any) -> bool:
    """Returns whether the parts and the checks of a recipe accept a value."""
    try:
        changed(recipe, path, other).check()
    except (AssayError, TypeError, ValueError, AttributeError, AssertionError):
        return False
    return True


def set_in(function: FunctionType, path: Path, old: Any, new: Any) -> AbstractContextManager[None]:
    """Makes a recipe function return its recipe with another value at `path`, where it would have the old one: as if
    that number were another in its code.
    """

    def change(recipe: Recipe, args: tuple[Any, ...]) -> Recipe:
        here = values_of(recipe)
        return changed(recipe, path, new) if path in here and same(here[path], old) else recipe

    return replaced(function, change)


def without_option(method: Method, name: str) -> Mutant:
    """Returns the mutant of a system that does not set one of its options."""

    @contextmanager
    def installed() -> Iterator[None]:
        kept: Mapping[str, Any] = method.options
        object.__setattr__(method, "options", {key: value for key, value in kept.items() if key != name})
        try:
            yield
        finally:
            object.__setattr__(method, "options", kept)

    return Mutant(SETTING, f"options: {name} {method.options[name]} -> none", installed)


def show_setting(value: Any) -> str:
    """Returns a value for a name: a part by its class."""
    return type(value).__name__ if is_dataclass(value) else f"{value}"
