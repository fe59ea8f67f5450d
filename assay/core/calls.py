"""Calls of a user's function: of rewards on rows, with a time limit; every failure is an error that names it.

A reward function takes `rows` (a dict for each sequence), or columns by name: `prompts`, `completions`, `answers`, and
any field of the rows; with **kwargs it gets every field. It may be async. It returns one number for each row, as a
list, an array or a tensor; None where it does not apply to a row. Neither numpy nor torch is imported here: a worker
process of a function that needs none of them starts without.

Tensors have any shape.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.core.errors import AssayError
from assay.core.exits import ended_after, give_up_if_stopped, kept_alive
from assay.core.faults import at_place, error_name

PLURALS = {"prompts": "prompt", "completions": "completion", "answers": "answer"}
"""Names of arguments that list an entry of the rows under another name."""
LARGEST = 3.4028234663852886e38
"""The largest number of 32 bits: rewards are tensors of such numbers."""
TICK = 0.1
"""Seconds between looks at stop signals while a call is waited for."""
FIRST = {*PLURALS, *PLURALS.values()}
"""First arguments of functions of columns."""

Rows = Sequence[Mapping[str, Any]]


class OwnCodeError(AssayError):
    """An error in a user's function while a run uses it. The run can be resumed with the function fixed."""


class Unanswered(Exception):
    """A call that gave no answer: its time was over, or the process that it ran in ended or broke a limit."""


class Overtime(Unanswered):
    """A call that did not return in time."""


def overtime(what: str, seconds: float) -> Overtime:
    """Returns the error of a call that did not return within `seconds`."""
    return Overtime(f"{what} did not return within {seconds:g} s. Make it faster, or allow more time")


def takes_columns(function: Callable[..., Any]) -> bool:
    """Returns whether a reward function takes columns: its first argument is one, it has several without default, or
    it takes every other column as a keyword.
    """
    named = named_arguments(function)
    needed = [one for one in named if one.default is one.empty]
    is_of_columns = len(needed) > 1 or takes_keywords(function)
    return bool(named) and named[0].name != "rows" and (named[0].name in FIRST or is_of_columns)


def takes_keywords(function: Callable[..., Any]) -> bool:
    """Returns whether a function takes any keyword (**columns)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(one.kind is one.VAR_KEYWORD for one in parameters)


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
    if takes_keywords(function):
        chosen = {key: value for key, value in columns.items() if key not in PLURALS.values()} | chosen
    return (), chosen


def within(seconds: float, call: Callable[[], Any], what: str) -> Any:
    """Returns the result of a call, or of the coroutine that it returns; raises Overtime after `seconds`.

    Exceptions are raised as they are; `sys.exit` and `os._exit` become an OwnCodeError. The call has a thread of its
    own, which is left behind if it does not end, or the run is to stop (KeyboardInterrupt); one that holds the
    interpreter ends the process (`ended_after`).
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

    until = time.monotonic() + seconds
    with ended_after(seconds):  # before the thread, which may never give this one its turn
        threading.Thread(target=work, daemon=True).start()
        while (left := until - time.monotonic()) > 0:
            try:
                is_done, value = results.get(timeout=min(left, TICK))
                break
            except queue.Empty:
                give_up_if_stopped()
        else:
            raise overtime(what, seconds)
    if is_done:
        return value
    if isinstance(value, Exception | KeyboardInterrupt):
        raise value
    raise unwanted(value, what) from value


def unwanted(error: BaseException, what: str) -> OwnCodeError:
    """Returns the error of a function that raised what would end the process."""
    if isinstance(error, SystemExit):
        told = f"{what} raised SystemExit({error.code!r}){at_place(error)}"
        return OwnCodeError(f"{told}. Remove the call of sys.exit or os._exit")
    return OwnCodeError(f"{what} raised {type(error).__name__}: {error}. Raise an Exception")


async def awaited(value: Any) -> Any:
    """Returns the result of anything that can be awaited."""
    return await value


class RowsElsewhere(ABC):
    """A reward function that is called in another place than this thread, and checks itself what it returns."""

    @abstractmethod
    def rewards(self, rows: Rows, name: str) -> list[float | None]:
        """Returns its number for each row, None where it does not apply; OwnCodeError for every failure."""


