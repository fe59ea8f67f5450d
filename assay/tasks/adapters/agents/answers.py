"""Answers in OpenAI's form: completions, their log-probabilities, tool calls, and streams of chunks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from assay.rollouts import text
from assay.rollouts.text import Tokenizer
from assay.tasks.adapters.agents.requests import Asked, Said
from assay.tasks.adapters.agents.sampling import Alternatives, Reply
from assay.tasks.adapters.agents.transcripts import ModelCall as Recorded
from assay.tasks.language.tool_call_json import Call
from assay.tasks.language.tool_calls import FORMATS, MARKS

PIECE = 16
"""Characters of one chunk of a stream."""


def readable(tokenizer: Tokenizer, reply: Reply, stops: Sequence[str]) -> str:
    """Returns the text of a reply, without its end token and up to the first stop string."""
    shown = text.readable(tokenizer, reply.tokens)
    places = [place for stop in stops if (place := shown.find(stop)) >= 0]
    return shown[: min(places)] if places else shown


def message_of(shown: str, tools: str, number: int) -> Said:
    """Returns a reply as a message; calls in one of the formats of models become `tool_calls` if the request offers
    tools. Where one of them cannot be read, the reply stays text.
    """
    for kind in FORMATS if tools else ():
        calls = [one for one in kind.parse(shown) if isinstance(one, Call)]
        if calls and len(calls) == len(kind.parse(shown)):
            written = [{"name": one.name, "arguments": json.dumps(dict(one.arguments))} for one in calls]
            named = [{"id": f"call_{number}_{place}", **one} for place, one in enumerate(written)]
            marks = [place for mark in (*MARKS, "{", "[") if (place := shown.find(mark)) >= 0]
            return {"role": "assistant", "content": shown[: min(marks)].strip(), "tool_calls": named}
    return {"role": "assistant", "content": shown}


def finish_reason(call: Recorded) -> str:
    """Returns why a reply ended."""
    has_calls = bool(call.messages) and "tool_calls" in call.messages[-1]
    return "tool_calls" if has_calls else "stop" if call.has_ended else "length"


def as_openai(said: Said) -> dict[str, Any]:
    """Returns the message of a reply as clients read it."""
    calls = [
        {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": one["arguments"]}}
        for one in said.get("tool_calls", ())
    ]
    told: dict[str, Any] = {"role": "assistant", "content": said["content"] or (None if calls else "")}
    return told | ({"tool_calls": calls} if calls else {})


def usage(calls: Sequence[Recorded]) -> dict[str, int]:
    """Returns the tokens of a request: its prompt once, all its replies."""
    prompt, written = len(calls[0].prompt), sum(len(call.tokens) for call in calls)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """Returns the text of one token; a special one has none."""
    return tokenizer.decode([token])


def logprobs(tokenizer: Tokenizer, call: Recorded, likeliest: Alternatives | None) -> dict[str, Any]:
    """Returns the log-probability of each token of a reply, and of the likeliest ones, as chats have them."""
    content = []
    for place, (token, value) in enumerate(zip(call.tokens, call.logp, strict=True)):
        others = [] if likeliest is None else likeliest[place]
        content.append(
            named_token(tokenizer, token, value)
            | {"token_id": token, "top_logprobs": [named_token(tokenizer, *other) for other in others]}
        )
    return {"content": content, "refusal": None}


def named_token(tokenizer: Tokenizer, token: int, value: float) -> dict[str, Any]:
    """Returns a token as text and bytes, with its log-probability."""
    shown = token_text(tokenizer, token)
    return {"token": shown, "logprob": value, "bytes": list(shown.encode("utf-8", "replace"))}


def text_logprobs(tokenizer: Tokenizer, call: Recorded, likeliest: Alternatives | None) -> dict[str, Any]:
    """Returns the log-probabilities of a reply as plain completions have them."""
    shown, offsets = [token_text(tokenizer, token) for token in call.tokens], [0]
    for one in shown[:-1]:
        offsets.append(offsets[-1] + len(one))
    top = None if likeliest is None else [{token_text(tokenizer, t): v for t, v in one} for one in likeliest]
    return {"tokens": shown, "token_logprobs": list(call.logp), "top_logprobs": top, "text_offset": offsets}


def choices_of(
    tokenizer: Tokenizer, asked: Asked, calls: Sequence[Recorded], likeliest: Sequence[Alternatives | None]
) -> list[dict[str, Any]]:
    """Returns the choices of an answer, with the token ids that were sampled."""
    found = []
    for place, (call, top) in enumerate(zip(calls, likeliest, strict=True)):
        one: dict[str, Any] = {"index": place, "finish_reason": finish_reason(call), "logprobs": None}
        if asked.prompt is None:
            one["message"] = as_openai(call.messages[-1])
            form = logprobs
        else:
            one["text"], form = call.text, text_logprobs
        if asked.alternatives is not None:
            one["logprobs"] = form(tokenizer, call, top)
        found.append(one | {"token_ids": list(call.tokens)})
    return found


def chunks(head: dict[str, Any], asked: Asked, choices: Sequence[dict[str, Any]], used: Any) -> Iterator[Any]:
    """Yields the chunks of a streamed answer: first the role, then the text in pieces, tool calls, the reason of the
    end and, where it is asked for, the usage.
    """
    for one in choices:
        shared = {"index": one["index"], "finish_reason": None}
        said = one.get("message") or {"content": one.get("text")}
        shown = said["content"] or ""
        pieces = [shown[first : first + PIECE] for first in range(0, len(shown), PIECE)]
        if asked.prompt is None:
            yield head | {"choices": [shared | {"delta": {"role": "assistant", "content": ""}}]}
        for piece in pieces:
            delta = {"delta": {"content": piece}} if asked.prompt is None else {"text": piece}
            yield head | {"choices": [shared | delta]}
        for place, call in enumerate(said.get("tool_calls", ())):
            yield head | {"choices": [shared | {"delta": {"tool_calls": [{"index": place, **call}]}}]}
        empty: dict[str, Any] = {"delta": {}} if asked.prompt is None else {"text": ""}
        last = {name: one[name] for name in ("logprobs", "token_ids")}
        yield head | {"choices": [shared | empty | last | {"finish_reason": one["finish_reason"]}]}
    if asked.has_usage:
        yield head | {"choices": [], "usage": used}
