"""Prompts that are answered with the help of tools, which the policy calls by text.

An utterance with calls, in the format of the model (see `tool_calls`), is answered by their results, which are context:
no decision of the policy, never trained on. Any other utterance is the answer. Each rollout has a session of its own:
tools with state do not see other rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from assay.core.calls import Overtime, Unanswered, within
from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts.concurrent_calls import settled
from assay.rollouts.text import (
    TOOL_RESPONSE,
    ByteTokenizer,
    Conversation,
    Message,
    ToolResults,
    hash_of_text,
    with_last_message,
)
from assay.tasks.language.dialogue import NO_END, DialogueTask
from assay.tasks.language.items import FiniteItems, Item, Items
from assay.tasks.language.partners import Reply
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.tool_arguments import fitted
from assay.tasks.language.tool_call_json import BadCall, Call
from assay.tasks.language.tool_calls import HERMES, CallFormat

WRAPPED = len(TOOL_RESPONSE.format(""))
CUT = " [cut]"
"""Ends a result that was cut."""
CALLS, BYTES, UTTERANCE = 4, 512, 256
"""Turns with calls, bytes of the results of an utterance, and bytes of an utterance, which may be a call, where no
number is chosen."""
MEASURED, MORE = 64, 128
"""Rows whose texts from tools are measured before a run, and bytes by which those of others may be longer."""
SEED = "seed"
"""The argument of a `reset` that gets a number made of the row."""
Row = Mapping[str, Any]


class OpenTools(Protocol):
    """Tools of one rollout."""

    @property
    def told(self) -> str:
        """Returns what the prompt says beside the row's own; "" for nothing."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Returns the result of a tool, or something to await; an exception is an error that the policy reads."""

    def reward(self) -> Outcome | None:
        """Returns the outcome of the rollout; None if the tools give none."""

    def close(self) -> None:
        """Frees what the tools hold."""


