"""Assay: one reinforcement-learning library for tokens and torques."""

from typing import TYPE_CHECKING, Any

from assay.version import __version__

if TYPE_CHECKING:
    from assay.core.errors import AssayError
    from assay.core.optimizers import Adam
    from assay.core.recipe import Copy, Recipe, Stage
    from assay.core.record import Experience
    from assay.engine.placement import Placement
    from assay.runs.run import Run, load, resume, train
    from assay.runs.stacked import train_stacked

HOMES = {
    "Adam": "core.optimizers",
    "AssayError": "core.errors",
    "Copy": "core.recipe",
    "Experience": "core.record",
    "Placement": "engine.placement",
    "Recipe": "core.recipe",
    "Run": "runs.run",
    "Stage": "core.recipe",
    "load": "runs.run",
    "resume": "runs.run",
    "train": "runs.run",
    "train_stacked": "runs.stacked",
}
"""The module of each public name; it is imported on first use, so that `import assay` is fast."""
MODULES = {
    "defaults": "recipes.defaults",
    "evidence": "evidence",
    "laws": "proof.laws",
    "probes": "claims.probes",
    "recipes": "recipes",
    "schedules": "core.schedules",
}
"""Public modules, imported on first use."""

__all__ = [
    "Adam",
    "AssayError",
    "Copy",
    "Experience",
    "Placement",
    "Recipe",
    "Run",
    "Stage",
    "__version__",
    "load",
    "resume",
    "train",
    "train_stacked",
]


def __getattr__(name: str) -> Any:
    """Imports a public name from its module."""
    import importlib

    if name in MODULES:
        return importlib.import_module(f"assay.{MODULES[name]}")
    if name not in HOMES:
        raise AttributeError(f"module 'assay' has no attribute '{name}'")
    return getattr(importlib.import_module(f"assay.{HOMES[name]}"), name)
