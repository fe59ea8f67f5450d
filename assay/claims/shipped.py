"""The recipes that a method ships, with all settings: on its default task, on each preset it lists, and its variants.

A method's record holds these settings. A setting that differs from the record was changed on purpose, and recorded
again (`assay claim KEY --settings`), or by mistake. A record only detects a change; that a setting does what it should
is shown by `assay.claims.wiring` and by the claims of the method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

from assay.claims.records import SETTINGS, read_record, record_path, update_record
from assay.core.moved import recorded_name
from assay.core.recipe import Recipe
from assay.core.settings import children
from assay.recipes.method import Method
from assay.recipes.presets import SUITES, Preset, preset_for
from assay.runs import catalogue

Settings = dict[str, Any]
"""Values by full path, as JSON has them."""
PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class Shipped:
    """One recipe of a method: the function that makes it, the preset, and the variant's name or ''."""

    preset: Preset
    make: Callable[..., Recipe]
    variant: str = ""

    @property
    def name(self) -> str:
        """Its name in records and claims: the preset's, after the variant's."""
        place = self.preset.name if self.preset.suite not in SUITES else f"{self.preset.name}, {self.preset.suite}"
        return f"{self.variant} on {place}" if self.variant else place

    def recipe(self) -> Recipe:
        """Makes the recipe."""
        return self.make(self.preset)


def home(method: Method) -> Preset:
    """Returns the preset of the method's default task; the first that it lists if it does not work on that one."""
    found = preset_for(catalogue.find_task(method.default_task))
    return found if catalogue.fits(method, found) else method.presets[0]


def shipped_recipes(method: Method) -> list[Shipped]:
    """Returns the method's recipes: on the preset of its default task first, then on the others that it lists, then its
    variants on each.
    """
    presets = [home(method), *(one for one in method.presets if one != home(method))]
    variants = [Shipped(preset, make, name) for name, make in method.variants.items() for preset in presets]
    return [*(Shipped(preset, method.recipe) for preset in presets), *variants]


# ---------------------------------------------------------------------------------------------------- settings
def settings_of(recipe: Recipe) -> Settings:
    """Returns every setting of a recipe by its path, with the class of every part, numbers that a class declares for
    all its parts, and the arguments of functions; what is None or empty is left out.
    """
    return {".".join(path): value for path, value in leaves(recipe, ())}


def leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the settings below a value, by path."""
    below = children(value)
    if is_dataclass(value) and not isinstance(value, type):
        if path and path[-1].partition("-")[0] != type(value).__name__:
            yield path, type(value).__name__
        yield from (((*path, name), number) for name, number in class_numbers(type(value)))
    elif isinstance(value, partial):
        given = [(str(place), one) for place, one in enumerate(value.args)]
        below = [("function", value.func), *given, *value.keywords.items()]
    elif not below and value is not None and value != () and value != {}:
        yield path, plain(value)
    for name, item in below:
        if name != "name":  # of recipes, stages and phases; those of stages and phases are in the path
            yield from leaves(item, (*path, name))


def plain(value: Any) -> Any:
    """Returns a setting as JSON has it: sequences as lists, functions and classes by name, other objects by class."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, tuple | list | set | frozenset):
        items = [plain(one) for one in value]
        return items if isinstance(value, tuple | list) else sorted(items, key=str)
    is_named = isinstance(value, type | FunctionType | BuiltinFunctionType)
    return recorded_name(value) if is_named else type(value).__name__


def class_numbers(cls: type) -> list[tuple[str, Any]]:
    """Returns the numbers that a class or its bases declare, which are no fields: a setting of all its parts."""
    found: dict[str, Any] = {}
    own = getattr(cls, "__dataclass_fields__", {})
    for base in reversed(cls.__mro__):
        kept = {name for name in vars(base) if not name.startswith("_")}
        kept -= {name for name, one in own.items() if "ClassVar" not in str(one.type)}
        found |= {name: vars(base)[name] for name in kept if isinstance(vars(base)[name], bool | int | float)}
    return sorted(found.items())


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Settings:
    """Returns what must be written over `theirs` to get `ours`; None removes a path."""
    changed = {path: value for path, value in ours.items() if path not in theirs or not same(theirs[path], value)}
    return changed | {path: None for path in theirs if path not in ours}


def same(one: Any, other: Any) -> bool:
    """Returns whether two settings are equal in value and type: True is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


# ---------------------------------------------------------------------------------------------------- records
def describe_method(method: Method) -> dict[str, Any]:
    """Returns what the record holds: default task, options of a system, all settings of the first recipe, those of the
    others as their difference to it; of variants, to the recipe on the same preset.
    """
    found: dict[str, Settings] = {}
    whole: dict[str, Settings] = {}
    for one in shipped_recipes(method):
        whole[one.name] = settings_of(one.recipe())
        base = Shipped(one.preset, method.recipe).name if one.variant else next(iter(whole))
        found[one.name] = difference(whole[one.name], whole[base] if base != one.name else {})
    return {"default_task": method.default_task, "options": dict(method.options), "recipes": found}


def record_settings(key: str) -> Path:
    """Writes the settings of a method's recipes into its record."""
    path = record_path(key)
    told = describe_method(catalogue.find_method(key)[1])
    return update_record(path, {**read_record(path), SETTINGS: told}, keep=())


def recorded_settings(key: str) -> dict[str, Any] | None:
    """Returns the recorded settings of a method; None without any."""
    return read_record(record_path(key)).get(SETTINGS)


def changes_since_record(key: str) -> list[str]:
    """Returns each difference of a method's recipes to its record, in words; all of them new without a record."""
    now, then = describe_method(catalogue.find_method(key)[1]), recorded_settings(key) or {}
    told = [f"{one}: {now[one]!r}, recorded {then.get(one)!r}" for one in TOLD if now[one] != then.get(one)]
    kept = then.get("recipes", {})
    told += [f"{name}: recorded, but not shipped" for name in kept if name not in now["recipes"]]
    for name, settings in now["recipes"].items():
        for path in difference(settings, kept.get(name, {})):
            value, old = settings.get(path), kept.get(name, {}).get(path)
            told.append(f"{name}: {path} is {value!r}, recorded {old!r}")
    return told


TOLD = ("default_task", "options")
