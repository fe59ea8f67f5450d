"""A wrong version of a method."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True)
class Mutant:
    """A wrong version of a method: the rule that made it, what is changed where, and how to install it."""

    rule: str
    name: str
    install: Callable[[], AbstractContextManager[None]]
    code: CodeType | None = None
    """The code that a rule changed, None for other mutants."""
