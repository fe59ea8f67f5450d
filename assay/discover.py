"""Finding parts by walking the part folders: there is no list to keep, and no way to be left out of the laws silently.

A part is a public frozen dataclass of a part folder (and of `reduce` and `schedules`). Its slot follows from the folder
and from the methods it has. Its instances are the default one, if all settings have defaults, and one for each entry of

    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"length": 64},)

which a part with required settings must have. A frozen dataclass that is no part says so: `not_a_part: ClassVar[str]`
with the reason.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import ModuleType
from typing import Any, NamedTuple

from assay.types import AssayError

Predicate = Callable[[type], bool]
Examples = Mapping[str, Sequence[Mapping[str, Any]]]


class Part(NamedTuple):
    """A discovered class, the slot it satisfies, and instances to check."""

    slot: str
    cls: type
    instances: tuple[Any, ...]


# ---------------------------------------------------------------------------------------------------- slots
def has(*names: str) -> Predicate:
    """Whether a class has these methods, properties or settings."""
    return lambda cls: all(
        any(name in vars(base) for base in cls.__mro__) or name in settings_of(cls) for name in names
    )


def settings_of(cls: type) -> tuple[str, ...]:
    """Names of a part's settings."""
    return tuple(f.name for f in fields(cls) if f.init) if is_dataclass(cls) else ()


def takes(num: int) -> Predicate:
    """Whether a call of an instance takes this many arguments."""
    return lambda cls: len(call_arguments(cls)) == num


def call_arguments(cls: type) -> tuple[str, ...]:
    """Names of the arguments of `__call__`, without self."""
    call = next((vars(base)["__call__"] for base in cls.__mro__ if "__call__" in vars(base)), None)
    return () if call is None else tuple(inspect.signature(call).parameters)[1:]


def both(first: Predicate, second: Predicate) -> Predicate:
    """Both hold."""
    return lambda cls: first(cls) and second(cls)


is_term = both(has("count", "together", "needs"), takes(2))

FOLDERS: dict[str, tuple[tuple[str, Predicate], ...]] = {
    "actors": (("actor", has("build")), ("wrapper", has("around", "reads"))),
    "constraints": (
        ("constraint", both(has("init", "observe"), takes(2))),
        ("certificate", both(has("num_starts"), takes(1))),
        ("gate", both(has("init"), takes(2))),
    ),
    "credit": (
        ("select", both(has("max_rounds"), takes(1))),
        ("credit", both(has("needs", "centred"), takes(1))),
        ("prepare", both(has("needs"), takes(1))),
        ("statistic", takes(2)),
    ),
    "critics": (("critic", has("build")), ("critic_loss", is_term)),
    "curricula": (("curriculum", both(has("init", "observe"), takes(3))),),
    "objectives": (("objective", is_term), ("trust", takes(3)), ("ratio", takes(2))),
    "reduce": (("aggregation", has("weigh", "count", "together")),),
    "regularizers": (("regularizer", is_term),),
    "rewards": (("reward", takes(3)),),
    "rollouts": (("explore", has("wrap")), ("rollout", both(has("init", "num_starts"), takes(5)))),
    "schedules": (("schedule", has("at")),),
    "sources": (("source", both(has("init"), takes(4))),),
}
"""Folder (or module) of `assay` -> the slots its parts can satisfy, in the order in which they are tried."""


def slot_of(cls: type, folder: str) -> str | None:
    """The first slot of the folder that the class satisfies."""
    return next((slot for slot, fits in FOLDERS[folder] if fits(cls)), None)


# ---------------------------------------------------------------------------------------------------- walking
def modules_of(name: str) -> Iterator[ModuleType]:
    """A module, or all modules of a folder."""
    module = importlib.import_module(f"assay.{name}")
    yield module
    for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
        yield importlib.import_module(f"{module.__name__}.{info.name}")


def is_frozen(value: Any) -> bool:
    """Whether a value is a class of frozen instances."""
    return isinstance(value, type) and is_dataclass(value) and bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def classes_of(name: str) -> Iterator[type]:
    """Public frozen dataclasses that the modules of a folder define, and that do not say that they are no part."""
    for module in modules_of(name):
        for key, value in vars(module).items():
            own = is_frozen(value) and value.__module__ == module.__name__ and not key.startswith("_")
            if own and not vars(value).get("not_a_part"):
                yield value


def instances_of(cls: type, examples: Examples) -> tuple[Any, ...]:
    """The default instance and the examples; AssayError where there is neither."""
    listed = [*getattr(cls, "examples", ()), *examples.get(cls.__name__, ())]
    required = [f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if required and not listed:
        entry = "{" + ", ".join(f'"{name}": ...' for name in required) + "}"
        line = f"examples: ClassVar[tuple[dict[str, Any], ...]] = ({entry},)"
        raise AssayError(f"{cls.__module__}.{cls.__name__} has settings without a default; add to the class: {line}")
    return (*(() if required else (cls(),)), *(cls(**settings) for settings in listed))


def parts(examples: Examples | None = None) -> list[Part]:
    """Every part of the package; AssayError for a class that satisfies no slot or cannot be instantiated.

    `examples` adds instances by class name, for those who want to check more than a part's own examples.
    """
    found = []
    for folder in FOLDERS:
        for cls in classes_of(folder):
            slot = slot_of(cls, folder)
            if slot is None:
                known = ", ".join(name for name, _ in FOLDERS[folder])
                raise AssayError(
                    f"{cls.__module__}.{cls.__name__} satisfies no slot of {folder} ({known}); give it the slot's "
                    "methods, or say `not_a_part: ClassVar[str] = why`"
                )
            found.append(Part(slot, cls, instances_of(cls, examples or {})))
    return found
