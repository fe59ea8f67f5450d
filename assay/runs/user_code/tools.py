"""Own tools: the JSON schema of a function, from its signature and docstring."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from assay.core.errors import AssayError
from assay.runs.user_code.addresses import needed_address
from assay.runs.user_code.loading import value_of
from assay.runs.user_code.rewards import check_recorded
from assay.tasks.language.tools import Tool

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", type(None): "null"}
SECTION = re.compile(r"\n\s*(?:Args|Arguments|Parameters|Returns|Raises|Examples?):|\n\s*:\w+")
"""The beginning of a docstring's first section."""
LISTS = (list, tuple, set, Sequence)


def tools_of(words: Sequence[str]) -> list[Tool]:
    """Returns the tools that `--tool` names; AssayError for one that is not a function, or two of one name."""
    found: list[Tool] = []
    for word in words:
        address = needed_address(word, "--tool")
        if not address.name:
            raise AssayError(f"--tool {word} is a file. Name the function in it: {word}:NAME")
        function = value_of(address)
        if not callable(function) or isinstance(function, type):
            raise AssayError(f"--tool {word} is not a function: {function!r:.60}.")
        check_recorded(function, address)
        if any(tool.name == address.name for tool in found):
            raise AssayError(f"--tool names two tools '{address.name}'. Rename one of them.")
        found.append(Tool(address.name, function, schema_of(function, address.name)))
    return found


def schema_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Returns the description of a function: its docstring's text, and type, text and need of each argument.

    AssayError for positional-only arguments and for *args or **kwargs, which a call by name cannot fill.
    """
    text, told = described(inspect.getdoc(function) or "")
    try:
        hints = get_type_hints(function)
    except Exception:  # an annotation that cannot be evaluated says nothing
        hints = {}
    properties: dict[str, Any] = {}
    required = []
    for one in inspect.signature(function).parameters.values():
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise AssayError(f"--tool {name}: its argument '{one.name}' has no name in a call. Name every argument.")
        words = {"description": told[one.name]} if one.name in told else {}
        properties[one.name] = type_of(hints.get(one.name, Any)) | words
        if one.default is one.empty:
            required.append(one.name)
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": text, "parameters": parameters}}


def type_of(hint: Any) -> dict[str, Any]:
    """Returns the JSON schema of an annotation; {} (anything) for one that has none."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in PLAIN or origin in PLAIN:
        return {"type": PLAIN[hint if hint in PLAIN else origin]}
    if origin is Literal:
        return {"enum": list(inner)}
    if hint in LISTS or origin in LISTS or (inspect.isclass(origin) and issubclass(origin, Sequence)):
        return {"type": "array"} | ({"items": type_of(inner[0])} if inner else {})
    if origin in (Union, types.UnionType):
        some = [type_of(one) for one in inner if one is not type(None)]
        return some[0] if len(some) == 1 else {"anyOf": some}
    return {}


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """Returns the text of a docstring before its sections, and the descriptions of arguments: lines "name: text" or
    "name (type): text" after "Args:", and ":param name: text".
    """
    before = SECTION.split(docstring)[0]
    told = dict(re.findall(r":param (?:\w+ )?(\w+): *(.+)", docstring))
    section = re.search(r"\n\s*(?:Args|Arguments|Parameters):\n(.*?)(?:\n\s*\n|\n\S|\Z)", docstring, re.DOTALL)
    for name, words in re.findall(r"^\s+(\w+)(?: \([^)]*\))?: *(.+)$", section[1] if section else "", re.MULTILINE):
        told.setdefault(name, words)
    return " ".join(before.split()), {name: words.strip() for name, words in told.items()}