Calling = Callable[[float, Callable[[], Any], str], Any]
"""How a function is called: with seconds, the call, and its name for errors, as `within` is."""


def rewards_of(
    function: Callable[..., Any], rows: Rows, name: str, seconds: float = math.inf, calling: Calling = within
) -> list[float | None]:
    """Returns a reward function's number for each row, None where it does not apply; calls it once for all rows.

    OwnCodeError names the function, and the row if the function raises on that row alone.
    """
    if not rows:
        return []
    if isinstance(function, RowsElsewhere):
        return function.rewards(rows, name)
    given, named = arguments(function, rows, name)
    limit = min(seconds, threading.TIMEOUT_MAX)
    try:
        values = calling(limit, lambda: function(*given, **named), name)
    except AssayError:
        raise
    except Overtime as error:
        raise OwnCodeError(str(error)) from None
    except Exception as error:
        where = failing_row(function, rows, name, limit, calling) if len(rows) > 1 else " on row 0"
        raise OwnCodeError(f"{name} raised {error_name(error)}{at_place(error)}{where}") from error
    return numbers_of(values, len(rows), name)


def called(function: Callable[..., Any], rows: Rows) -> Any:
    """Returns what a reward function returns for these rows, unchecked and without a time limit."""
    given, named = arguments(function, rows, "it")
    return within(threading.TIMEOUT_MAX, lambda: function(*given, **named), "it")


def failing_row(function: Callable[..., Any], rows: Rows, name: str, seconds: float, calling: Calling = within) -> str:
    """Returns in words the first row on which a function raises by itself; "" if it raises on none alone."""
    for place, row in enumerate(rows):
        given, named = arguments(function, [row], name)
        try:
            calling(seconds, lambda given=given, named=named: function(*given, **named), name)  # type: ignore[misc]
        except Exception:
            return f" on row {place}, {str(dict(row))[:200]!a}"
    return ""


def numbers_of(values: Any, num_rows: int, name: str) -> list[float | None]:
    """Returns the values as floats or None; OwnCodeError for anything but one finite number or None for each row."""
    arrays = array_types()
    known: tuple[Any, ...] = (Sequence, *arrays)
    if not isinstance(values, known) or isinstance(values, str | bytes):
        raise OwnCodeError(f"{name} returned {type(values).__name__}. It must return a list, one number for each row")
    count = 0 if not isinstance(values, Sequence) and values.ndim == 0 else len(values)
    if count != num_rows:
        raise OwnCodeError(f"{name} returned {count} values for {num_rows} rows. It must return one for each row")
    found: list[float | None] = []
    for row, value in enumerate(values):
        try:
            number = value.item() if isinstance(value, arrays) and math.prod(value.shape) == 1 else value
        except RuntimeError as error:  # a tensor without values
            raise OwnCodeError(f"{name} returned for row {row} a tensor that has no number: {error}") from None
        found.append(finite_number(number, value, row, name))
    return found


def array_types() -> tuple[Any, ...]:
    """Returns the classes of arrays, tensors and their numbers, of those libraries that are imported: a value can be of
    no other.
    """
    known = (("numpy", "ndarray"), ("numpy", "generic"), ("torch", "Tensor"))
    found = [getattr(sys.modules.get(module), name, None) for module, name in known]
    return tuple(one for one in found if one is not None)


def finite_number(number: Any, value: Any, row: int, name: str) -> float | None:
    """Returns one number as a float, None as it is; OwnCodeError for anything else."""
    if number is None:
        return None
    if not isinstance(number, int | float) or not -LARGEST <= number <= LARGEST:
        shown = f"an int of {value.bit_length()} bits" if type(value) is int else repr(value)
        is_large = isinstance(number, int | float) and (type(number) is int or math.isfinite(number))
        limit = f" of at most {LARGEST:.2g}" if is_large else ""
        raise OwnCodeError(f"{name} returned {shown} for row {row}. It must be a finite number{limit}, or None")
    return float(number)
