"""Assay: one reinforcement-learning library for tokens and torques."""

from typing import Any

from assay.core import moved
from assay.core.lazy import attach
from assay.version import __version__ as __version__

_import_name, __dir__, __all__ = attach(__name__, __file__)
moved.install()


def __getattr__(name: str) -> Any:
    """Imports a public name on first use; a module that has moved warns."""
    return moved.import_moved(name) if moved.moved_to(name) else _import_name(name)
