"""Values of a program, read and compared outside of its box, by exact type."""

from __future__ import annotations

import json
from typing import Any

from assay.sandbox.inside import encoded
from assay.sandbox.values import Value

UNORDERED = ("s", "z", "d")
INFINITE = float("inf")


def plain_value(value: Value) -> Any:
    """Returns what a program of ours has returned as Python's own types; never for values of a sample."""
    if not isinstance(value, list):
        return value
    tag, rest = value[0], value[1:]
    if tag == "d":
        return {plain_value(key): plain_value(one) for key, one in rest}
    if tag in ("l", "t", "s", "z"):
        return [plain_value(one) for one in rest]
    if tag == "f":
        return float.fromhex(rest[0])
    return int(rest[0], 16) if tag == "i" else None


def value_of(literal: Any) -> Value:
    """Returns a literal of Python in the form in which boxes send values."""
    return json.loads(encoded(literal))


def is_same(value: Value, expected: Value) -> bool:
    """Returns whether a value is the expected one: numbers by value (1 is 1.0 and True, as in Python), everything else
    by exact type, sets and dicts without their order.

    Nothing of the value is rebuilt or hashed as it is: a set with many colliding members costs no time here. NaN equals
    nothing, as in Python; a value whose type is not Python's own equals nothing.
    """
    numbers = number_of(value), number_of(expected)
    if numbers[0] is not None or numbers[1] is not None:
        return None not in numbers and numbers[0] == numbers[1]
    if not isinstance(expected, list) or not isinstance(value, list):
        return type(value) is type(expected) and value == expected
    if not value or value[0] != expected[0] or len(value) != len(expected) or value[0] == "o":
        return False
    if value[0] in UNORDERED:
        both = [sorted((canonical(one), place) for place, one in enumerate(side[1:])) for side in (value, expected)]
        pairs = zip(*both, strict=True)
        return all(is_same_member(value[1 + a], expected[1 + b], value[0]) for (_, a), (_, b) in pairs)
    return all(is_same(one, other) for one, other in zip(value[1:], expected[1:], strict=True))


def is_same_member(value: Value, expected: Value, tag: str) -> bool:
    """Returns whether members of a set, or pairs of a dict, are the same."""
    if tag != "d":
        return is_same(value, expected)
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and is_same(value[0], expected[0]) and is_same(value[1], expected[1])


def canonical(value: Value) -> str:
    """Returns a text by which equal members of a set, or equal keys of a dict, come to the same place."""
    number = number_of(value)
    if number is not None:
        is_whole = not isinstance(number, complex) and number == number and abs(number) != INFINITE
        return f"{int(number):x}" if is_whole and number == int(number) else repr(number)  # type: ignore[arg-type]
    if not isinstance(value, list):
        return json.dumps(value)
    if value and value[0] in UNORDERED:
        return json.dumps([value[0], *sorted(map(canonical, value[1:]))])
    return json.dumps([canonical(one) for one in value])


def number_of(value: Value) -> int | float | complex | None:
    """Returns the number that a value is; None if it is another type, or no box writes it so."""
    if isinstance(value, int | float):
        return value
    if not isinstance(value, list) or len(value) not in (2, 3) or value[0] not in ("f", "c", "i"):
        return None
    try:
        if value[0] == "i":
            return int(value[1], 16)
        return complex(*map(float.fromhex, value[1:])) if value[0] == "c" else float.fromhex(value[1])
    except (TypeError, ValueError, OverflowError):
        return None
