"""A language task in the tokens of a pretrained model: prompts and turns are put in the model's chat template."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Task
from assay.models.pretrained.causal import asking
from assay.models.pretrained.transformers import Answered, Framed, Pretrained, PretrainedTokenizer, pinned
from assay.tasks.language.dialogue import DialogueTask, Partner
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import Item, Items, PromptTask, prompt_ids
from assay.tasks.language.textfile import TextFile, TwoFiles

NUM_MEASURED = 512  # items, of both splits, whose lengths are measured before a run


@dataclass(frozen=True)
class ModelTask(PromptTask):
    """Prompts in a model's chat template, if it has one."""

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        """Returns the items of these ordinals, their prompts framed."""
        return [replace(item, prompt=Framed(item.prompt)) for item in super().items_of(starts, split)]


@dataclass(frozen=True)
class ModelDialogue(DialogueTask):
    """Conversations in a model's chat template: the policy is the assistant, its partner the user.

    Sampled tokens are never re-encoded: each turn appends the tokens of the template and of the reply to those of the
    utterance, after an end token if the utterance was cut. White space around prompts and replies is dropped, since
    the template separates turns.
    """

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        """Returns the items of these ordinals, their prompts introduced and framed."""
        return [replace(item, prompt=introduced(self.partner, item)) for item in super().items_of(starts, split)]

    def between(self, reply: str, last: int) -> list[int]:
        """Returns the tokens that close the utterance's turn, the reply's turn, and the opening of the next one."""
        ids = self.tokenizer.encode(Answered(reply.strip()))
        return ids[1:] if last == self.tokenizer.vocabulary.eos else ids


def introduced(partner: Partner, item: Item) -> Framed:
    """Returns the prompt of a conversation, after the partner's introduction, if it has one."""
    return Framed(f"{getattr(partner, 'introduction', '')}\n\n{item.prompt}".strip())


def with_model(
    task: Task, model: str | Pretrained, chat: bool = True, max_tokens: int = 0
) -> PromptTask | PairsTask | DialogueTask:
    """Returns the task in the model's tokens, its prompts in the model's chat template where it has one; conversations
    need a template.

    `max_tokens` 0 keeps the task's limit, or raises it to the longest demonstration.
    """
    chosen = pinned(model) if isinstance(model, str) else model
    if isinstance(task, PairsTask):
        return PairsTask(cast(PromptTask, with_model(task.prompts, chosen, chat, max_tokens)))
    if isinstance(task, DialogueTask):
        return conversing(task, PretrainedTokenizer(chosen.path, chosen.revision, chat), max_tokens)
    if not isinstance(task, PromptTask):
        raise AssayError(f"task '{task.name}' has no prompts. A language model needs a language task such as countdown")
    tokenizer = PretrainedTokenizer(chosen.path, chosen.revision, chat)
    frame = len(prompt_ids(tokenizer, Framed(""), sys.maxsize)) + 2
    prompt, reply = longest(tokenizer, task.items)
    if not isinstance(task.items, TextFile | TwoFiles):  # of items that were not seen, no token is shorter than a byte
        prompt = max(prompt, task.max_prompt)
    most = max_tokens or max(reply + 1, task.max_tokens)
    return ModelTask(task.name, task.items, tokenizer, prompt + frame, most, scorer=task.scorer)


def conversing(task: DialogueTask, tokenizer: PretrainedTokenizer, max_tokens: int) -> ModelDialogue:
    """Returns the conversations of a task in a model's tokens. Limits are in bytes (no token is shorter than one); the
    tokenizer must encode and decode the demonstrations.
    """
    partner, own = task.partner, task.tokenizer
    wide = 1 + max(len(own.decode([index]).encode()) for index in range(own.vocabulary.size))
    items = [partner.item(k // 2, k % 2) for k in range(NUM_MEASURED)]
    frame = len(prompt_ids(tokenizer, introduced(partner, Item("", "", "")), sys.maxsize)) + 2
    gap = len(tokenizer.encode(Answered(""))) + 2
    said = {words for item in items for words in item.demonstration.split("\n")}
    with asking(f"the tokenizer of '{tokenizer.path}' does not fit the task"):
        utterance = max(len(written_back(tokenizer, words)) for words in said) + 1
        for item in items:
            written_back(tokenizer, item.prompt)
    limits = (wide * task.max_prompt + frame, task.max_turns, max_tokens or max(utterance, task.max_tokens))
    return ModelDialogue(task.name, partner, tokenizer, *limits, wide * task.max_reply + gap, task.scorer)


def written_back(tokenizer: PretrainedTokenizer, words: str) -> list[int]:
    """Encodes a text; ValueError if the ids decode to another text."""
    ids = tokenizer.encode(words)
    read = tokenizer.decode(ids)
    if tokenizer.encode(read) != ids:
        raise ValueError(f"it encodes to {ids[:20]}, which decode to {read[:60]!a}, which has other ids")
    return ids


def longest(tokenizer: PretrainedTokenizer, items: Items) -> tuple[int, int]:
    """Returns the tokens of the longest prompt and reply; AssayError if the tokenizer cannot encode and decode them."""
    if isinstance(items, TextFile | TwoFiles):
        some = items.rows
    else:
        some = tuple(items.item(k // 2, k % 2) for k in range(NUM_MEASURED))
    prompts, replies = [0], [0]
    with asking(f"the tokenizer of '{tokenizer.path}' does not fit the task"):
        for place, item in enumerate(some):
            words = (item.prompt, item.demonstration, str(item.facts.get("rejected", "")))
            write = partial(written_back, tokenizer) if place < NUM_MEASURED else tokenizer.encode
            written = [write(one) for one in words]
            prompts.append(len(written[0]))
            replies += map(len, written[1:])
    return max(prompts), max(replies)
