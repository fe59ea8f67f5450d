"""Reward functions inside of a recipe, called in worker processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from assay.core.calls import Rows, RowsElsewhere
from assay.core.faults import STAMP
from assay.core.recipe import Recipe
from assay.core.settings import replaced
from assay.parts.rewards.function import FromFunction
from assay.runs.user_code.addresses import module_file
from assay.runs.user_code.workers.process import Limits
from assay.runs.user_code.workers.remote import RemoteFunction


@dataclass(frozen=True)
class RemoteReward(RowsElsewhere):
    """A function of rewards and the same function in worker processes; its attributes (`range`, ...) are its own."""

    function: Callable[..., Any]
    remote: RemoteFunction = field(repr=False, compare=False)

    def rewards(self, rows: Rows, name: str) -> list[float | None]:
        """Returns its numbers, within the limits of the worker."""
        return self.remote.rewards(rows, name, self.remote.seconds)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Calls the function in this process."""
        return self.function(*given, **named)

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the function."""
        if name == "function":  # it is being unpickled
            raise AttributeError(name)
        return getattr(self.function, name)


def in_workers(recipe: Recipe, limits: Limits | None, seconds: float) -> Recipe:
    """Returns the recipe with its functions of rewards in worker processes, where another process can find them: those
    of files and importable modules. Without `limits` (`--in-process`) it is unchanged.
    """

    def moved(part: FromFunction) -> FromFunction:
        found = None if limits is None else located(part.function)
        if limits is None or found is None:
            return part
        remote = RemoteFunction(*found, limits, seconds)
        return replace(part, function=RemoteReward(part.function, remote))

    changed: Recipe = replaced(recipe, FromFunction, moved)
    return changed


def located(function: Callable[..., Any]) -> tuple[str, str, dict[str, str]] | None:
    """Returns source, name and digests of a function at the top of own code or of an importable module; None for others
    and for those of Assay itself.
    """
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__name__", "")
    found = vars(sys.modules[module]) if module in sys.modules else {}
    if found.get(name) is not function or module.partition(".")[0] in ("assay", "__main__"):
        return None
    if (stamp := found.get(STAMP)) is not None:
        return stamp["source"], name, stamp["files"]
    return (module, name, {}) if module_file(module) is not None else None
