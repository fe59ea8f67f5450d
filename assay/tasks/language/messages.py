"""Messages of chat data: roles, texts, tool calls, marks, and which replies are trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay.core.errors import AssayError
from assay.rollouts.text import Message

ASSISTANT = "assistant"
ALL, LAST, MARKED = TRAIN_ON = ("all", "last", "marked")
"""Which replies of a conversation are trained."""
TURNS = {"from": "role", "value": "content"}
ROLES = {"human": "user", "gpt": ASSISTANT, "chatgpt": ASSISTANT, "observation": "tool", "function": "tool"}
KEPT = ("tool_call_id", "name", "reasoning_content")
"""Fields that are given to a chat template beside role, content and calls."""


def usual(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row under the usual names: `conversations` of from and value (ShareGPT) as `messages`, instruction,
    input and output (Alpaca), a problem, and a prompt with a completion as `prompt` and `answer`.
    """
    found = dict(row)
    turns = found.get("conversations")
    if "messages" not in found and isinstance(turns, list):
        found["messages"] = [usual_turn(one) for one in found.pop("conversations")]
    if {"instruction", "output"} <= found.keys() and not found.keys() & {"prompt", "messages", "answer"}:
        told = [str(found.pop(name)) for name in ("instruction", "input") if found.get(name)]
        found["prompt"], found["answer"] = "\n\n".join(told), found.pop("output")
    if "problem" in found and not found.keys() & {"prompt", "question", "messages", "text", "chosen"}:
        found["prompt"] = found.pop("problem")
    if {"prompt", "completion"} <= found.keys() and not found.keys() & {"answer", "label", "score", "chosen"}:
        said = found.pop("completion")
        is_message = isinstance(said, list) and len(said) == 1 and isinstance(said[0], dict)
        found["answer"] = said[0].get("content") if is_message else said
    return found


def usual_turn(turn: Any) -> Any:
    """Returns a turn of from and value as a message; a call in JSON as one that the assistant makes."""
    if not isinstance(turn, dict) or "role" in turn:
        return turn
    found = {TURNS.get(name, name): value for name, value in turn.items()}
    role = found.get("role")
    if role in ("function_call", "tool_call"):
        return {**found, "role": ASSISTANT, "content": "", "tool_calls": [found.get("content")]}
    return {**found, "role": ROLES.get(str(role), role)}


def messages_of(value: object, column: str, where: str) -> tuple[Message, ...]:
    """Returns a list of messages {"role": ..., "content": ...}; the content may be a list of texts, and empty beside
    `tool_calls` and in the result of a tool.
    """
    if not isinstance(value, list) or not value:
        raise AssayError(f"{where}: '{column}' is {json.dumps(value)[:60]}. It must be a list of messages")
    found = []
    for number, message in enumerate(value):
        place = f"{column}[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise AssayError(f'{where}: \'{place}\' is not a message such as {{"role": "user", "content": "..."}}')
        role, more = message["role"], {name: message[name] for name in KEPT if message.get(name)}
        calls = calls_of(message, place, where)
        more |= {"tool_calls": calls} if calls else {}
        content = text_of(message.get("content"), bool(calls), place, where)
        if not content.strip() and not calls and role != "tool":
            raise AssayError(f"{where}: '{place}' is empty. Fill it, or remove the row")
        told = json.dumps(more) if more else ""
        found.append(Message(role, content, told, mark_of(message, place, where)))
    return tuple(found)


def text_of(content: object, calls: bool, place: str, where: str) -> str:
    """Returns the text of a message's content."""
    if content is None and calls:
        return ""
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str)) if all(parts) else None
    if not isinstance(content, str):
        raise AssayError(f"{where}: 'content' of '{place}' is not text. Only text can be read")
    return encodable(content, place, where)


def encodable(content: str, column: str, where: str) -> str:
    """Returns a text; AssayError if UTF-8 cannot represent it."""
    try:
        content.encode()
    except UnicodeEncodeError as error:
        raise AssayError(f"{where}: '{column}' has half of a surrogate pair ({error.reason}). Remove it") from None
    return content


def calls_of(message: Mapping[str, Any], place: str, where: str) -> list[dict[str, Any]]:
    """Returns the calls of a message as {"type": "function", "function": {"name": ..., "arguments": {...}}}: arguments
    may be an object or JSON text, a call may be the function alone or JSON text.
    """
    given = message.get("tool_calls") or []
    if given and (not isinstance(given, list) or message["role"] != ASSISTANT):
        raise AssayError(f"{where}: 'tool_calls' of '{place}' must be a list in a message of the assistant")
    found = []
    for one in given:
        call = loaded(one)
        function = call.get("function", call) if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        arguments = loaded(function.get("arguments") or {}) if isinstance(function, dict) else None
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            what = f"{where}: a call of '{place}' is {json.dumps(one)[:80]}"
            raise AssayError(f'{what}. Write {{"function": {{"name": "...", "arguments": {{...}}}}}}')
        more = {"id": call["id"]} if call.get("id") else {}
        found.append({"type": "function", **more, "function": {"name": name, "arguments": arguments}})
    return found


def loaded(value: Any) -> Any:
    """Returns the value of JSON text, and any other value as it is; text that is no JSON stays text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def mark_of(message: Mapping[str, Any], place: str, where: str) -> bool | None:
    """Returns what a message says about training on it: `train` true or false, or `weight` 1 or 0; None if nothing."""
    name = next((name for name in ("train", "weight") if message.get(name) is not None), None)
    if name is None:
        return None
    if message[name] not in (0, 1):  # true and false are 1 and 0
        raise AssayError(f"{where}: '{name}' of '{place}' is {json.dumps(message[name])[:40]}. Use true or false")
    return bool(message[name])


def with_trained(messages: Sequence[Message], train_on: str, where: str) -> tuple[Message, ...]:
    """Returns the messages of a conversation with those replies `trained` that `train_on` names; "" means the marked
    ones if any is marked, else all. A reply that nothing precedes is never trained.

    Raises AssayError if none is.
    """
    marks = [message.mark for message in messages]
    which = train_on or (MARKED if any(mark is not None for mark in marks) else ALL)
    last = len(messages) - 1
    # weights are given to leave replies out, `train` to take them in: with a false mark and no true one, others count
    usual_mark = True not in marks and False in marks
    is_trained = {ALL: [True] * len(marks), LAST: [place == last for place in range(len(marks))]}.get(
        which, [usual_mark if mark is None else mark for mark in marks]
    )
    found = tuple(
        message._replace(trained=bool(chosen) and message.role == ASSISTANT and place > 0)
        for place, (message, chosen) in enumerate(zip(messages, is_trained, strict=True))
    )
    if not any(message.trained for message in found):
        raise AssayError(f'{where}: no reply is marked. Mark one with "train": true, or use --train-on all')
    return found
