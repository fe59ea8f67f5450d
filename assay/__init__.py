"""Assay: one reinforcement-learning library for tokens and torques."""

from assay.engine import Placement
from assay.recipe import Adam, Copy, Recipe, Stage
from assay.run import Run, load, resume, train
from assay.types import AssayError, Experience
from assay.version import __version__

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
]
