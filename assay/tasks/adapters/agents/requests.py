"""Requests of /v1/chat/completions and /v1/completions, read strictly: a wrong entry is one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.core.errors import AssayError
from assay.core.http import Refused
from assay.decoding.sampling_parameters import Narrowing

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
SPEAKING = ("system", "developer", "user")
"""Roles whose messages are nothing but their text."""
MOST_MESSAGES, MOST_CHOICES, MOST_STOPS, MOST_ALTERNATIVES = 4096, 128, 16, 20
MOST_TOKENS = 1 << 20
Said = dict[str, Any]
"""A message: `role`, `content` as text and, where it has them, `tool_calls`, `tool_call_id`, `name`."""


@dataclass(frozen=True)
class Asked:
    """What a request asks for: a conversation with tools, or a plain `prompt`; and how answers are drawn.

    `max_tokens` 0 is as many as there is room for. `alternatives` is the number of likeliest tokens that are listed
    beside each token, None without log-probabilities.
    """

    messages: tuple[Said, ...]
    prompt: str | tuple[int, ...] | None = None
    tools: str = ""
    choices: int = 1
    max_tokens: int = 0
    greedy: bool = False
    narrowing: Narrowing = Narrowing()
    stops: tuple[str, ...] = ()
    seed: int | None = None
    alternatives: int | None = None
    is_streamed: bool = False
    has_usage: bool = False
    not_a_part: ClassVar[str] = "a request of an agent program"


def entry(told: Mapping[str, Any], name: str, kind: type, usual: Any = None) -> Any:
    """Returns an entry of a request, `usual` where it is missing or null; Refused if it has another type."""
    value = told.get(name)
    if value is None:
        return usual
    value = float(value) if kind is float and type(value) is int else value
    if type(value) is not kind:
        raise Refused(400, f"'{name}' is {value!r:.60}. Send {kind.__name__}.")
    return value


def within(told: Mapping[str, Any], name: str, usual: int, least: int, most: int) -> int:
    """Returns a whole number of a request; Refused if it is out of range."""
    value: int = entry(told, name, int, usual)
    if not least <= value <= most:
        raise Refused(400, f"'{name}' is {value}. Use {least} to {most}.")
    return value


def asked_chat(body: Mapping[str, Any]) -> Asked:
    """Returns a request of /v1/chat/completions."""
    messages = entry(body, "messages", list, [])
    if not 1 <= len(messages) <= MOST_MESSAGES:
        raise Refused(400, f"'messages' has {len(messages)} entries. Send 1 to {MOST_MESSAGES}.")
    room = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    alternatives = within(body, "top_logprobs", 0, 0, MOST_ALTERNATIVES)
    listed = alternatives if entry(body, "logprobs", bool, False) else None
    if alternatives and listed is None:
        raise Refused(400, "'top_logprobs' needs 'logprobs': true.")
    form = entry(body, "response_format", dict, {})
    if form.get("type", "text") != "text":
        raise Refused(400, f"'response_format' is {form!r:.60}, and answers are text of any form. Leave it out.")
    said = tuple(said_of(one, place) for place, one in enumerate(messages))
    return Asked(said, None, offered(body), alternatives=listed, **drawn_by(body, room))


def asked_text(body: Mapping[str, Any]) -> Asked:
    """Returns a request of /v1/completions; its prompt is a text, or token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(one) is int for one in prompt):
        prompt = tuple(prompt)
    if not isinstance(prompt, str | tuple) or not prompt:
        raise Refused(400, f"'prompt' is {prompt!r:.60}. Send one text, or the token ids of one.")
    if body.get("echo") or body.get("suffix") or within(body, "best_of", 1, 1, MOST_CHOICES) > 1:
        raise Refused(400, "'echo', 'suffix' and 'best_of' are not supported. Leave them out.")
    listed = None if body.get("logprobs") is None else within(body, "logprobs", 0, 0, MOST_ALTERNATIVES)
    usual = {"max_tokens": 16} | {name: value for name, value in body.items() if value is not None}
    return Asked((), prompt, alternatives=listed, **drawn_by(usual, "max_tokens"))


