"""The range of a held-out score, as far as a run's config determines it: no interval leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from assay.core.settings import describe
from assay.core.slots import Task

Range: TypeAlias = tuple[float, float]
UNIT_ITEMS = (
    "Addition", "Countdown", "Files", "GraphPath", "Judging", "Lookup", "Mixture", "Needle", "ProxyStrings",
    "Refusing", "Scratch", "Sorting", "TextFile", "Thinking",
)  # fmt: skip
"""Prompts of this package whose verifier gives 0 to 1; that of a user's own file may give anything."""
UNIT_TASKS = ("PairsTask", "EnumerableTask")
"""Tasks of this package whose held-out scores are 0 to 1, whatever their items are."""


def value_at(config: Mapping[str, Any], *path: str) -> Any:
    """Returns the value at a path of a config, or None."""
    found: Any = config
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def known_range(config: Mapping[str, Any]) -> Range | None:
    """Returns the lowest and the highest possible score if the config determines them: verifiers of this package give
    0 to 1, CartPole pays 1 for each step, rewards with a declared range are mapped to 0 to 1. None for any other task,
    and for own rewards without a range in the place of a verifier.
    """
    task, horizon = config.get("task_settings"), value_at(config, "task_settings", "spec", "horizon")
    if value_at(task or {}, "scorer") is not None:
        return (0.0, 1.0) if value_at(task or {}, "scorer", "part") == "Ranged" else None
    has_unit_items = value_at(config, "task_settings", "items", "part") in UNIT_ITEMS
    if has_unit_items or value_at(task or {}, "part") in UNIT_TASKS:
        return 0.0, 1.0
    is_cartpole = value_at(config, "task_settings", "dynamics", "part") == "CartPole" or config.get("task") in (
        "CartPole-v0",
        "CartPole-v1",
    )
    return (0.0, float(horizon)) if is_cartpole and type(horizon) is int and horizon > 0 else None


def range_of(task: Task) -> Range | None:
    """Returns the range that a task states, or else that its settings determine."""
    return task.spec.scores or known_range({"task": task.name, "task_settings": describe(task)})
