"""Calls of a user's function: of rewards on rows, with a time limit; every failure is an error that names it.

A reward function takes `rows` (a dict for each sequence), or columns by name: `prompts`, `completions`, `answers`, and
any field of the rows; with **kwargs it gets every field. It may be async. It returns one number for each row, as a
list, an array or a tensor; None where it does not apply to a row.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.exits import ended_after, kept_alive
from assay.core.faults import at_place

PLURALS = {"prompts": "prompt", "completions": "completion", "answers": "answer"}
"""Names of arguments that list an entry of the rows under another name."""
FIRST = {*PLURALS, *PLURALS.values()}
"""First arguments of functions of columns."""

Rows = Sequence[Mapping[str, Any]]


class OwnCodeError(AssayError):
    """An error in a user's function while a run uses it. The run can be resumed with the function fixed."""


class Overtime(Exception):
    """A call that did not return in time."""


def takes_columns(function: Callable[..., Any]) -> bool:
    """Returns whether a reward function takes columns: its first argument is one, or it has several without default."""
    named = named_arguments(function)
    needed = [one for one in named if one.default is one.empty]
    return bool(named) and named[0].name != "rows" and (named[0].name in FIRST or len(needed) > 1)


def named_arguments(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Returns the arguments of a function that have a name of their own."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]


def arguments(function: Callable[..., Any], rows: Rows, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a reward function for these rows; AssayError names a column that the rows lack."""
    if not takes_columns(function):
        return (list(rows),), {}
    columns = {key: [row.get(key) for row in rows] for key in dict.fromkeys(key for row in rows for key in row)}
    columns |= {plural: columns[key] for plural, key in PLURALS.items() if key in columns}
    named = named_arguments(function)
    missing = [one.name for one in named if one.name not in columns and one.default is one.empty]
    if missing:
        known = ", ".join(["rows", *sorted(columns)])
        raise AssayError(f"{name} takes '{missing[0]}', which the rows do not have. They have: {known}.")
    chosen = {one.name: columns[one.name] for one in named if one.name in columns}
    if any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values()):
        chosen = {key: value for key, value in columns.items() if key not in PLURALS.values()} | chosen
    return (), chosen


def within(seconds: float, call: Callable[[], Any], what: str) -> Any:
    """Returns the result of a call, or of the coroutine that it returns; raises Overtime after `seconds`.

    Exceptions are raised as they are; `sys.exit` and `os._exit` become an OwnCodeError. The call has a thread of its
    own, which is left behind if it does not end; one that holds the interpreter ends the process (`ended_after`).
    """
    results: queue.Queue[tuple[bool, Any]] = queue.Queue()

    def work() -> None:
        try:
            with kept_alive():
                value = call()
                if inspect.isawaitable(value):
                    value = asyncio.run(awaited(value))
            results.put((True, value))
        except BaseException as error:  # sys.exit included: it must not end the run as a success
            results.put((False, error))

    try:
        with ended_after(seconds):  # before the thread, which may never give this one its turn
            threading.Thread(target=work, daemon=True).start()
            is_done, value = results.get(timeout=seconds)
    except queue.Empty:
        raise Overtime(f"{what} did not return within {seconds:g} s. Make it faster, or allow more time") from None
    if is_done:
        return value
    if isinstance(value, SystemExit):
        told = f"{what} raised SystemExit({value.code!r}){at_place(value)}"
        raise OwnCodeError(f"{told}. Remove the call of sys.exit or os._exit") from value
    if not isinstance(value, Exception | KeyboardInterrupt):
        raise OwnCodeError(f"{what} raised {type(value).__name__}: {value}. Raise an Exception") from value
    raise value


async def awaited(value: Any) -> Any:
    """Returns the result of anything that can be awaited."""
    return await value


def rewards_of(function: Callable[..., Any], rows: Rows, name: str, seconds: float = math.inf) -> list[float | None]:
    """Returns a reward function's number for each row, None where it does not apply; calls it once for all rows.

    OwnCodeError names the function, and the row if the function raises on that row alone.
    """
    if not rows:
        return []
    given, named = arguments(function, rows, name)
    limit = min(seconds, threading.TIMEOUT_MAX)
    try:
        values = within(limit, lambda: function(*given, **named), name)
    except AssayError:
        raise
    except Overtime as error:
        raise OwnCodeError(str(error)) from None
    except Exception as error:
        where = failing_row(function, rows, name, limit) if len(rows) > 1 else " on row 0"
        raise OwnCodeError(f"{name} raised {type(error).__name__}: {error}{at_place(error)}{where}") from error
    return numbers_of(values, len(rows), name)


def called(function: Callable[..., Any], rows: Rows) -> Any:
    """Returns what a reward function returns for these rows, unchecked and without a time limit."""
    given, named = arguments(function, rows, "it")
    return within(threading.TIMEOUT_MAX, lambda: function(*given, **named), "it")


def failing_row(function: Callable[..., Any], rows: Rows, name: str, seconds: float) -> str:
    """Returns in words the first row on which a function raises by itself; "" if it raises on none alone."""
    for place, row in enumerate(rows):
        given, named = arguments(function, [row], name)
        try:
            within(seconds, lambda given=given, named=named: function(*given, **named), name)  # type: ignore[misc]
        except Exception:
            return f" on row {place}, {str(dict(row))[:200]!a}"
    return ""


def numbers_of(values: Any, num_rows: int, name: str) -> list[float | None]:
    """Returns the values as floats or None; OwnCodeError for anything but one finite number or None for each row."""
    if not isinstance(values, Sequence | Tensor | np.ndarray) or isinstance(values, str | bytes):
        raise OwnCodeError(f"{name} returned {type(values).__name__}. It must return a list, one number for each row")
    count = 0 if np.ndim(values) == 0 and not isinstance(values, Sequence) else len(values)
    if count != num_rows:
        raise OwnCodeError(f"{name} returned {count} values for {num_rows} rows. It must return one for each row")
    found: list[float | None] = []
    for row, value in enumerate(values):
        is_array = isinstance(value, Tensor | np.ndarray | np.generic)
        number = value.item() if is_array and math.prod(value.shape) == 1 else value
        found.append(finite_number(number, value, row, name))
    return found


def finite_number(number: Any, value: Any, row: int, name: str) -> float | None:
    """Returns one number as a float, None as it is; OwnCodeError for anything else."""
    if number is None:
        return None
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise OwnCodeError(f"{name} returned {value!r} for row {row}. It must be a finite number, or None")
    return float(number)
