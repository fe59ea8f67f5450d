"""Conversations as tokens: by a model's chat template, or plainly. What was sampled is never encoded again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from assay.core.errors import AssayError
from assay.core.http import Refused
from assay.models.pretrained.chat_texts import Framed
from assay.models.pretrained.spelling import plain_ids
from assay.models.pretrained.transformers import PretrainedTokenizer
from assay.rollouts.text import Conversation, Message, Tokenizer
from assay.tasks.adapters.agents.requests import Asked, Said
from assay.tasks.language.tool_call_json import CLOSE, OPEN

REPLY = "\n\nassistant: "
"""Opens the reply to a conversation of several messages, without a chat template."""


def written_calls(said: Said) -> str:
    """Returns the text of a message, its tool calls as models write them (Hermes)."""
    calls = [
        f'{OPEN}\n{{"name": {json.dumps(one["name"])}, "arguments": {one["arguments"] or "{}"}}}\n{CLOSE}'
        for one in said.get("tool_calls", ())
    ]
    return "\n".join([*([said["content"]] if said["content"] or not calls else []), *calls])


def as_messages(said: Sequence[Said]) -> list[Message]:
    """Returns messages as roles and texts."""
    return [Message(one["role"], written_calls(one)) for one in said]


def has_template(tokenizer: Tokenizer) -> bool:
    """Returns whether conversations are written by a chat template."""
    return isinstance(tokenizer, PretrainedTokenizer) and any(tokenizer.frame)


def opening(tokenizer: Tokenizer, asked: Asked) -> list[int]:
    """Returns the tokens of a request from its start; Refused if it cannot be written."""
    vocabulary = tokenizer.vocabulary
    if isinstance(asked.prompt, tuple):
        if any(not 0 <= one < vocabulary.size for one in asked.prompt):
            raise Refused(400, f"'prompt' has a token out of vocabulary. Send tokens from 0 to {vocabulary.size - 1}.")
        return list(asked.prompt)
    try:
        if asked.prompt is not None:
            return [vocabulary.bos, *tokenizer.encode(asked.prompt)]
        messages = as_messages(asked.messages)
        talk = Conversation(messages, asked.tools)
        if has_template(tokenizer):
            return [vocabulary.bos, *tokenizer.encode(Framed(talk))]
        is_alone = len(messages) == 1 and messages[0].role == "user" and not asked.tools
        return [vocabulary.bos, *tokenizer.encode(str(talk) + ("" if is_alone else REPLY))]
    except (ValueError, AssayError) as error:
        raise Refused(400, f"the conversation cannot be written in tokens: {error}"[:500]) from None


def continuing(tokenizer: Tokenizer, asked: Asked, known: int, has_ended: bool) -> list[int] | None:
    """Returns the tokens between the reply that is message `known` - 1, as it was sampled, and the next reply; None if
    the template writes earlier turns otherwise in a longer conversation. `has_ended`: the reply has its end token.
    """
    vocabulary, messages = tokenizer.vocabulary, as_messages(asked.messages)
    try:
        if not isinstance(tokenizer, PretrainedTokenizer) or not has_template(tokenizer):
            lines = "".join(f"\n\n{one.role}: {one.content}" for one in messages[known:])
            return [*([] if has_ended else [vocabulary.eos]), *tokenizer.encode(lines + REPLY)]
        messages[known - 1] = Message("assistant", REPLY)  # stands for what was sampled, which may have no text
        before = tokenizer.around(Framed(Conversation(messages[: known - 1], asked.tools)))
        whole = tokenizer.around(Framed(Conversation(messages, asked.tools)))
        if whole[: len(before)] != before:
            return None
        ids = plain_ids(tokenizer, whole[len(before) :], [one.content for one in messages[known:] if one.content])
        return ids[1:] if has_ended and ids[:1] == [vocabulary.eos] else ids
    except (ValueError, AssayError) as error:
        raise Refused(400, f"the conversation cannot be written in tokens: {error}"[:500]) from None
