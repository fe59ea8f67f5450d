"""Chat data in the tokens of a model: which tokens of a conversation the assistant would have written.

Every trained reply is found by rendering: the template up to the reply, opened for it, must be the beginning of the
template with the reply, and that the beginning of the whole. What stands between is the reply, its end token included.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from assay.core.errors import AssayError
from assay.core.spaces import Vocabulary
from assay.models.pretrained.chat_texts import Framed, Unwritable
from assay.rollouts.text import Message, Said

THOUGHT = "</think>"
"""The end of a reply's reasoning, at which many templates cut."""


class Rewritten(AssayError):
    """A conversation whose earlier replies the template writes in another way once it continues."""


class ChatTokenizer(Protocol):
    """What is asked of a tokenizer with a chat template."""

    @property
    def path(self) -> str:
        """The model's folder or id."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Size and special ids."""

    @property
    def control(self) -> Mapping[int, str]:
        """Control tokens."""

    def template(self, messages: Sequence[Message], tools: str = "") -> str:
        """Returns the chat template around messages; it opens a reply unless the last one is the assistant's."""

    def raw(self, written: str) -> list[int]:
        """Returns ids of text in which control tokens are control tokens."""


def reply_of(tokenizer: ChatTokenizer, messages: Sequence[Message], tools: str, place: int) -> tuple[str, str, str]:
    """Returns what the template writes before the reply at `place`, the reply without its end token, and the rest.

    Raises Rewritten if the template does not append the reply to what opens it, and AssayError if it leaves out words,
    reasoning or calls.
    """
    place %= len(messages)
    before, message = messages[:place], messages[place]
    if not before or before[-1].role == "assistant":
        raise Rewritten(f"a reply follows no other message in the chat template of '{tokenizer.path}'")
    begun, done = tokenizer.template(before, tools), tokenizer.template(messages[: place + 1], tools)
    reply, end, rest = done[len(begun) :].rpartition(tokenizer.control[tokenizer.vocabulary.eos])
    thought, mark, words = message.content.rpartition(THOUGHT)
    is_thought = not mark or thought.replace("<think>", "").strip() in reply
    if not done.startswith(begun) or not end or rest.strip() or not is_thought:
        raise Rewritten(f"the chat template of '{tokenizer.path}' does not append a reply to what opens it")
    needed = [words.strip(), str(message.fields.get("reasoning_content") or "").strip()]
    if lost := [one for one in (*needed, *(call["name"] for call in message.calls)) if one not in reply]:
        what = f"the chat template of '{tokenizer.path}' leaves '{lost[0][:60]}' out of the assistant's message"
        raise AssayError(f"{what}. Use a model whose template has it (tool calls, reasoning), or remove the row")
    return begun, reply, rest


def replies_of(tokenizer: ChatTokenizer, messages: Sequence[Message], tools: str) -> tuple[str, list[tuple[int, int]]]:
    """Returns the template around messages up to the last trained reply, and where each trained reply begins and ends
    in it. Raises Rewritten if an earlier reply is not what it was when it was the last.
    """
    places = [place for place, message in enumerate(messages) if message.trained]
    end, spans, whole = tokenizer.control[tokenizer.vocabulary.eos], [], ""
    for place in places:
        begun, reply, _ = reply_of(tokenizer, messages, tools, place)
        if not begun.startswith(whole):
            what = f"the chat template of '{tokenizer.path}' rewrites earlier turns when a conversation continues"
            raise Rewritten(f"{what}. Use --train-on last, or a model whose template appends")
        whole = begun + reply + end
        spans.append((len(begun), len(whole)))
    return whole, spans


def pieces_of(tokenizer: ChatTokenizer, prompt: Framed, said: Said) -> list[tuple[list[int], bool]]:
    """Returns the tokens of a conversation up to its last trained reply, in pieces: (ids, whether the assistant wrote
    them), bos at the beginning. Each trained reply is encoded by itself, as a policy samples it, with its end token.
    """
    messages = (*prompt.messages, said.message)
    whole, spans = replies_of(tokenizer, messages, prompt.tools)
    messages = messages[: max(place for place, message in enumerate(messages) if message.trained) + 1]
    spelt = re.compile("|".join(re.escape(token) for token in tokenizer.control.values()) or "$^")
    inside = spelt_places(tokenizer, whole, messages, prompt.tools, spelt)
    edges, pieces = [0, *itertools.chain(*spans), len(whole)], list[tuple[list[int], bool]]()
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        cuts = [place + 1 for place in inside if start <= place < end]
        parts = itertools.pairwise([start, *cuts, end])
        ids = [index for first, last in parts for index in tokenizer.raw(whole[first:last])]
        allowed = len(spelt.findall(whole[start:end])) - len(cuts)
        if sum(index in tokenizer.control for index in ids) != allowed:
            raise Unwritable(f"the tokenizer of '{tokenizer.path}' cannot encode {whole[start:end][:60]!a} as text")
        if ids:
            pieces.append((ids, number % 2 == 1))
    bos = tokenizer.vocabulary.bos
    if pieces[0][0][0] != bos:
        pieces[0][0].insert(0, bos)
    return pieces


def spelt_places(
    tokenizer: ChatTokenizer, whole: str, messages: Sequence[Message], tools: str, spelt: re.Pattern[str]
) -> list[int]:
    """Returns where messages spell a control token, which is only text there. Raises Unwritable if calls spell one, or
    if the template changes a conversation that does, so that the places are not known.
    """
    for message in messages:
        if spelt.search(message.more):
            what = f"a call or its fields spell a control token of '{tokenizer.path}'"
            raise Unwritable(f"{what}: {message.more[:60]}. Change it, or remove the row")
    if not any(spelt.search(message.content) for message in messages):
        return []
    told = [message.content for message in messages if message.content]
    around = texts_around(tokenizer, messages, tools)
    for strip in (str, str.strip):  # as most templates do
        written, found = around[0], list[int]()
        for content, after in zip(map(strip, told), around[1:], strict=True):
            found += [len(written) + match.start() for match in spelt.finditer(content)]
            written += content + after
        if written.startswith(whole):
            return found
    what = f"the chat template of '{tokenizer.path}' changes a conversation that spells a control token"
    raise Unwritable(f"{what}: {messages[0].content[:60]!a}. Change it, or remove the row")


def texts_around(tokenizer: ChatTokenizer, messages: Sequence[Message], tools: str) -> list[str]:
    """Returns the texts that the template writes before, between and after messages that have text. Raises AssayError
    if it drops, repeats or reorders messages, or if tools or calls spell a control token.
    """
    marked = [
        one._replace(content=f"message-{place}-goes-here-1+1" if one.content else "")
        for place, one in enumerate(messages)
    ]
    marks = [one.content for one in marked if one.content]
    whole, pattern = tokenizer.template(marked, tools), "|".join(map(re.escape, marks))
    if re.findall(pattern, whole) != marks:
        roles = ", ".join(message.role for message in messages)
        raise AssayError(f"the chat template of '{tokenizer.path}' drops or repeats messages ({roles}). Change them")
    told = tools + "".join(message.more for message in messages)
    if any(token in told for token in tokenizer.control.values()):
        raise AssayError(f"tools spell a control token of '{tokenizer.path}': {told[:60]}. Rename them")
    return re.split(pattern, whole)


def with_text_arguments(chat: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns messages whose calls have their arguments as JSON text."""
    told: list[dict[str, Any]] = json.loads(json.dumps(list(chat)))
    for call in (call for one in told for call in one.get("tool_calls", [])):
        call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return told
