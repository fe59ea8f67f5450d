"""Prompts that are answered with the help of tools: plain functions that the policy calls by text.

An utterance with <tool_call>{"name": ..., "arguments": {...}}</tool_call> is answered by the tool's result between
<tool_response> and </tool_response>, which is context: no decision of the policy, never trained on. Any other utterance
is the answer.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.core.calls import Overtime, within
from assay.core.errors import AssayError
from assay.core.record import InfraFault
from assay.rollouts.text import ByteTokenizer, Conversation, Message
from assay.tasks.language.dialogue import DialogueTask, Reply
from assay.tasks.language.prompts import Item, Items, PromptTask

OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESPONSE = "<tool_response>\n{}\n</tool_response>"
WRAPPED = len(RESPONSE.format(""))
CUT = " [cut]"
"""Ends a result that was cut."""
KEPT = 4096
"""Results of calls that are remembered: a call is made once, and read again when the conversation is judged."""
AGAIN = 600.0
"""Seconds after which a call that has not returned is repeated."""


@dataclass(frozen=True)
class Tool:
    """A function that the policy may call, and its description as a JSON schema (OpenAI's format)."""

    name: str
    function: Callable[..., Any]
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class ToolUse:
    """The partner of a conversation with tools: runs calls, and verifies the answer as the task of `items` does.

    A call with the same name and arguments is made once and has the same result in all conversations, so that a
    conversation can be judged again. An error of a call (no such tool, wrong arguments, an exception) is text for the
    policy. A call that does not return within `seconds` is a fault of the infrastructure: the row leaves training and
    is counted. The results of an utterance have `most_bytes` together, short ones all they need, and one that is cut
    ends with " [cut]"; calls for which no room is left are not made. With `in_text`, the prompt describes the tools;
    else a model's chat template does.
    """

    items: Items
    tools: tuple[Tool, ...]
    seconds: float = field(default=30.0, repr=False)
    most_bytes: int = 512
    in_text: bool = True
    known: dict[str, tuple[float, str | None]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def schemas(self) -> str:
        """Returns the descriptions of all tools as JSON."""
        return json.dumps([tool.schema for tool in self.tools], sort_keys=True)

    @property
    def explanation(self) -> str:
        """Returns the text that describes the tools to a model whose chat template does not."""
        call = f'{OPEN}{{"name": "{self.tools[0].name}", "arguments": {{...}}}}{CLOSE}'
        return f"You may call tools: {self.schemas}\nTo call one, write {call} and nothing after it."

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the item with its tools in the prompt; its demonstration answers without a call, in one line."""
        item = self.items.item(ordinal, split)
        shown = " ".join(item.demonstration.splitlines())
        if self.in_text:
            return replace(item, prompt=f"{self.explanation}\n\n{item.prompt}", demonstration=shown)
        messages = item.prompt.messages if isinstance(item.prompt, Conversation) else (Message("user", item.prompt),)
        return replace(item, prompt=Conversation(messages, self.schemas), demonstration=shown)

    def reply(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns the results of the calls in the last utterance, else the outcome of the answer."""
        room = self.most_bytes + WRAPPED
        calls = calls_in(said[-1])[: room // (WRAPPED + 1)]
        if not calls and OPEN not in said[-1]:
            outcome = self.items.verify(item, said[-1])
            return Reply("", outcome)
        results = [self.result(call) for call in calls] or [f"error: {OPEN} without {CLOSE}"]
        if any(result is None for result in results):
            return Reply("", InfraFault("tool timeout"))
        sizes = [len(encoded(result)) for result in results if result is not None]
        limits = shared(sizes, room - len(sizes) * (WRAPPED + 1) + 1)
        told = [cut(result, limit) for result, limit in zip(results, limits, strict=True) if result is not None]
        return Reply("\n".join(map(RESPONSE.format, told)))

    def result(self, call: str) -> str | None:
        """Returns what a call gives, as text; None if it did not return in time."""
        made, result = self.known.get(call, (-math.inf, None))
        if result is None and time.monotonic() - made > AGAIN:
            result = self.called(call)
            if len(self.known) >= KEPT:
                del self.known[next(iter(self.known))]
            self.known[call] = (time.monotonic(), result)
        return result

    def called(self, call: str) -> str | None:
        """Runs a call now."""
        try:
            asked = json.loads(call)
            name, arguments = asked["name"], asked.get("arguments") or {}
            if not isinstance(arguments, dict):
                raise TypeError("arguments is not an object")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            return f'error: a call must be {{"name": ..., "arguments": {{...}}}} ({type(error).__name__})'
        tool = next((one for one in self.tools if one.name == name), None)
        if tool is None:
            return f"error: there is no tool {name!r:.200}. Tools: {', '.join(one.name for one in self.tools)}"
        try:
            found = within(self.seconds, lambda: tool.function(**arguments), f"tool {name}")
            return self.kept(found if isinstance(found, str) else json.dumps(found, default=str))
        except Overtime:
            return None
        except Exception as error:
            return self.kept(f"error: {type(error).__name__}: {error}")

    def kept(self, result: str) -> str:
        """Returns as much of a result as can be read, and whether there was more."""
        return result[: self.most_bytes + 1]


def calls_in(said: str) -> list[str]:
    """Returns the texts between <tool_call> and the next </tool_call>, in time linear in the utterance."""
    found, at = list[str](), said.find(OPEN)
    while at >= 0 and (end := said.find(CLOSE, at)) >= 0:
        found.append(said[at + len(OPEN) : end].strip())
        at = said.find(OPEN, end)
    return found


def shared(sizes: Sequence[int], room: int) -> list[int]:
    """Returns how much of `room` each of these sizes gets: the smallest first, at most its equal share of what is left.
    None is left over unless all sizes fit.
    """
    limits = [0] * len(sizes)
    for place, one in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        limits[one] = min(sizes[one], room // (len(sizes) - place))
        room -= limits[one]
    return limits


def encoded(result: str) -> bytes:
    """Returns the bytes of a result; half a surrogate pair is a question mark."""
    return result.encode(errors="replace")


def cut(result: str, most_bytes: int) -> str:
    """Returns a result with at most this many bytes; one that was cut says so, if there is room for it."""
    whole = encoded(result)
    if len(whole) <= most_bytes:
        return whole.decode()
    note = CUT if most_bytes > 2 * len(CUT) else ""
    return whole[: most_bytes - len(note)].decode(errors="ignore") + note


def with_tools(
    task: Any, tools: Sequence[Tool], max_calls: int, seconds: float = 30.0, most_bytes: int = 512
) -> DialogueTask:
    """Returns a task of prompts as conversations with tools, of at most `max_calls` turns with calls before the answer.

    AssayError for a task without prompts.
    """
    if not isinstance(task, PromptTask):
        raise AssayError(f"--tool needs prompts with answers; task '{task.name}' has none. Use a file of prompts.")
    partner = ToolUse(task.items, tuple(tools), seconds, most_bytes)
    tokenizer = ByteTokenizer()  # a task's own alphabet need not have the characters of calls and results
    tokens = len(tokenizer.encode(f"{partner.explanation}\n\n"))
    reply = partner.most_bytes + len(RESPONSE)
    limits = (task.max_prompt + tokens, max_calls + 1, task.max_tokens, reply)
    return DialogueTask(task.name, partner, tokenizer, *limits, system=task.system, scorer=task.scorer)
