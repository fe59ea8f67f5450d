"""Finds every part of the package, so that no list is needed and no part escapes the laws silently.

A part is a frozen dataclass that inherits its slot (`class Clip(TrustRegion)`); the slot classes are in
`assay.core.slots`.
Its instances are the default one, if all settings have defaults, and one for each entry of

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"length": 64},)

which a part with required settings must have. A public frozen dataclass of a part module that is not a part gives the
reason in `not_a_part: ClassVar[str]`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType
from typing import Any, NamedTuple

from assay.core.columns import GIVEN, texts
from assay.core.errors import AssayError

Examples = Mapping[str, Sequence[Mapping[str, Any]]]

PLACES = ("parts", "models", "methods", "core.schedules", "core.optimizers", "core.verifier")
"""Folders and modules of `assay` that hold parts."""
WITHOUT_PARTS = (".pretrained",)
"""Folders without parts that can be made here: pretrained models need a folder."""


class Part(NamedTuple):
    """A discovered class, the slot it inherits, and instances to check."""

    slot: str
    cls: type
    instances: tuple[Any, ...]


def slot_of(cls: type) -> str | None:
    """Returns the slot that a class inherits, or None."""
    slot = getattr(cls, "slot", None)
    return slot if isinstance(slot, str) else None


# ---------------------------------------------------------------------------------------------------- walking
def modules_of(name: str) -> Iterator[ModuleType]:
    """Yields a module, or all modules of a folder and of the folders in it."""
    module = importlib.import_module(f"assay.{name}")
    yield module
    for info in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
        yield importlib.import_module(info.name)


def is_frozen(value: Any) -> bool:
    """Returns whether a value is a class of frozen instances."""
    return isinstance(value, type) and is_dataclass(value) and bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def frozen_in(name: str) -> Iterator[type]:
    """Yields the public frozen dataclasses that the modules of a folder define."""
    for module in modules_of(name):
        if any(f"{module.__name__}.".count(f"{place}.") for place in WITHOUT_PARTS):
            continue
        for key, value in vars(module).items():
            if is_frozen(value) and value.__module__ == module.__name__ and not key.startswith("_"):
                yield value


def classes_of(name: str) -> Iterator[type]:
    """Yields those of the dataclasses that are parts: all without `not_a_part`."""
    yield from (cls for cls in frozen_in(name) if not vars(cls).get("not_a_part"))


def required_settings(cls: type) -> list[str]:
    """Returns the names of the settings that have no default."""
    return [f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]


def instances_of(cls: type, examples: Examples) -> tuple[Any, ...]:
    """Returns the default instance and the examples; AssayError if there is neither."""
    listed = [*getattr(cls, "examples", ()), *examples.get(cls.__name__, ())]
    required = required_settings(cls)
    if required and not listed:
        entry = "{" + ", ".join(f'"{name}": ...' for name in required) + "}"
        line = f"examples: ClassVar[tuple[dict[str, Any], ...]] = ({entry},)"
        raise AssayError(f"{cls.__module__}.{cls.__name__} has settings without a default. Add to the class: {line}")
    return (*(() if required else (cls(),)), *(cls(**settings) for settings in listed))


def parts(examples: Examples | None = None) -> list[Part]:
    """Returns every part of the package; AssayError for a class that satisfies no slot or cannot be instantiated.

    `examples` adds instances by class name to a part's own examples.
    """
    found = []
    for place in PLACES:
        for cls in classes_of(place):
            slot = slot_of(cls)
            if slot is None:
                raise AssayError(
                    f"{cls.__module__}.{cls.__name__} inherits no slot. Inherit one of assay.core.slots, or state "
                    "`not_a_part: ClassVar[str]` with the reason"
                )
            found.append(Part(slot, cls, instances_of(cls, examples or {})))
    return found


# ---------------------------------------------------------------------------------------------------- columns
class Declaration(NamedTuple):
    """What one part says about a column: "axes: meaning", the axes alone, or ''."""

    cls: type
    column: str
    text: str
    is_written: bool


class Column(NamedTuple):
    """A column of `Experience.extra`: its axes, its meaning, and the parts that write it (none: task or engine)."""

    axes: str
    meaning: str
    writers: tuple[type, ...]


def declarations() -> Iterator[Declaration]:
    """Yields what every class of the package says about the columns that it writes or reads. Those without laws
    (`not_a_part`) count too; names that a wrapper reads are models.
    """
    for cls in (one for place in PLACES for one in frozen_in(place) if slot_of(one) != "wrapper"):
        made = [] if required_settings(cls) else [cls()]
        for part in (*made, *(cls(**settings) for settings in getattr(cls, "examples", ()))) or (cls,):
            if slot_of(cls) == "annotation":
                yield Declaration(cls, part.column, part.means, is_written=True)
                continue
            for is_written, names in ((True, getattr(part, "writes", ())), (False, getattr(part, "reads", ()))):
                for column, text in texts(() if isinstance(names, property) else names).items():
                    yield Declaration(cls, column, text, is_written)


def stated(text: str) -> Column:
    """Returns the column of a declaration, without writers."""
    axes, _, meaning = text.partition(": ")
    return Column(axes, meaning, ())


def columns() -> dict[str, Column]:
    """Returns the table of all columns: those of the task and the engine, then those of parts, by name."""
    found = {name: stated(text) for name, text in GIVEN.items()}
    said = sorted(declarations(), key=lambda one: (one.column, ":" not in one.text, one.text == ""))
    for cls, name, text, is_written in said:
        known = found.get(name) or stated(text)
        writers = (*known.writers, cls) if is_written and name not in GIVEN else known.writers
        found[name] = known._replace(writers=tuple(dict.fromkeys(writers)))
    return found
