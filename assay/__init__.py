"""Assay: one reinforcement-learning library for tokens and torques."""

from typing import TYPE_CHECKING, Any

from assay.version import __version__

if TYPE_CHECKING:
    from assay.engine import Placement
    from assay.optimizers import Adam
    from assay.recipe import Copy, Recipe, Stage
    from assay.run import Run, load, resume, train
    from assay.stacking.run import train_stacked
    from assay.types import AssayError, Experience

HOMES = {
    "Adam": "optimizers",
    "AssayError": "types",
    "Copy": "recipe",
    "Experience": "types",
    "Placement": "engine",
    "Recipe": "recipe",
    "Run": "run",
    "Stage": "recipe",
    "load": "run",
    "resume": "run",
    "train": "run",
    "train_stacked": "stacking.run",
}
"""Where each public name lives; it is imported when it is first used, so that `import assay` is quick."""
MODULES = ("bases", "checks", "evidence", "probes", "schedules", "worlds")
"""Public modules, imported when they are first used."""

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
    """A public name, from the module it lives in."""
    import importlib

    if name in MODULES:
        return importlib.import_module(f"assay.{name}")
    if name not in HOMES:
        raise AttributeError(f"module 'assay' has no attribute '{name}'")
    return getattr(importlib.import_module(f"assay.{HOMES[name]}"), name)
