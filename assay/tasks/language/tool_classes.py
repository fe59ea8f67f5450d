"""Classes whose public methods are tools: a new instance for each rollout, with its own state.

class Notes:
    def reset(self, topic: str) -> str | None: ...    optional: fields of the row, by name; returns more prompt text
    def add(self, note: str) -> str: ...              a tool
    def reward(self) -> float: ...                    optional, or an attribute: the outcome if rows have no answers
    def close(self) -> None: ...                      optional
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts.concurrent_calls import settled
from assay.tasks.language.tools import Row

RESET, REWARD, CLOSE = NOT_TOOLS = ("reset", "reward", "close")
"""Names of a class that are no tools."""


@dataclass(frozen=True)
class ToolClass:
    """A class of tools, its methods' descriptions, whether its reset returns text and whether it has a reward. `remote`
    makes an object of it in another process.
    """

    name: str
    make: Callable[[], Any]
    schemas: tuple[Mapping[str, Any], ...]
    tells: bool = False
    pays: bool = False
    remote: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    def open(self, row: Row) -> Instance:
        """Makes an instance and resets it with the fields of the row that its `reset` takes."""
        inner = (self.remote or self.make)()
        reset = getattr(inner, RESET, None)
        told = None if reset is None else settled(reset(**taken(reset, row, self.name)))
        if not isinstance(told, str | None):
            raise AssayError(f"{self.name}.reset returned {told!r:.60}. Return a text for the prompt, or None")
        return Instance(self.name, inner, told or "", self.pays)


@dataclass(frozen=True)
class Instance:
    """The tools of one rollout: the methods of an object."""

    name: str
    inner: Any
    told: str
    pays: bool

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Calls a method."""
        return getattr(self.inner, name)(**arguments)

    def reward(self) -> Outcome | None:
        """Returns the object's reward, a number or a fault; AssayError if it is neither."""
        if not self.pays:
            return None
        given = getattr(self.inner, REWARD, None)
        value = settled(given()) if callable(given) else given
        if isinstance(value, Score | PolicyFault | InfraFault):
            return value
        if value is None or isinstance(value, str) or not math.isfinite(float(value)):
            raise AssayError(f"{self.name}.reward is {value!r:.60}. Make it a finite number")
        return Score(float(value))

    def close(self) -> None:
        """Closes the object, if it can be closed."""
        close = getattr(self.inner, CLOSE, None)
        if close is not None:
            settled(close())


def taken(reset: Callable[..., Any], row: Row, name: str) -> dict[str, Any]:
    """Returns the fields of a row that `reset` takes, all of them if it has **kwargs; AssayError for one that the row
    lacks.
    """
    named = inspect.signature(reset).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in named):
        return dict(row)
    missing = [one.name for one in named if one.default is one.empty and one.name not in row]
    if missing:
        has = ", ".join(sorted(row))
        raise AssayError(f"{name}.reset takes '{missing[0]}', which the rows do not have. They have: {has}")
    return {one.name: row[one.name] for one in named if one.name in row}
