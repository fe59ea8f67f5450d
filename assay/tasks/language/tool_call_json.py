"""Calls in JSON inside the text of a model: read strictly, an error told to the model otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

OPEN, CLOSE = "<tool_call>", "</tool_call>"

LONGEST = 20_000
"""Characters of pythonic calls that are parsed: Python's parser builds a tree of them."""


@dataclass(frozen=True)
class Call:
    """A call of a tool by name. With `is_text`, all arguments are texts, to be read by the types of the tool."""

    name: str
    arguments: Mapping[str, Any]
    is_text: bool = False
    not_a_part: ClassVar[str] = "a call that was read"


@dataclass(frozen=True)
class BadCall:
    """A call that cannot be read, and why."""

    error: str
    not_a_part: ClassVar[str] = "a call that was not read"


Calls = list[Call | BadCall]



# ---------------------------------------------------------------------------------------------------- JSON
def constant(word: str) -> Any:
    """Refuses NaN and the infinities, which JSON does not have."""
    raise ValueError(f"{word} is not JSON")


READER = json.JSONDecoder(parse_constant=constant)


def read_json(text: str, at: int) -> tuple[Any, int]:
    """Returns the JSON value at a place and where it ends; ValueError for any other text."""
    try:
        return READER.raw_decode(text, at)
    except RecursionError:
        raise ValueError("it is too deep") from None


def call_of(asked: Any, key: str = "arguments") -> Call | BadCall:
    """Returns the call that a JSON value is: its arguments are an object, or an object written as a text."""
    wanted = f'error: a call must be {{"name": ..., "{key}": {{...}}}}'
    if not isinstance(asked, dict) or not isinstance(asked.get("name"), str):
        return BadCall(f"{wanted} (it has no name)")
    given = asked.get("arguments", asked.get("parameters"))
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=constant)
        except (ValueError, RecursionError):
            return BadCall(f"{wanted} ({key} is no object)")
    if not isinstance(given, dict | None):
        return BadCall(f"{wanted} ({key} is no object)")
    return Call(asked["name"], given or {})


def whole_call(text: str) -> Call | BadCall:
    """Returns the call of a text that is one JSON object."""
    try:
        asked, end = read_json(text, 0)
        if text[end:].strip():
            raise ValueError(f"text after the object: {text[end:].strip():.40}")
    except ValueError as error:
        return BadCall(f'error: a call must be {{"name": ..., "arguments": {{...}}}} ({error})')
    return call_of(asked)


def after_space(text: str, at: int, also: str = "") -> int:
    """Returns the first place from `at` that is neither white space nor one of `also`."""
    while at < len(text) and (text[at].isspace() or text[at] in also):
        at += 1
    return at


# ---------------------------------------------------------------------------------------------------- formats
def between_marks(said: str) -> Iterator[str | None]:
    """Yields the texts between <tool_call> and the next </tool_call>; None for a last one that is not closed."""
    at = said.find(OPEN)
    while at >= 0:
        end = said.find(CLOSE, at)
        yield said[at + len(OPEN) : end].strip() if end >= 0 else None
        at = said.find(OPEN, end) if end >= 0 else -1
