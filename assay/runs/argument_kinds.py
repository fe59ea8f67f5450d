"""Arguments of the functions of Python are held against their annotations before anything is done with them."""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from assay.core.errors import AssayError

P = ParamSpec("P")
R = TypeVar("R")
NUMBERS: dict[Any, type] = {int: numbers.Integral, float: numbers.Real}
"""What stands for a kind of number; True and False stand for none."""
WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "True or False", type(None): "None"}
UNIONS = (Union, types.UnionType)


def kinds_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Returns the function, which raises AssayError for a keyword of another kind than its annotation has: numbers,
    texts, truth values, sequences, mappings and classes. What else an annotation may say is left to the function, and
    so are arguments that are missing or unknown, which are errors of Python.
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = kinds_of(function)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)
        for name, value in given.items():
            kind = kinds.get(name)
            if kind is not None and not fits(value, kind):
                raise AssayError(f"{name} is {value!r:.60}. Use {words(kind)}.")
        return function(*args, **kwargs)

    return checked


@functools.cache
def kinds_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the annotations of a function's parameters by keyword alone; the others have sentences of their own."""
    parameters = inspect.signature(function).parameters.items()
    named = {name for name, one in parameters if one.kind is one.KEYWORD_ONLY}
    return {name: kind for name, kind in get_type_hints(function).items() if name in named}


def fits(value: Any, kind: Any) -> bool:
    """Returns whether a value is of a kind; True for a kind that cannot be asked."""
    if get_origin(kind) in UNIONS:
        return any(fits(value, one) for one in get_args(kind))
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) and not isinstance(value, bool)
    base = os.PathLike if kind is Path else get_origin(kind) or kind
    if base is Sequence and isinstance(value, str | bytes):
        return False
    return isinstance(value, base) if isinstance(base, type) and base is not Any else True


def words(kind: Any) -> str:
    """Returns a kind in words."""
    if get_origin(kind) in UNIONS:
        return " or ".join(dict.fromkeys(words(one) for one in get_args(kind)))
    if kind in WORDS:
        return WORDS[kind]
    base = get_origin(kind) or kind
    if base in (Sequence, Mapping):
        return "a list" if base is Sequence else "a dict"
    return f"a {base.__name__}"
