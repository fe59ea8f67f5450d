"""Arguments of tool calls, held against the tool's schema before the tool runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.tasks.language.tool_call_json import Call, constant

KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (type(None),),
}


def fitted(call: Call, schema: Mapping[str, Any]) -> dict[str, Any] | str:
    """Returns the arguments of a call that fit the tool's schema, or what is wrong with them.

    None for an argument with a default leaves the default. Of a call whose arguments are texts, those of another type
    are read as JSON.
    """
    known, needed = schema.get("properties", {}), schema.get("required", ())
    given = {name: value for name, value in call.arguments.items() if value is not None or name in needed}
    for name, value in given.items():
        if name not in known and known and schema.get("additionalProperties") is not True:
            return f"error: {call.name} has no argument {name!r:.80}. Arguments: {', '.join(known)}"
        wanted = known.get(name, {})
        if call.is_text and not fits(value, wanted):
            try:
                given[name] = value = json.loads(value, parse_constant=constant)
            except (ValueError, RecursionError):
                given[name] = value = {"True": True, "False": False}.get(value.strip(), value)
        if not fits(value, wanted):
            return f"error: argument {name!r} of {call.name} is {show_value(value)}, not {describe_schema(wanted)}"
    missing = [name for name in needed if name not in given]
    return f"error: {call.name} needs the argument {missing[0]!r}" if missing else given


def show_value(value: Any) -> str:
    """Returns the beginning of a value as text."""
    return f"{value!r:.60}"


def describe_schema(schema: Mapping[str, Any]) -> str:
    """Returns what a schema asks for, in a few words."""
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if "anyOf" in schema:
        return " or ".join(describe_schema(one) for one in schema["anyOf"])
    return str(schema.get("type", "as described"))


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Returns whether a value has the type, the choice and the entries of a JSON schema; other keywords are ignored."""
    if "enum" in schema and not any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in schema["enum"]
    ):
        return False
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    kinds = schema.get("type", ())
    for kind in [kinds] if isinstance(kinds, str) else kinds or [""]:
        allowed = KINDS.get(kind, (object,))
        if isinstance(value, allowed) and (not isinstance(value, bool) or bool in allowed or object in allowed):
            inner = schema.get("items")
            return not isinstance(value, list | tuple) or not inner or all(fits(one, inner) for one in value)
    return False
