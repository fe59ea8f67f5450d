"""The difference of two recipes: parts that were swapped, added or left out, and settings that were changed.

It is computed from the values, so the list of a method's changes cannot disagree with its code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

from assay.core.recipe import Phase, Recipe, Stage
from assay.core.settings import children, is_schedule


class Absent:
    """Stands for a part that one of the two recipes does not have."""

    def __repr__(self) -> str:
        return "-"


ABSENT = Absent()
TERMS = ("objective", "regularizers", "critic")
"""The fields of a stage that hold losses."""


@dataclass(frozen=True)
class Change:
    """The values at one path in the two recipes; ABSENT if a recipe has no value there."""

    path: tuple[str, ...]
    before: Any
    after: Any

    @property
    def slots(self) -> tuple[str, ...]:
        """The fields of the recipe or stage that contain the path: credit, rollout, objective, optimizer."""
        if self.path[0] != "stages":
            return self.path[:1]
        if len(self.path) > 2:
            return self.path[2:3]
        stages = [one for one in (self.before, self.after) if isinstance(one, Stage)]
        return tuple(name for name in TERMS if any(getattr(stage, name) for stage in stages))

    @property
    def place(self) -> str:
        """The path for display: a stage by its name, and without the class name if the part itself was swapped."""
        known = {type(one).__name__ for one in (self.before, self.after)}
        shown = self.path[:-1] if self.path[-1].partition("-")[0] in known else self.path
        return ".".join(shown[1:] if shown[0] == "stages" and len(shown) > 2 else shown)

    @property
    def is_part(self) -> bool:
        """True if a part was swapped, added or left out; False if a setting of a part in both recipes changed."""
        return any(is_dataclass(one) and not is_schedule(one) for one in (self.before, self.after))


def differences(before: Recipe, after: Recipe) -> list[Change]:
    """Returns the changes in the order of a recipe's fields, except names of recipes and stages."""
    return [change for change in below((), before, after) if change.path[-1] != "name"]


def below(path: tuple[str, ...], before: Any, after: Any) -> list[Change]:
    """Returns the changes from one tree to another. A swapped part is one change, whatever its settings."""
    if same(before, after):
        return []
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        pairs = [(name, before.get(name, ABSENT), after.get(name, ABSENT)) for name in {**before, **after}]
    elif isinstance(before, tuple) and isinstance(after, tuple) and all(map(is_dataclass, (*before, *after))):
        pairs = aligned(before, after)
    elif type(before) is type(after) and is_dataclass(before) and children(before):
        mine, theirs = dict(children(before)), dict(children(after))
        pairs = [(name, mine[name], theirs[name]) for name in mine]
    else:
        return [Change(path, before, after)]
    return [change for name, one, other in pairs for change in below((*path, name), one, other)]


def same(one: Any, other: Any) -> bool:
    """Returns whether two values are equal; arrays, whose comparison has no single truth value, by their repr."""
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):
        return repr(one) == repr(other)


def aligned(before: tuple[Any, ...], after: tuple[Any, ...]) -> list[tuple[str, Any, Any]]:
    """Pairs elements of the same name. If each side has exactly one left over, these two are a pair."""
    mine, theirs = dict(children(before)), dict(children(after))
    pairs = [(name, mine.get(name, ABSENT), theirs.get(name, ABSENT)) for name in {**mine, **theirs}]
    lost, new = ([pair for pair in pairs if pair[place] is ABSENT] for place in (2, 1))
    if len(lost) == len(new) == 1:
        both = (new[0][0], lost[0][1], new[0][2])
        pairs = [both if pair is new[0] else pair for pair in pairs if pair is not lost[0]]
    return pairs


def taken(node: Any, origin: Any, path: tuple[str, ...]) -> Any:
    """Returns `node` with the value at `path` as it is in `origin`: swapped, added, or removed if origin has none.

    `path` is that of a `Change` between the two, whichever is the first. With an empty path the result is `origin`.
    """
    if not path:
        return origin
    name, rest = path[0], path[1:]
    if isinstance(node, Mapping) and isinstance(origin, Mapping):
        pairs = [(key, origin.get(key, ABSENT), node.get(key, ABSENT)) for key in {**node, **origin}]
        kept = {key: taken(mine, other, rest) if key == name else mine for key, other, mine in pairs}
        return {key: value for key, value in kept.items() if value is not ABSENT}
    if isinstance(node, tuple) and isinstance(origin, tuple):
        return taken_in_order(node, origin, name, rest)
    return replace(node, **{name: taken(getattr(node, name), getattr(origin, name), rest)})


def taken_in_order(node: tuple[Any, ...], origin: tuple[Any, ...], name: str, rest: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns a tuple of parts with the one called `name` as it is in `origin`, an added one at its place there."""
    found = [pair for pair in aligned(origin, node) if pair[0] == name]
    if not found:  # the name is that of the other side of a swapped pair
        found = [(pair[0], pair[2], pair[1]) for pair in aligned(node, origin) if pair[0] == name]
    (_, other, mine), items = found[0], list(node)
    value = taken(mine, other, rest) if mine is not ABSENT else other
    if mine is ABSENT:
        items.insert(min(len(items), [item is other for item in origin].index(True)), value)
    else:
        place = [item is mine for item in node].index(True)
        items[place : place + 1] = [] if value is ABSENT else [value]
    return tuple(items)


# ---------------------------------------------------------------------------------------------------- text
def brief(value: Any) -> str:
    """Returns a part in one line: its class and the settings that differ from their defaults."""
    if isinstance(value, Recipe):
        return value.name
    if isinstance(value, Phase):
        return f"{brief(value.recipe)} for {value.steps} steps"
    if isinstance(value, Stage):
        return f"trains {', '.join(value.trains)} on {', '.join(map(brief, value.terms))}"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(changed_settings(value))})"
    if isinstance(value, partial):
        return brief(value.func)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(brief, value))})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {brief(item)}" for name, item in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:g}"
    return str(getattr(value, "__name__", value)) if callable(value) else str(value)


def changed_settings(part: Any) -> list[str]:
    """Returns the settings that differ from their defaults; a setting without a default is always included."""
    told = []
    for one in fields(part):
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        value = getattr(part, one.name)
        if one.init and one.repr and (default is MISSING or not same(value, default)):
            told.append(brief(value) if default is MISSING else f"{one.name}={brief(value)}")
    return told