class Toolbox(Protocol):
    """Tools that are opened for each rollout."""

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Returns the description of each tool as a JSON schema (OpenAI's format)."""

    @property
    def pays(self) -> bool:
        """Returns whether the tools give an outcome."""

    @property
    def tells(self) -> bool:
        """Returns whether the tools add to the prompt."""

    def open(self, row: Row) -> OpenTools:
        """Opens the tools for a rollout of a row. An exception is a fault of the infrastructure."""


@dataclass(frozen=True)
class Tool:
    """A function that the policy may call, and its description as a JSON schema. It has no state of a rollout."""

    name: str
    function: Callable[..., Any]
    schema: Mapping[str, Any]
    remote: Callable[..., Any] | None = field(default=None, repr=False, compare=False)
    pays = tells = False
    told = ""

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """Returns the description."""
        return (self.schema,)

    def open(self, row: Row) -> Tool:
        """Returns the tool itself."""
        return self

    def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Calls the function, or `remote`, which is it in another process."""
        return (self.remote or self.function)(**arguments)

    def reward(self) -> None:
        """Returns None: a function gives no outcome."""

    def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True)
class ToolUse:
    """The sessions of conversations with tools: run calls, and verify the answer as the task of `items` does; where
    there is no answer to verify (`is_paid`), the outcome is that of the tools.

    An error of a call (no such tool, wrong arguments, an exception) is text for the policy. A call that does not return
    within `seconds` is a fault of the infrastructure: the row leaves training and is counted. The results of an
    utterance have `most_bytes` together, short ones all they need, and one that is cut ends with " [cut]"; calls for
    which no room is left are not made. With `in_text`, the prompt describes the tools; else a model's chat template
    does. With `as_json`, results are written inside a JSON string. A model that reads too little lowers the options
    that are `free`: those of tool_calls and tool_bytes that were not chosen.
    """

    items: Items
    tools: tuple[Toolbox, ...]
    seconds: float = field(default=30.0, repr=False)
    most_bytes: int = BYTES
    in_text: bool = True
    form: CallFormat = HERMES
    as_json: bool = False
    is_paid: bool = False
    free: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    is_repeatable = False  # what a tool returns may depend on anything

    @property
    def schemas(self) -> str:
        """Returns the descriptions of all tools as JSON."""
        return json.dumps([schema for box in self.tools for schema in box.schemas], sort_keys=True)

    @property
    def places(self) -> dict[str, tuple[int, Mapping[str, Any]]]:
        """Returns, by name, the box of each tool and its description."""
        return {name_of(one): (place, one) for place, box in enumerate(self.tools) for one in box.schemas}

    @property
    def most_calls(self) -> int:
        """Returns the calls of an utterance whose results have room."""
        return (self.most_bytes + WRAPPED) // (WRAPPED + 1)

    @property
    def explanation(self) -> str:
        """Returns the text that describes the tools to a model whose chat template does not."""
        call = self.form.shown(name_of(self.tools[0].schemas[0]))
        return f"You may call tools: {self.schemas}\nTo call one, write {call} and nothing after it."

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the item with its tools in the prompt; its demonstration answers without a call, in one line."""
        item = self.items.item(ordinal, split)
        item = replace(item, facts={"prompt": str(item.prompt), **item.facts})
        shown = " ".join(item.demonstration.splitlines())
        told = "\n\n".join(text for box in self.tools if box.tells and (text := self.told(box, item)))
        prompt = with_last_message(item.prompt, lambda content: f"{content}\n\n{told}") if told else item.prompt
        if self.in_text:
            return replace(item, prompt=f"{self.explanation}\n\n{prompt}", demonstration=shown)
        messages = prompt.messages if isinstance(prompt, Conversation) else (Message("user", prompt),)
        return replace(item, prompt=Conversation(messages, self.schemas), demonstration=shown)

    def told(self, box: Toolbox, item: Item) -> str:
        """Returns what tools add to the prompt of an item."""
        opened = box.open(row_of(item))
        try:
            return opened.told
        finally:
            opened.close()

    def open(self, item: Item, seed: int) -> ToolSession:
        """Opens the tools for a rollout."""
        opened = list[OpenTools]()
        try:
            for box in self.tools:
                opened.append(box.open(row_of(item)))
                if box.tells and opened[-1].told not in item.prompt:
                    raise ValueError(f"reset returned {opened[-1].told!r:.60}, which is not in the prompt of the row")
        except BaseException:
            for one in opened:
                one.close()
            raise
        return ToolSession(self, item, tuple(opened))


def row_of(item: Item) -> dict[str, Any]:
    """Returns what tools may know of an item: its prompt without tools, its fields, its answer, and a seed that is a
    number made of them.
    """
    row = {name: value for name, value in item.facts.items() if isinstance(name, str)}
    seed = hash_of_text(json.dumps([row, item.answer], sort_keys=True, default=str)) >> 33
    return {SEED: seed, "answer": item.answer, **row}


def name_of(schema: Mapping[str, Any]) -> str:
    """Returns the name of a tool."""
    return str(schema["function"]["name"])


@dataclass(frozen=True)
class ToolSession:
    """The conversation of one rollout with its tools."""

    use: ToolUse
    item: Item
    opened: tuple[OpenTools, ...]

    def reply(self, utterance: str) -> Reply:
        """Returns the results of the calls in an utterance, else the outcome of the answer."""
        room = self.use.most_bytes + WRAPPED
        calls = self.use.form.parse(utterance)[: self.use.most_calls]
        if not calls:
            return Reply("", self.outcome(utterance))
        texts = list[str]()
        for call in calls:
            result = self.result(call)
            if not isinstance(result, str):
                return Reply("", result)
            texts.append(json.dumps(result, ensure_ascii=False)[1:-1] if self.use.as_json else result)
        sizes = [len(encoded(text)) for text in texts]
        limits = shared(sizes, room - len(sizes) * (WRAPPED + 1) + 1)
        return Reply(ToolResults([cut(text, limit) for text, limit in zip(texts, limits, strict=True)]))

    def result(self, call: Call | BadCall) -> str | PolicyFault | InfraFault:
        """Returns what a call gives, as text; a fault that a tool returned, or that it did not return in time."""
        if isinstance(call, BadCall):
            return call.error
        known = self.use.places
        if call.name not in known:
            return f"error: there is no tool {call.name!r:.200}. Tools: {', '.join(known)}"
        place, schema = known[call.name]
        arguments = fitted(call, schema["function"].get("parameters", {}))
        if isinstance(arguments, str):
            return arguments
        return made(lambda: self.opened[place].call(call.name, arguments), call.name, self.use)

    def outcome(self, said: str) -> Outcome:
        """Returns the outcome of an answer: that of the task's verifier, or of the tools."""
        return self.reward() if self.use.is_paid else self.use.items.verify(self.item, said)

    def reward(self) -> Outcome:
        """Returns the outcome of the tools; without one, that there was no answer."""
        given = [one for tools in self.opened if (one := tools.reward()) is not None] if self.use.is_paid else []
        faults = [one for one in given if not isinstance(one, Score)]
        if faults or not given:
            return faults[0] if faults else NO_END
        return Score(sum(one.value for one in given if isinstance(one, Score)))

    def close(self) -> None:
        """Closes the tools, all of them even if one fails."""
        errors = list[Exception]()
        for one in self.opened:
            try:
                one.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def made(call: Callable[[], Any], name: str, use: ToolUse) -> str | PolicyFault | InfraFault:
    """Makes a call: returns the beginning of its result as text, or the fault that it returned.

    All calls of users' tools are made here.
    """
    try:
        found = within(use.seconds, lambda: settled(call()), f"tool {name}")
    except Unanswered as error:
        return InfraFault("tool timeout" if isinstance(error, Overtime) else "tool process ended")
    except Exception as error:
        found = f"error: {type(error).__name__}: {error}"
    if isinstance(found, PolicyFault | InfraFault):
        return found
    told = found if isinstance(found, str) else json.dumps(found, default=str, ensure_ascii=False)
    return told[: use.most_bytes + 1]


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
    task: Any,
    tools: Sequence[Toolbox],
    max_calls: int | None = None,
    seconds: float = 30.0,
    most_bytes: int | None = None,
) -> DialogueTask:
    """Returns a task of prompts as conversations with tools, of at most `max_calls` turns with calls before the answer.
    A limit that is None is the usual one, or less for a model that reads less.

    AssayError for a task without prompts, and for one that nothing scores.
    """
    if not isinstance(task, PromptTask):
        raise AssayError(f"--tool needs prompts with answers; task '{task.name}' has none. Use a file of prompts.")
    is_paid = not has_answers(task.items)
    if is_paid and task.scorer is None and not any(box.pays for box in tools):
        fix = "Give the rows answers, use --reward, or give the class of tools a method reward()"
        raise AssayError(f"nothing scores task '{task.name}': its rows have no answers. {fix}.")
    free = frozenset(n for n, value in {"tool_calls": max_calls, "tool_bytes": most_bytes}.items() if value is None)
    partner = ToolUse(task.items, tuple(tools), seconds, most_bytes or BYTES, is_paid=is_paid, free=free)
    tokenizer = ByteTokenizer()  # a task's own alphabet need not have the characters of calls and results
    tokens = len(tokenizer.encode(f"{partner.explanation}\n\n"))
    if any(box.tells for box in tools):
        tokens += max(len(encoded(told)) for told in told_first(partner)) + MORE
    reply = partner.most_bytes + len(TOOL_RESPONSE)
    utterance = task.max_tokens if task.is_limited else max(task.max_tokens, UTTERANCE)
    limits = (task.max_prompt + tokens, (max_calls or CALLS) + 1, utterance, reply)
    made = DialogueTask(task.name, partner, tokenizer, *limits, system=task.system, scorer=task.scorer)
    return replace(made, is_limited=task.is_limited)


def has_answers(items: Items) -> bool:
    """Returns whether answers can be verified: prompts that are generated always, rows of a file if any has one."""
    return not isinstance(items, FiniteItems) or any(item.answer for rows in items.splits for item in rows)


def told_first(partner: ToolUse) -> list[str]:
    """Returns what tools add to the prompts of some items: of all rows of a short file."""
    items = partner.items
    return [
        "".join(partner.told(box, item) for box in partner.tools if box.tells) for item in first_items(items, MEASURED)
    ]


def first_items(items: Items, num: int) -> list[Item]:
    """Returns some items, at most all rows of a file, with their prompts among their facts."""
    if isinstance(items, FiniteItems):
        found = [item for rows in items.splits for item in rows][:num]
    else:
        found = [items.item(place // 2, place % 2) for place in range(num)]
    return [replace(item, facts={"prompt": str(item.prompt), **item.facts}) for item in found]


def first_rows(task: Any) -> list[Row]:
    """Returns the first row of a task of prompts, as tools are given it; none for another task."""
    return [row_of(item) for item in first_items(task.items, 1)] if isinstance(task, PromptTask) else []
