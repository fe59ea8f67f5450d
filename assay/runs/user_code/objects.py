"""Functions given as Python objects: those of a notebook, of a script, or made at run time.

A function of an importable module has an address there, and a run that uses it is resumed like any other. Another one
is remembered by name in this process (`python:NAME`): a run records a digest of its source, and is resumed where the
function was given again.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from assay.core.errors import AssayError
from assay.runs.user_code.addresses import PYTHON, module_file

GIVEN: dict[str, ModuleType] = {}
"""The functions given in this process, each as a module of its own, by address."""


def address_of_function(function: Callable[..., Any], option: str, place: int = 0) -> str:
    """Returns the address of a function: package.module:NAME where an import finds it, else python:NAME, remembered.

    A lambda is named by the option and its place. A later function of the same name replaces an earlier one.
    """
    if not callable(function) or isinstance(function, type):
        raise AssayError(f"{option}={function!r:.60} is not a function. Give a function, or FILE.py:NAME as text.")
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__name__", "")
    found = sys.modules.get(module)
    is_main = module == "__main__" or found is None or "." in getattr(function, "__qualname__", ".")
    if not is_main and vars(found).get(name) is function and module_file(module) is not None:
        return f"{module}:{name}"
    name = name if name.isidentifier() else f"{option}_{place}"
    holder = ModuleType(PYTHON + name)
    setattr(holder, name, function)
    GIVEN[PYTHON + name] = holder
    return PYTHON + name


def is_given(source: str) -> bool:
    """Returns whether a source is a function given as an object."""
    return source.startswith(PYTHON)


def given_module(source: str) -> ModuleType:
    """Returns the module that holds a given function; AssayError in a process where it was not given."""
    if source not in GIVEN:
        name = source.removeprefix(PYTHON)
        raise AssayError(
            f"this run was made with the Python function '{name}', which is not defined in this process. Give it "
            f"again, assay.resume(folder, functions=[{name}]), or put it into a file: FILE.py:{name}."
        )
    return GIVEN[source]


def function_digest(source: str) -> dict[str, str]:
    """Returns sixteen hex digits of the SHA-256 of a function's source, or of its code where that is not known."""
    name = source.removeprefix(PYTHON)
    function = inspect.unwrap(vars(given_module(source))[name])
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):  # typed into an interpreter, or not written in Python
        code = getattr(function, "__code__", None)
        text = repr(function) if code is None else repr((code.co_code, code.co_consts, code.co_names))
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16]}