def drawn_by(body: Mapping[str, Any], room: str) -> dict[str, Any]:
    """Returns the entries that both routes share. Temperature 0 is greedy."""
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else entry(body, "stop", list, [])
    if len(stops) > MOST_STOPS or any(not isinstance(one, str) or not one for one in stops):
        raise Refused(400, f"'stop' is {stop!r:.60}. Send at most {MOST_STOPS} texts.")
    for name in ("model", "user"):
        entry(body, name, str)
    cold, top_k = entry(body, "temperature", float, 1.0), within(body, "top_k", 0, -1, MOST_TOKENS)
    for name in ("frequency_penalty", "presence_penalty", "logit_bias"):
        if body.get(name):
            raise Refused(400, f"'{name}' is {body[name]!r:.60}, and is not supported. Leave it out.")
    try:
        shares = entry(body, "top_p", float, 1.0), entry(body, "min_p", float, 0.0)
        narrowing = Narrowing(cold or 1.0, max(0, top_k), *shares)
    except AssayError as error:
        raise Refused(400, f"{error}.") from None
    shown = entry(body, "stream_options", dict, {})
    return {
        "choices": within(body, "n", 1, 1, MOST_CHOICES),
        "max_tokens": within(body, room, 0, 0 if body.get(room) is None else 1, MOST_TOKENS),
        "greedy": cold == 0,
        "narrowing": narrowing,
        "stops": tuple(stops),
        "seed": None if body.get("seed") is None else within(body, "seed", 0, -(2**63), 2**63 - 1),
        "is_streamed": entry(body, "stream", bool, False),
        "has_usage": bool(shown.get("include_usage")),
    }


def offered(body: Mapping[str, Any]) -> str:
    """Returns the tools of a request as JSON, "" for none; Refused for a choice that cannot be promised."""
    tools, choice = entry(body, "tools", list, []), body.get("tool_choice", "auto")
    if choice not in ("auto", "none", None):
        raise Refused(400, f"'tool_choice' is {choice!r:.60}. Use 'auto' or 'none'.")
    for one in tools:
        function = one.get("function") if isinstance(one, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Refused(400, f"'tools' has {one!r:.60}. Send {{'type': 'function', 'function': {{'name': ...}}}}.")
    return json.dumps(tools, sort_keys=True) if tools and choice != "none" else ""


def said_of(message: Any, place: int) -> Said:
    """Returns a message with the entries that matter: what clients add (`refusal`, `annotations`) is dropped, so that
    an answer that is sent back is recognised.
    """
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in ROLES:
        raise Refused(400, f"message {place} has the role {role!r:.60}. Use {', '.join(ROLES)}.")
    if role in SPEAKING and message.get("content") is None:
        raise Refused(400, f"message {place} of the role {role!r} has no 'content'. Send a text.")
    found: Said = {"role": role, "content": content_of(message.get("content"), place)}
    if calls := message.get("tool_calls"):
        found["tool_calls"] = calls_of(calls, place)
    for name in ("tool_call_id", "name"):
        if message.get(name) is not None:
            found[name] = str(message[name])
    return found


def content_of(content: Any, place: int) -> str:
    """Returns the content of a message as text: of a list of parts the texts, joined."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    if any(not isinstance(one, str) for one in texts):
        raise Refused(400, f"message {place} has a content that is no text: {content!r:.60}. Send text alone.")
    return "".join(str(one) for one in texts)


def calls_of(calls: Any, place: int) -> list[dict[str, str]]:
    """Returns the tool calls of a message: id, name and arguments of each, as text."""
    found = []
    for one in calls if isinstance(calls, list) else [{}]:
        function = one.get("function") if isinstance(one, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Refused(400, f"message {place} has the tool call {one!r:.60}. Send id and function.")
        arguments = function.get("arguments", "")
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        found.append({"id": str(one.get("id", "")), "name": function["name"], "arguments": written})
    return found
