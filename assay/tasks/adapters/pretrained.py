"""A language task in the tokens of a pretrained model: prompts and turns are put in the model's chat template.

Axes: B starts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Task
from assay.models.pretrained.causal import asking, silenced
from assay.models.pretrained.chat_texts import Answered, Framed
from assay.models.pretrained.tool_turns import PROBE
from assay.models.pretrained.transformers import Pretrained, PretrainedTokenizer, pinned
from assay.rollouts.text import ByteTokenizer, Conversation, ToolResults
from assay.tasks.adapters.agents.task import AgentTask
from assay.tasks.adapters.chat_fit import fitted
from assay.tasks.adapters.chat_games import ChatGame, chat_game
from assay.tasks.adapters.tool_room import Room, Talk
from assay.tasks.games.repeated import MatrixTask
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.items import Item
from assay.tasks.language.partners import Partner, Sized
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask, prompt_ids
from assay.tasks.language.redteam_chat import OF_FILES, SeedGame
from assay.tasks.language.sessions import Sessions
from assay.tasks.language.textfile import Files, TextFile, longest_of
from assay.tasks.language.tool_calls import HERMES, MARKS, format_of
from assay.tasks.language.tools import ToolUse

NUM_MEASURED = 512  # items, of both splits, whose lengths are measured before a run
AT_ONCE = 1024  # texts that are measured together
ANSWER = 512
"""Default limit of answers in a file's tokens with a pretrained model; a longer demonstration raises it."""


