"""Laws of choices inside a part: small values that select how one thing is done. Axes are in the arguments' names.

A choice is called in its own way, so the laws fill the arguments of its methods by their declared types (and tensors by
the axes in their names) and call what can be called so; the laws of the part around it try the rest. A method whose
arguments cannot be filled, and one that refuses them by an AssayError, are left out; any other error breaks the laws.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

from assay.claims.discover import instances_of, is_frozen
from assay.claims.laws.trials import columns_of
from assay.claims.laws.cases import EPISODES, TORQUES, build, normal
from assay.claims.laws.laws import Contract, Finding, law, other_streams
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.core.settings import describe
from assay.core.slots import Task
from assay.tasks.control.cartpole import cartpole

SIZES = {"N": 6, "M": 4, "R": 6, "F": 3, "P": 2}
"""Axes of tensors that choices are called with; B and T are those of the experience."""
NUMBERS = {"channel": 0}
"""Whole numbers by the argument's name, where a part accepts few of them; others are 5."""


class NoArgumentError(Exception):
    """No value is known for an argument of a declared type."""


class Inside:
    """A choice as the laws see it: what it declares as `breaks` are laws of the part around it."""

    def __init__(self, part: Any) -> None:
        self.part = part


@dataclass(frozen=True)
class ChoiceCase:
    """The arguments that its methods are called with."""

    name: str = "arguments by their declared types"


# ---------------------------------------------------------------------------------------------------- calling
def axes_of(name: str) -> str:
    """Returns the axes that a tensor's name ends with; one axis where it has none."""
    last = name.rpartition("_")[2] if "_" in name else ""
    return last if last.isupper() else "N"


def tensor_of(name: str, batch: Experience) -> Tensor:
    """Returns a tensor for an argument: positive numbers, row numbers for the sides of matches, bool for kinds."""
    sizes = {**SIZES, "B": len(batch), "T": batch.num_columns}
    shape = [sizes.get(axis, 3) for axis in axes_of(name)]
    if name.startswith(("first", "second")):
        return (torch.arange(shape[0]) + 2 * name.startswith("second")) % len(batch)
    if name.startswith("categorical"):
        return torch.zeros(shape, dtype=torch.bool)
    return 0.5 + normal(name, shape).abs()


def matches(pairs: Any) -> list[tuple[float, float]]:
    """Returns a judge of pairs of members: the later member is better."""
    return [(float(one), float(other)) for one, other in pairs]


def argument(name: str, kind: Any) -> Any:
    """Returns a value for an argument of a declared type; raises NoArgumentError if no value is known."""
    batch = build(TORQUES, EPISODES)
    made: dict[Any, Callable[[], Any]] = {
        Tensor: lambda: tensor_of(name, batch), float: lambda: 0.1, int: lambda: NUMBERS.get(name, 5),
        Draw: lambda: Draw(3), np.ndarray: lambda: np.arange(6), tuple[int, int]: lambda: (8, 20),
        Experience: lambda: batch, Task: cartpole,
    }  # fmt: skip
    if kind in made:
        return made[kind]()
    if is_frozen(kind):
        try:
            return instances_of(kind, {})[0]
        except AssayError as error:  # it has settings without a default, and no examples
            raise NoArgumentError(f"no value for the argument '{name}': {error}") from None
    if "tuple[int, int]" in str(kind) and "list[tuple[float, float]]" in str(kind):
        return matches
    raise NoArgumentError(f"no value for the argument '{name}' of type {kind}")


def filled(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the arguments of a function by name."""
    hints = get_type_hints(function)
    return {one: argument(one, hints[one]) for one in inspect.signature(function).parameters if one != "self"}


def called(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Calls a function and returns its result; a function that it returns is called too."""
    result = function(**given)
    return result(**filled(result)) if inspect.isfunction(result) else result


def calls(part: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the public methods that can be called with such arguments, and the arguments, by name."""
    for name, method in inspect.getmembers(type(part), inspect.isfunction):
        if name.startswith("_") and name != "__call__":
            continue
        try:
            given = filled(method)
            called(getattr(part, name), copy.deepcopy(given))
        except (NoArgumentError, AssayError):  # no generic call can be made: the part around it has laws of its own
            continue
        yield name, given


def is_same(one: Any, other: Any) -> bool:
    """Returns whether two results are equal, all the way down; nan equals nan."""
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor) and one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())
        )
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, Experience):
        return is_same(dict(columns_of(one)), dict(columns_of(other)))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)


# ---------------------------------------------------------------------------------------------------- laws
@law("it is a frozen value: equal settings are equal choices")
def value(part: Inside, case: ChoiceCase) -> Iterator[str]:
    """Equal choices have equal hashes, if they are hashable."""
    if not is_frozen(type(part.part)):
        yield f"{type(part.part).__name__} is not a frozen dataclass"
        return
    twin = replace(part.part)
    if twin != part.part:
        yield "a copy with equal settings is not equal"
    try:
        hashes = hash(twin), hash(part.part)
    except TypeError:
        return  # comparable is enough
    if hashes[0] != hashes[1]:
        yield "equal choices have different hashes"


@law("its settings can be described as JSON")
def described(part: Inside, case: ChoiceCase) -> Iterator[str]:
    """A run folder stores them so."""
    try:
        json.dumps(describe(part.part), allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"{error}"


@law("equal choices give equal results of equal inputs")
def repeats(part: Inside, case: ChoiceCase) -> Iterator[str]:
    """The choice and a copy of it, with the global random streams at different places, and the choice again."""
    for name, given in calls(part.part):
        results = []
        for seed, choice in enumerate((part.part, replace(part.part), part.part)):
            with other_streams(seed):
                results.append(called(getattr(choice, name), copy.deepcopy(given)))
        if not is_same(results[0], results[1]) or not is_same(results[0], results[2]):
            yield f"two calls of {name} gave different results"


@law("inputs are not modified")
def unmodified(part: Inside, case: ChoiceCase) -> Iterator[str]:
    """Its arguments are unchanged after the call."""
    for name, given in calls(part.part):
        before = copy.deepcopy(given)
        called(getattr(part.part, name), given)
        yield from (
            f"{name} changed its argument {one}"
            for one, kept in before.items()
            if isinstance(kept, Tensor | np.ndarray | Experience) and not is_same(kept, given[one])
        )


CHOICE = Contract("choice", (value, described, repeats, unmodified), lambda part: [ChoiceCase()], Inside)


def check_choice(part: Any) -> list[Finding]:
    """Checks the laws of a choice inside a part."""
    return CHOICE.check(part)
