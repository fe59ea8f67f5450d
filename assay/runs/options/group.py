"""Groups of options: a frozen dataclass whose fields are options of the command line and entries of config.json."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_type_hints

from assay.core.errors import AssayError

if TYPE_CHECKING:
    from assay.core.recipe import Recipe
    from assay.core.slots import Task

Value = TypeVar("Value")
GroupType = TypeVar("GroupType", bound="Group")
WORDS = {
    int: "a whole number", float: "a number", str: "text", Path: "a path", bool: "true or false",
    tuple: "a list of texts",
}  # fmt: skip
"""How an error names the type of an option."""


def option(default: Value, text: str, *, metavar: str = "", decisive: bool = True, chosen: bool = False) -> Value:
    """Declares an option: its default, its help, and whether it can change the numbers of a run.

    Its type is the annotation: bool (a switch), int, float, str, Path, each possibly `| None`, `tuple[str, ...]`
    (repeatable), or `tuple[float, float] | None` (two numbers). One that is `chosen` for the hardware where the user
    does not say is missing among parsed arguments then, and a switch has --no-NAME.
    """
    about = {"help": text, "metavar": metavar, "decisive": decisive, "chosen": chosen}
    made: Value = field(default=default, metadata=about)
    return made


@dataclass(frozen=True)
class Group:
    """Options that belong together, and what they change in a plan. The default values change nothing."""

    title: ClassVar[str] = ""
    """Heading of the options in --help; without one they stand among the general options."""

    def check(self) -> None:
        """Raises AssayError for values out of range."""

    def sources(self) -> Iterator[str]:
        """Yields the files and modules of own code that the options name, so that their digests are recorded and a
        received run folder loads no other (see `assay.runs.user_code.consent`).
        """
        yield from ()

    def task(self, task: Task) -> Task:
        """Returns the task as the options change it, before a pretrained model is put in."""
        return task

    def recipe(self, recipe: Recipe, task: Task) -> Recipe:
        """Returns the recipe as the options change it, before `--set`."""
        return recipe

    def count_steps(self, steps: int | None, recipe: Recipe, task: Task) -> int | None:
        """Returns the number of training steps; None leaves it to the recipe."""
        return steps


def flag(name: str) -> str:
    """Returns the option of a field: max_tokens is --max-tokens, from_ is --from."""
    return "--" + name.rstrip("_").replace("_", "-")


def kinds_of(group: type[Group]) -> dict[str, type]:
    """Returns int, float, str, Path, bool or tuple for each field: its type without None."""
    found = {}
    for name, hint in get_type_hints(group).items():
        (kind,) = (one for one in get_args(hint) if one is not type(None)) if isinstance(hint, UnionType) else (hint,)
        found[name] = tuple if str(kind).startswith("tuple") else kind
    return found


def add_group(parser: argparse.ArgumentParser, group: type[Group], only: Mapping[str, str] | None = None) -> None:
    """Adds a group's options under its title; with `only`, those that it names, with its help where it is not ""."""
    place, kinds = parser.add_argument_group(group.title) if group.title else parser, kinds_of(group)
    for one in fields(group):
        if only is not None and one.name not in only:
            continue
        kind, text = kinds[one.name], (only or {}).get(one.name) or one.metadata["help"]
        if kind is bool:
            unset = {"action": argparse.BooleanOptionalAction, "default": argparse.SUPPRESS}
            told = unset if one.metadata["chosen"] else {"action": "store_true"}
            place.add_argument(flag(one.name), dest=one.name, help=text, **told)
            continue
        metavar = one.metadata["metavar"] or {int: "N", float: "X"}.get(kind, "TEXT")
        told = {"dest": one.name, "metavar": metavar, "help": text}
        if is_pair(one):
            place.add_argument(flag(one.name), nargs=2, type=float, **told | {"metavar": tuple(metavar.split())})
        elif kind is tuple:
            place.add_argument(flag(one.name), action="append", default=[], **told)
        else:
            read, default = (given_text, argparse.SUPPRESS) if one.default == "" else (kind, one.default)
            default = argparse.SUPPRESS if one.metadata["chosen"] else default
            place.add_argument(flag(one.name), type=read, default=default, **told)


def is_pair(one: Field[Any]) -> bool:
    """Returns whether an option takes two numbers: a tuple that is None where it is not given."""
    return "tuple[float, float]" in str(one.type)


def is_two_numbers(value: Any) -> bool:
    """Returns whether a value is a tuple of two numbers."""
    return isinstance(value, tuple) and len(value) == 2 and all(type(one) in (int, float) for one in value)


def given_text(word: str) -> str:
    """Returns a word of the command line; an empty one, as of a shell variable that is not set, is an error."""
    if not word:
        raise argparse.ArgumentTypeError("it is empty. Leave it out, or give a value.")
    return word


def parsed_group(group: type[GroupType], values: Mapping[str, Any]) -> GroupType:
    """Returns a group from parsed arguments, records or an object's fields; other names are ignored.

    AssayError for a value of a wrong type.
    """
    chosen, kinds = {}, kinds_of(group)
    for one in fields(group):
        if one.name not in values:
            continue
        kind, value = kinds[one.name], values[one.name]
        value = tuple(value) if isinstance(value, list) else value
        if is_pair(one) and value is not None and not is_two_numbers(value):
            raise AssayError(f"{flag(one.name)} is {value!r}. Use two numbers.")
        if "tuple[str" in str(one.type) and not all(isinstance(each, str) for each in value or ()):
            raise AssayError(f"{flag(one.name)} is {value!r:.60}. Use {WORDS[kind]}.")
        right = float(value) if kind is float and type(value) is int else value
        is_unset = right is None and one.default is None
        if not is_unset and (not isinstance(right, kind) or isinstance(right, bool) is not (kind is bool)):
            raise AssayError(f"{flag(one.name)} is {value!r}. Use {WORDS[kind]}.")
        chosen[one.name] = right
    return group(**chosen)


def changed(group: Group) -> dict[str, Any]:
    """Returns the values that differ from their default."""
    return {one.name: value for one in fields(group) if (value := getattr(group, one.name)) != one.default}


def record_of(group: Group, *, decisive: bool) -> dict[str, Any]:
    """Returns changed values as JSON: those that decide numbers, or the others."""
    wanted = {one.name for one in fields(group) if one.metadata["decisive"] is decisive}
    found = {name: value for name, value in changed(group).items() if name in wanted}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def words_of(group: Group) -> list[str]:
    """Returns changed values as words of a command line."""
    words: list[str] = []
    pairs = {one.name for one in fields(group) if is_pair(one)}
    for name, value in changed(group).items():
        if name in pairs:
            words += [flag(name), *(repr(float(one)) for one in value)]
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [flag(name)] if each is True else [flag(name), str(each)]
    return words