@dataclass(frozen=True)
class ModelTask(PromptTask):
    """Prompts in a model's chat template, if it has one."""

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        return [replace(item, prompt=Framed(item.prompt, self.system)) for item in super().items_of(starts, split)]

    @property
    def textless(self) -> Sequence[int]:
        tokenizer = self.tokenizer
        assert isinstance(tokenizer, PretrainedTokenizer)
        return [*({*range(tokenizer.vocabulary.size)} - {*tokenizer.backend.get_vocab().values()}), *tokenizer.special]

    def told(self, prompts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of prompts that a part has written: a text made from a framed one is framed again, as one
        message of the user.
        """
        return super().told([one if isinstance(one, Framed) else Framed(one, self.system) for one in prompts])


@dataclass(frozen=True)
class ModelDialogue(DialogueTask):
    """Conversations in a model's chat template: the policy is the assistant, its partner the user.

    Sampled tokens are never re-encoded: each turn appends the tokens of the template and of the reply to those of the
    utterance, after an end token if the utterance was cut. White space around prompts and replies is dropped, since
    the template separates turns.
    """

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        """Returns the items of these ordinals, their prompts introduced and framed."""
        items = super().items_of(starts, split)
        return [replace(item, prompt=introduced(self.partner, item, self.system)) for item in items]

    def told(self, prompts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of prompts that a part has written, each as one message of the user."""
        return super().told([one if isinstance(one, Framed) else Framed(one, self.system) for one in prompts])

    def between(self, reply: str, last: int) -> list[int]:
        """Returns the tokens that close the utterance's turn, the reply's turn, and the opening of the next one."""
        ids = self.tokenizer.encode(reply if self.is_framed(reply) else Answered(reply.strip()))
        return ids[1:] if last == self.tokenizer.vocabulary.eos else ids

    def is_framed(self, reply: str) -> bool:
        """Returns whether a reply is results that the template has turns for."""
        tokenizer = self.tokenizer
        assert isinstance(tokenizer, PretrainedTokenizer)
        return isinstance(reply, ToolResults) and tokenizer.tool_turns(len(reply.results)) is not None

    def reply_text(self, ids: Sequence[int], last: int) -> str:
        """Returns the reply without what the template writes around it; between several results that stays."""
        tokenizer = self.tokenizer
        assert isinstance(tokenizer, PretrainedTokenizer)
        whole = [tokenizer.vocabulary.eos, *ids] if last == tokenizer.vocabulary.eos else list(ids)
        turns = tokenizer.tool_turns(1) if isinstance(self.partner, ToolUse) else None
        before, after = tokenizer.gap if turns is None else turns.pieces
        read = tokenizer.backend.decode(whole, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(read).removeprefix(before).removesuffix(after)


def introduced(partner: Partner | Sessions, item: Item, system: str) -> Framed:
    """Returns the prompt of a conversation, after the partner's introduction, if it has one."""
    if isinstance(item.prompt, Conversation):
        return Framed(item.prompt, system)
    return Framed(f"{getattr(partner, 'introduction', '')}\n\n{item.prompt}".strip(), system)


def check_model_task(task: Task) -> None:
    """Raises AssayError for a task that a language model cannot act in."""
    if isinstance(task, PromptTask | PairsTask | DialogueTask | SeedGame | MatrixTask):
        return
    named = f"{task.name}:SEEDS.jsonl, seeds with a label" if task.name in OF_FILES else "countdown"
    raise AssayError(f"--model needs prompts, pairs or dialogues; '{task.name}' has none. Try --task {named}.")


def with_model(
    task: Task, model: str | Pretrained, chat: bool = True, max_tokens: int = 0
) -> PromptTask | PairsTask | DialogueTask | SeedGame | ChatGame:
    """Returns the task in the model's tokens, its prompts in the model's chat template where it has one; conversations
    need a template.

    `max_tokens` 0 keeps the task's limit if it `is_limited`. Else a file has `ANSWER`, another task its own limit, and
    both are raised to the longest demonstration.
    """
    check_model_task(task)
    chosen = pinned(model) if isinstance(model, str) else model
    if isinstance(task, PairsTask):
        return PairsTask(cast(PromptTask, with_model(task.prompts, chosen, chat, max_tokens)))
    if isinstance(task, SeedGame):
        return replace(task, prompts=cast(PromptTask, with_model(task.prompts, chosen, chat, max_tokens)))
    if isinstance(task, MatrixTask):
        return chat_game(task, PretrainedTokenizer(chosen.path, chosen.revision, chat), max_tokens)
    if isinstance(task, DialogueTask):
        return conversing(task, PretrainedTokenizer(chosen.path, chosen.revision, chat), max_tokens)
    if isinstance(task, AgentTask):
        return task.in_tokens_of(with_model(task.plain, chosen, chat, max_tokens))
    assert isinstance(task, PromptTask)
    tokenizer = PretrainedTokenizer(chosen.path, chosen.revision, chat)
    if task.system and not any(tokenizer.frame):
        raise AssayError(f"'{chosen.path}' has no chat template for a system prompt. Put it into the prompts")
    task = fitted(task, tokenizer)
    prompt, where, reply = longest(tokenizer, task)
    if isinstance(task.items, TextFile | Files):
        usual = 1 if "rejected" in task.items.rows[0].facts else min(ANSWER, tokenizer.most_tokens - prompt)
        limit = max_tokens or (task.max_tokens if task.is_limited else max(usual, reply + 1))
        if prompt + limit > tokenizer.most_tokens:
            what = f"{where}: the prompt has {prompt} tokens, and answers have up to {limit}"
            reads = f"'{chosen.path}' reads {tokenizer.most_tokens} in all"
            raise AssayError(f"{what}, but {reads}. Remove the row, or lower --max-tokens")
    else:  # of items that were not seen, no token is shorter than a byte
        frame = len(prompt_ids(tokenizer, Framed("", task.system), sys.maxsize)) + 2
        prompt = max(prompt, task.max_prompt + frame)
        limit = max_tokens or (task.max_tokens if task.is_limited else max(reply + 1, task.max_tokens))
    kept = (task.system, task.is_limited, task.scorer, task.answer_format)
    return ModelTask(task.name, task.items, tokenizer, prompt, limit, (), *kept)


def conversing(task: DialogueTask, tokenizer: PretrainedTokenizer, max_tokens: int) -> ModelDialogue:
    """Returns the conversations of a task in a model's tokens. Limits are in bytes (no token is shorter than one); the
    tokenizer must encode and decode the demonstrations.
    """
    partner, own = task.partner, task.tokenizer
    if isinstance(partner, ToolUse):
        tokenizer = replace(tokenizer, kept=MARKS)
        partner = in_template(partner, tokenizer)
    tokens = () if isinstance(own, ByteTokenizer) else range(own.vocabulary.size)  # a byte is one already
    wide = 1 + max((len(own.decode([index]).encode()) for index in tokens), default=0)
    items = [partner.item(k // 2, k % 2) for k in range(NUM_MEASURED)]
    if isinstance(partner, ToolUse):  # the rows of a file are all seen
        wide, splits = 1, (() if task.rows is None else task.rows.splits)
        items = [partner.item(row, split) for split, rows in enumerate(splits) for row in range(len(rows))] or items
    frame = len(prompt_ids(tokenizer, introduced(partner, Item("", "", ""), task.system), sys.maxsize)) + 2
    gap = len(tokenizer.encode(Answered(""))) + 2
    said = {words for item in items for words in item.demonstration.split("\n")}
    with asking(f"the tokenizer of '{tokenizer.path}' does not fit the task"):
        utterance = max(len(written_back(tokenizer, words)) for words in said) + 1
        for item in items:
            written_back(tokenizer, item.prompt)
    seen = max(len(prompt_ids(tokenizer, introduced(partner, item, task.system), sys.maxsize)) for item in items)
    told, heard = partner.sizes if isinstance(partner, Sized) else (wide * task.max_prompt, wide * task.max_reply)
    most = seen if task.rows is not None else max(told + frame, seen)
    utterances = max_tokens or max(utterance, task.max_tokens)
    limits = (most, task.max_turns, utterances, heard + gap)
    if isinstance(partner, ToolUse):
        usual = Room(task.max_turns - 1, utterances, partner.most_bytes)
        talk = Talk(partner, tokenizer, most, gap, utterance, is_limited=task.is_limited or bool(max_tokens))
        partner, limits = talk.fitted(usual)
    return ModelDialogue(
        task.name, partner, tokenizer, *limits, task.system, task.scorer, waiting=task.waiting, meter=task.meter
    )


def in_template(partner: ToolUse, tokenizer: PretrainedTokenizer) -> ToolUse:
    """Returns tools as a model knows them: described by its template if it reads tools, called in the format that the
    template writes.
    """
    turns = tokenizer.tool_turns(1)
    form = HERMES if turns is None else format_of(turns.call, PROBE)
    is_read = "tools" in (tokenizer.backend.chat_template or "")
    return replace(partner, in_text=not is_read, form=form, as_json=turns is not None and turns.is_json)


def written_back(tokenizer: PretrainedTokenizer, words: str) -> list[int]:
    """Encodes a text; ValueError if the ids decode to another text."""
    ids = tokenizer.encode(words)
    read = tokenizer.decode(ids)
    if tokenizer.encode(read) != ids:
        raise ValueError(f"it encodes to {ids[:20]}, which decode to {read[:60]!a}, which has other ids")
    return ids


def texts_of(prompt: str, tokenizer: PretrainedTokenizer) -> list[str]:
    """Returns the texts of a prompt that the model reads: of a conversation in its chat template those of the messages,
    of any other prompt the prompt.
    """
    if isinstance(prompt, Conversation) and any(tokenizer.frame):
        return [message.content for message in prompt.messages]
    return [prompt]


def longest(tokenizer: PretrainedTokenizer, task: PromptTask) -> tuple[int, str, int]:
    """Returns the tokens of the longest framed prompt with its place, and those of the longest reply; AssayError if the
    tokenizer cannot encode and decode the first items, or texts that spell a control token.
    """
    items = task.items
    known = (
        items.rows if isinstance(items, TextFile | Files) else [items.item(k // 2, k % 2) for k in range(NUM_MEASURED)]
    )
    spelt = re.compile("|".join(map(re.escape, tokenizer.control.values())) or "$^")
    prompts, replies = list[tuple[str, str]](), list[tuple[str, str]]()
    checked = dict[str, str]()  # each text once, with the first place where it stands
    for place, item in enumerate(known):
        told = [(item.demonstration, item.where), (str(item.facts.get("rejected", "")), item.where)]
        prompts.append((Framed(item.prompt, task.system), item.where))
        replies += told
        for words, where in (*((one, item.where) for one in texts_of(item.prompt, tokenizer)), *told):
            if place < NUM_MEASURED or spelt.search(words):
                checked.setdefault(str(words), f"{where}: " if where else "")
    with silenced():
        for words, here in checked.items():
            with asking(f"{here}the tokenizer of '{tokenizer.path}' does not fit the task"):
                written_back(tokenizer, words)
    extra = max(len("".join(tokenizer.spelled(prompt)[0]).encode()) for prompt, _ in prompts)
    prompt, where = longest_of(prompts, tokenizer.lengths, extra, AT_ONCE)
    has_bos = tokenizer.raw(tokenizer.frame[0])[:1] == [tokenizer.vocabulary.bos]
    return prompt + (2 if has_bos else 3), where, longest_of(replies, tokenizer.lengths, 0, AT_ONCE)[0]
