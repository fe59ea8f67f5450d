"""Assay: one reinforcement-learning library for tokens and torques."""

from importlib.util import find_spec
from typing import Any

from assay.core import moved
from assay.core.lazy import attach
from assay.version import __version__ as __version__

_import_name, __dir__, __all__ = attach(__name__, __file__)
moved.install()


def __getattr__(name: str) -> Any:
    """Imports a public name on first use; a module that has moved warns. Of a method's name the error says how methods
    are named.
    """
    if moved.moved_to(name):
        return moved.import_moved(name)
    try:
        return _import_name(name)
    except AttributeError as error:
        if not name.startswith("_") and find_spec(f"{__name__}.{name}") is None:
            from assay.runs.method_names import method_meant

            error.args = (f"{error}. {method_meant(name)}".removesuffix(". "),)
        raise
