"""Own tools: functions and classes of tools by file, with JSON schemas from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from assay.core.calls import Unanswered
from assay.core.errors import AssayError
from assay.core.tool_servers import is_server
from assay.runs.user_code.addresses import needed_address
from assay.runs.user_code.loading import value_of
from assay.runs.user_code.rewards import check_recorded
from assay.runs.user_code.workers.process import Limits
from assay.runs.user_code.workers.remote import RemoteClass, remote_class, remote_function
from assay.tasks.language.tool_classes import NOT_TOOLS, REWARD, ToolClass
from assay.tasks.language.tools import Row, Tool, Toolbox, name_of

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", type(None): "null"}
SECTION = re.compile(r"\n\s*(?:Args|Arguments|Parameters|Returns|Raises|Examples?):|\n\s*:\w+")
"""The beginning of a docstring's first section."""
LISTS = (list, tuple, set, Sequence)


def tools_of(
    words: Sequence[str], rows: Sequence[Row] = (), limits: Limits | None = None, seconds: float = 30.0
) -> list[Toolbox]:
    """Returns the tools that `--tool` names: a function, a class whose public methods are tools, or mcp:SERVER.

    A class is tried with the first of these rows. With `limits`, own code runs in worker processes, each call of it for
    at most `seconds`. AssayError for anything else, and for two tools of one name.
    """
    found: list[Toolbox] = []
    for word in words:
        if is_server(word):
            from assay.tasks.adapters.mcp_servers import server_of

            found.append(server_of(word))
            continue
        address = needed_address(word, "--tool")
        if not address.name:
            raise AssayError(f"--tool {word} is a file. Name the function or class in it: {word}:NAME")
        value = value_of(address)
        if not callable(value):
            raise AssayError(f"--tool {word} is not a function or a class: {value!r:.60}.")
        check_recorded(value, address)
        if isinstance(value, type):
            made = remote_class(address, limits, seconds)
            found.append(tool_class(value, address.name, rows[0] if rows else None, made))
        else:
            called = remote_function(address, address.name, limits, seconds)
            found.append(Tool(address.name, value, schema_of(value, address.name), called))
    names = [name_of(schema) for box in found for schema in box.schemas]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise AssayError(f"--tool names two tools '{twice}'. Rename one of them.")
    return found


def gives_reward(words: Sequence[str]) -> bool:
    """Returns whether one of the tools is a class with a reward of its own, so that rows need no answers."""
    values = [value_of(one) for word in words if not is_server(word) and (one := needed_address(word, "--tool")).name]
    return any(isinstance(value, type) and REWARD in own_names(value) for value in values)


def own_names(cls: type) -> set[str]:
    """Returns the names of a class, and those that its functions use: attributes that only an instance has."""
    functions = [one for name in dir(cls) if inspect.isfunction(one := inspect.getattr_static(cls, name))]
    return {*dir(cls), *(name for one in functions for name in inspect.unwrap(one).__code__.co_names)}


def tool_class(cls: type, name: str, row: Row | None, remote: RemoteClass | None = None) -> ToolClass:
    """Returns a class as tools: its public functions but `reset`, `reward` and `close`. It is made once, and reset
    with a row if there is one.

    AssayError for a class that cannot be made without arguments, or has no such functions.
    """
    public = [one for one in dir(cls) if not one.startswith("_") and one not in NOT_TOOLS]
    methods = {one: value for one in public if callable(value := getattr(cls, one)) and not isinstance(value, type)}
    if not methods:
        raise AssayError(f"--tool {name} has no public methods. Give it a method for each tool.")
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    given = [one for one in inspect.signature(cls).parameters.values() if one.kind not in open_ended]
    if needed := [one.name for one in given if one.default is one.empty]:
        what = f"--tool {name} is made without arguments, but its __init__ needs '{needed[0]}'"
        raise AssayError(f"{what}. Give it a default.")
    schemas = [schema_of(value, one, f"{name}.{one}", is_bound(cls, one)) for one, value in methods.items()]
    tools = ToolClass(name, cls, tuple(schemas), pays=REWARD in own_names(cls), remote=remote)
    if row is None:
        return tools
    try:
        opened = tools.open(row)
        tells = bool(opened.told)
        opened.close()
    except AssayError:
        raise
    except Unanswered as error:
        raise AssayError(f"--tool {name}: {error}") from None
    except (Exception, SystemExit) as error:
        raise AssayError(f"--tool {name} raises {type(error).__name__} when it is reset: {error}. Fix it.") from error
    return replace(tools, tells=tells)


def is_bound(cls: type, name: str) -> bool:
    """Returns whether a function of a class has the instance as its first argument."""
    return not isinstance(inspect.getattr_static(cls, name), staticmethod | classmethod)


def schema_of(function: Callable[..., Any], name: str, where: str = "", is_bound: bool = False) -> dict[str, Any]:
    """Returns the description of a function: its docstring's text, and type, text and need of each argument, except the
    first one of a function that `is_bound`.

    AssayError for positional-only arguments and for *args or **kwargs, which a call by name cannot fill, for an
    argument without an annotation, and without a docstring: the policy would not know how to call it.
    """
    text, told = parse_docstring(inspect.getdoc(function) or "")
    try:
        hints = get_type_hints(function)
    except Exception:  # an annotation that cannot be evaluated says nothing
        hints = {}
    properties: dict[str, Any] = {}
    required, place = [], where or name
    for one in [*inspect.signature(function).parameters.values()][is_bound:]:
        if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise AssayError(f"--tool {place}: its argument '{one.name}' has no name in a call. Name every argument.")
        if one.annotation is one.empty:
            raise AssayError(f"--tool {place}: its argument '{one.name}' has no type. Annotate it: {one.name}: str")
        words = {"description": told[one.name]} if one.name in told else {}
        properties[one.name] = type_of(hints.get(one.name, Any)) | words
        if one.default is one.empty:
            required.append(one.name)
    if not text:
        raise AssayError(f"--tool {place} has no docstring. Describe in one what it does: the policy reads it.")
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


def parse_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Returns the text of a docstring before its sections, and the descriptions of arguments: lines "name: text" or
    "name (type): text" after "Args:", and ":param name: text".
    """
    before = SECTION.split(docstring)[0]
    told = dict(re.findall(r":param (?:\w+ )?(\w+): *(.+)", docstring))
    section = re.search(r"\n\s*(?:Args|Arguments|Parameters):\n(.*?)(?:\n\s*\n|\n\S|\Z)", docstring, re.DOTALL)
    for name, words in re.findall(r"^\s+(\w+)(?: \([^)]*\))?: *(.+)$", section[1] if section else "", re.MULTILINE):
        told.setdefault(name, words)
    return " ".join(before.split()), {name: words.strip() for name, words in told.items()}
