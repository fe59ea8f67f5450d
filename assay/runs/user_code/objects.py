"""Code given as Python objects: functions, classes and objects of a notebook, of a script, or made at run time.

What an importable module defines has an address there, and a run that uses it is resumed like any other. Another one
is remembered by name in this process (`python:NAME`): a run records a digest of its source, and is resumed where the
object was given again.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import CodeType, ModuleType
from typing import Any

from assay.core.errors import AssayError
from assay.runs.user_code.addresses import PYTHON, module_file

GIVEN: dict[str, ModuleType] = {}
"""The objects given in this process, each as a module of its own, by address."""


def address_of_function(function: Callable[..., Any], option: str, place: int = 0) -> str:
    """Returns the address of a function or of an object that can be called; AssayError for a class and for other
    values.
    """
    if not callable(function) or isinstance(function, type):
        raise AssayError(f"{option}={function!r:.60} is not a function. Give a function, or FILE.py:NAME as text.")
    return address_of_object(function, option, place)


def address_of_object(value: Any, option: str, place: int = 0) -> str:
    """Returns the address of an object: package.module:NAME where an import finds it, else python:NAME, remembered.

    A lambda, or an object without a name, is named by the option and its place. A later object of the same name
    replaces an earlier one.
    """
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__name__", "")
    found = sys.modules.get(module)
    is_main = module == "__main__" or found is None or "." in getattr(value, "__qualname__", ".")
    if not is_main and vars(found).get(name) is value and module_file(module) is not None:
        return f"{module}:{name}"
    return remembered(value, name if name.isidentifier() else f"{option}_{place}")


def remembered(value: Any, name: str) -> str:
    """Returns python:NAME after remembering the object in this process."""
    holder = ModuleType(PYTHON + name)
    setattr(holder, name, value)
    GIVEN[PYTHON + name] = holder
    return PYTHON + name


def remember(objects: Sequence[Any] | Mapping[str, Any]) -> None:
    """Remembers objects that a run was made with, by their own names or by those of a mapping."""
    if isinstance(objects, Mapping):
        for name, value in objects.items():
            remembered(value, name)
        return
    if not isinstance(objects, Sequence):
        raise AssayError(f"functions is {objects!r:.60}. Give a list of them, or a dict from names to objects.")
    for place, value in enumerate(objects):
        address_of_object(value, "functions", place)


def is_given(source: str) -> bool:
    """Returns whether a source is an object given in Python."""
    return source.startswith(PYTHON)


def given_module(source: str) -> ModuleType:
    """Returns the module that holds a given object; AssayError in a process where it was not given."""
    if source not in GIVEN:
        name = source.removeprefix(PYTHON)
        again = f"{{'{name}': ...}}" if re.search(r"_\d+$", name) else f"[{name}]"  # what had no name of its own
        raise AssayError(
            f"this run was made with the Python object '{name}', which is not defined in this process. Give it "
            f"again, assay.resume(folder, functions={again}), or put it into a file: FILE.py:{name}."
        )
    return GIVEN[source]


def function_digest(source: str) -> dict[str, str]:
    """Returns sixteen hex digits of the SHA-256 of an object's source, or of its code where that is not known."""
    name = source.removeprefix(PYTHON)
    text = "\n".join(texts_of(vars(given_module(source))[name]))
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16]}


def texts_of(value: Any) -> Iterator[str]:
    """Yields the source of a function or class; of another object that of its class, and the settings of a dataclass.
    A class typed into a notebook has the sources of its functions.
    """
    inner = inspect.unwrap(value) if callable(value) else value
    if not isinstance(inner, type) and getattr(inner, "__code__", None) is None:
        yield from texts_of(type(inner))
        if is_dataclass(inner):
            yield repr(inner)
        return
    try:
        yield inspect.getsource(inner)
    except (OSError, TypeError):  # typed into an interpreter, or not written in Python
        functions = vars(inner).values() if isinstance(inner, type) else [inner]
        codes = [getattr(one, "__code__", None) for one in functions]
        yield from (repr(plain_code(code)) for code in codes if code is not None)


def plain_code(code: CodeType) -> tuple[Any, ...]:
    """Returns what a code does, without the addresses that the texts of codes inside it have."""
    inside = [plain_code(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    return (code.co_code, inside, code.co_names)
