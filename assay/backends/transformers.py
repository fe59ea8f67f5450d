"""Pretrained language models as actors: any causal model of transformers, from a folder or a hub id.

Axes: B sequences, T tokens, D decisions, V vocabulary, W width, N rows that decode together. Decision t is token t
given the tokens before it: its logits come from position t - 1.

Weights come from safetensors only, no code out of a model's folder is run, and what would train with wrong numbers is
refused before anything is spent: see `check_folder`, `loaded`, `check_numbers` and `longest`.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.backends.extras import require
from assay.ops import distributions, text
from assay.slots import Task
from assay.tasks.preferences import PairsTask
from assay.tasks.prompts import Item, Items, PromptTask, prompt_ids
from assay.tasks.textfile import TextFile
from assay.types import AssayError, Experience, Need, Scored, Spec, Vocabulary

DTYPES = {"float32": torch.float32, "float64": torch.float64}
FILES = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
LOGITS_AT_ONCE = 1 << 25  # 128 MiB of float32
LARGEST_GAP = 1e-3  # between log-probabilities and those of the network's own forward pass
NUM_MEASURED = 512  # items, of both splits, that are looked at before a run
MARK = "prompt-goes-here-1+1"
TODAY = "{% macro strftime_now(form) %}26 Jul 2024{% endmacro %}{{ '' }}"  # a run must not depend on the date


# ---------------------------------------------------------------------------------------------------- the folder
@dataclass(frozen=True)
class Pretrained:
    """A causal language model of transformers, from a folder or from a hub id at a revision.

    Weights train in float32 or float64, since bfloat16 loses small updates; computing in bfloat16 is for the placement.
    """

    path: str
    revision: str | None = None
    dtype: str = "float32"

    def build(self, spec: Spec) -> nn.Module:
        """The actor, checked against the network's own forward pass."""
        network = loaded(self)
        size = network.get_output_embeddings().weight.shape[0]
        if not isinstance(spec.action, Vocabulary) or spec.action.size != size:
            what = f"model '{self.path}' speaks {size} tokens, the task has actions {spec.action}"
            raise AssayError(f"{what}; give the task the model's tokens with with_model")
        limit = getattr(network.config.get_text_config(), "max_position_embeddings", 0) or spec.horizon
        if spec.horizon > limit:
            raise AssayError(f"model '{self.path}' sees {limit} tokens, the task needs {spec.horizon}; shorten it")
        actor = PretrainedActor(spec.action, network)
        check_numbers(actor, self.path)
        return actor


def pinned(address: str) -> Pretrained:
    """The model at FOLDER, OWNER/NAME or OWNER/NAME@REVISION; a hub id gets the commit that it stands for now."""
    if Path(address).expanduser().is_dir():
        return Pretrained(address)
    path, _, revision = address.partition("@")
    return Pretrained(path, folder_of(Pretrained(path, revision or None)).name)


def folder_of(model: Pretrained) -> Path:
    """The model's folder, fetched where the path is a hub id; AssayError where it cannot be an actor."""
    folder = Path(model.path).expanduser()
    if not folder.is_dir():
        lost = f"there is no folder '{model.path}' (looked up from {Path.cwd()})"
        if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", model.path):
            raise AssayError(f"{lost}; give a folder with config.json and safetensors, or a hub id such as owner/name")
        with asking(f"{lost}, and the hub does not give this id"):
            hub = require("huggingface_hub", "language")
            folder = Path(hub.snapshot_download(model.path, revision=model.revision, allow_patterns=FILES))
    check_folder(folder, model.path)
    return folder


def check_folder(folder: Path, name: str) -> None:
    """AssayError where the files say that this is no causal language model that can be trained here."""
    with asking(f"'{name}' has a configuration that cannot be read") as library:
        files = [folder / "config.json", folder / "tokenizer_config.json"]
        config, other = (json.loads(file.read_text()) if file.is_file() else {} for file in files)
        known = library.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    kind, classes = config.get("model_type"), config.get("architectures") or []
    is_causal = kind in known and not config.get("is_encoder_decoder")
    is_causal &= not classes or any(one.endswith(("ForCausalLM", "LMHeadModel")) for one in classes)
    has_weights = any((folder / f"model.safetensors{rest}").is_file() for rest in ("", ".index.json"))
    reasons = {
        "is an adapter; merge it into its base model and give that": (folder / "adapter_config.json").is_file(),
        "has no config.json, so it is no model of transformers": not config,
        "wants to run its own code (auto_map), refused; take one that transformers knows": "auto_map" in config | other,
        f"is no causal language model of transformers (model_type {kind}, architectures {classes})": not is_causal,
        "has quantised weights, which cannot be trained; take the model itself": "quantization_config" in config,
        "has no model.safetensors, and no pickle is read; save it with save_pretrained": not has_weights,
    }
    if any(reasons.values()):
        raise AssayError(f"'{name}' {next(reason for reason, holds in reasons.items() if holds)}")


@contextmanager
def asking(trouble: str) -> Iterator[Any]:
    """transformers without its progress bars and reports; what it raises becomes an AssayError about `trouble`."""
    library = require("transformers", "language", "pretrained models")
    log, level, had_bar = library.logging, library.logging.get_verbosity(), library.logging.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield library
    except Exception as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise AssayError(f"{trouble}: {reason}") from error
    finally:
        log.set_verbosity(level)
        (log.enable_progress_bar if had_bar else log.disable_progress_bar)()


def loaded(model: Pretrained) -> Any:
    """The network with every one of its weights out of the file, in evaluation mode for good: no dropout."""
    if model.dtype not in DTYPES:
        what = f"dtype is '{model.dtype}'; weights train in {' or '.join(DTYPES)}"
        raise AssayError(f"{what}, and Placement(precision=torch.bfloat16) computes in less")
    folder = folder_of(model)
    options = {"dtype": DTYPES[model.dtype], "use_safetensors": True, "local_files_only": True}
    with asking(f"'{model.path}' cannot be loaded") as library:
        make = partial(library.AutoModelForCausalLM.from_pretrained, trust_remote_code=False, output_loading_info=True)
        network, report = make(folder, **options)
    columns = ("missing_keys", "mismatched_keys", "unexpected_keys")
    wrong = [f"{column[:-5]} {name}" for column in columns for name in sorted(map(str, report[column]))]
    if wrong:
        raise AssayError(f"'{model.path}': {len(wrong)} weights do not fit the architecture: {', '.join(wrong[:3])}")
    return network.to(DTYPES[model.dtype]).eval()


# ---------------------------------------------------------------------------------------------------- the actor
def bypass(*ignored: Any, inputs_embeds: Tensor, **settings: Any) -> Any:
    """Stands where the layers are and hands on what comes in: the network is then its output layer alone."""
    outputs = require("transformers.modeling_outputs", "language")
    result = outputs.MoeModelOutputWithPast(last_hidden_state=inputs_embeds)
    result.cross_attentions = None  # some read it, none needs it
    return result


class PretrainedActor(nn.Module):
    """A policy over the tokens of a pretrained network; nothing is forbidden, its distribution is the network's own."""

    num_draws = 1

    def __init__(self, vocabulary: Vocabulary, network: Any) -> None:
        super().__init__()
        self.vocabulary, self.network = vocabulary, network

    def logits(self, hidden_DW: Tensor) -> Tensor:
        """The network's own output layer and whatever it does to logits (scales, soft caps): [D, V]."""
        head = copy.copy(self.network)
        vars(head)[self.network.base_model_prefix] = bypass
        logits = head(inputs_embeds=hidden_DW.unsqueeze(0), use_cache=False).logits.squeeze(0)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Decoder:
        """Rows that decode together, `repeats` of each prompt."""
        return Decoder(self, prompts, repeats)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the decided tokens, LOGITS_AT_ONCE at a time unless somebody asks for all logits."""
        mask_BT = batch.mask.clone()
        mask_BT[:, 0] = False
        hidden = next(self.parameters()).new_zeros(0, self.network.get_output_embeddings().weight.shape[1])
        if bool(mask_BT.any()):
            tokens = batch.context["tokens"][:, :-1]
            hidden = self.network.base_model(input_ids=tokens, use_cache=False).last_hidden_state[mask_BT[:, 1:]]
        num = max(1, LOGITS_AT_ONCE // self.vocabulary.size)
        is_long = torch.is_grad_enabled() and len(hidden) > num  # all chunks' logits would wait for the backward pass
        measure: Any = partial(checkpoint, self.measured, use_reentrant=False) if is_long else self.measured
        chunks = zip(hidden.split(num), batch.action[mask_BT].split(num), strict=True)
        parts = [measure(some, action, needs) for some, action in chunks]

        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(*mask_BT.shape, *values.shape[1:]).index_put((mask_BT,), values)

        return Scored(
            spread(torch.cat([logp for logp, _ in parts])),
            spread(torch.cat([entropy for _, entropy in parts])) if Need.ENTROPY in needs else None,
            spread(self.logits(hidden)) if Need.LOGITS in needs else None,
            spread(hidden) if Need.HIDDEN in needs else None,
        )

    def measured(self, hidden_DW: Tensor, action_D: Tensor, needs: frozenset[Need]) -> tuple[Tensor, Tensor]:
        """(log-probability, entropy) of some decisions; an entropy that nobody needs is 0."""
        logits = self.logits(hidden_DW)
        logp = distributions.categorical_logp(logits, action_D)
        return logp, distributions.categorical_entropy(logits) if Need.ENTROPY in needs else torch.zeros_like(logp)


class Decoder:
    """Token by token with the network's own cache. Rows of one prompt share its prefill; padding stands in front."""

    def __init__(self, actor: PretrainedActor, prompts: Sequence[Sequence[int]], repeats: Sequence[int]) -> None:
        self.actor, self.cache = actor, cast(Any, None)
        device, longest, pad = next(actor.parameters()).device, max(map(len, prompts)), actor.vocabulary.pad
        unused = torch.tensor([longest - len(prompt) for prompt in prompts], device=device)
        self.seen = torch.arange(longest, device=device) >= unused.unsqueeze(1)
        self.is_even = bool(self.seen.all())
        self.take(torch.tensor([[pad] * (longest - len(prompt)) + [*prompt] for prompt in prompts], device=device))
        self.keep(torch.repeat_interleave(torch.tensor(repeats, device=device)))

    def take(self, tokens_NK: Tensor) -> None:
        """K more tokens of each row; `seen` already counts them."""
        inputs: dict[str, Any] = {"input_ids": tokens_NK, "past_key_values": self.cache, "use_cache": True}
        if not self.is_even:
            inputs["attention_mask"] = self.seen.long()
            inputs["position_ids"] = (self.seen.long().cumsum(1) - 1).clamp(min=0)[:, -tokens_NK.shape[1] :]
        output = self.actor.network.base_model(**inputs)
        self.cache, self.hidden = output.past_key_values, output.last_hidden_state[:, -1]

    def logits(self) -> Tensor:
        """[N, V] for the next token."""
        return self.actor.logits(self.hidden)

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        self.seen = nn.functional.pad(self.seen, (0, 1), value=True)
        self.take(tokens.unsqueeze(1))

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows only."""
        self.cache.reorder_cache(rows)
        self.hidden, self.seen = self.hidden[rows], self.seen[rows]


@torch.no_grad()
def check_numbers(actor: PretrainedActor, name: str) -> None:
    """AssayError where scoring or decoding departs from the network's own forward pass on six tokens."""
    ids = [7919 * place % actor.vocabulary.size for place in range(1, 7)]
    batch = text.written([ids[:1]] * 2, [ids[1:4], ids[1:]], torch.arange(2), actor.vocabulary.pad)
    with asking(f"the architecture of '{name}' does not fit"):
        own = actor.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
        decoder = actor.decoder([ids[:3], ids[:5]], [1, 2], 1)
        first = decoder.logits()
        decoder.keep(torch.tensor([2, 0]))
        decoder.push(torch.tensor([ids[5], ids[3]]))
        decoded = torch.cat([first, decoder.logits()]).log_softmax(-1)
        scored = actor.score(batch, frozenset({Need.LOGP})).logp[:, 1:]
    expected = own[torch.arange(5), ids[1:]] * batch.mask[:, 1:]
    gap = max(float((decoded - own[[2, 4, 4, 5, 3]]).abs().max()), float((scored - expected).abs().max()))
    if not gap <= LARGEST_GAP:
        what = f"log-probabilities of '{name}' are {gap:.2g} off its own forward pass"
        raise AssayError(f"{what}: padding, cache or output layer work differently in this architecture")


# ---------------------------------------------------------------------------------------------------- the tokenizer
class Framed(str):
    """A prompt that stands in the model's chat template when it is encoded: the type says so, never the text."""


@dataclass(frozen=True)
class PretrainedTokenizer:
    """The tokenizer of a pretrained model. Text is only ever text: "<|im_end|>" in a prompt is no control token.

    `bos` begins every prompt: the template's first control token, else the tokenizer's bos, else its eos (Qwen has no
    bos and separates documents by eos). `eos` is what the template puts after a reply, else the tokenizer's eos. `pad`
    is eos where there is none: padding is known by the columns `mask` and `valid`, never by its id.
    """

    path: str
    revision: str | None = None
    chat: bool = True

    @cached_property
    def backend(self) -> Any:
        """The tokenizer of transformers."""
        folder = folder_of(Pretrained(self.path, self.revision))
        with asking(f"the tokenizer of '{self.path}' cannot be loaded") as library:
            return library.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)

    def rendered(self, *turns: str) -> str:
        """The chat template around a prompt, or around a prompt and its reply."""
        chat = [{"role": role, "content": turn} for role, turn in zip(("user", "assistant"), turns, strict=False)]
        with asking(f"the chat template of '{self.path}' fails (chat=False does without)"):
            template = TODAY + self.backend.get_chat_template()
            options = {"chat_template": template, "add_generation_prompt": len(turns) == 1}
            return str(self.backend.apply_chat_template(chat, tokenize=False, **options))

    @cached_property
    def frame(self) -> tuple[str, str]:
        """What the chat template writes before and after a prompt; nothing where there is no template."""
        if not self.chat or not self.backend.chat_template:
            return "", ""
        before, mark, after = self.rendered(MARK).partition(MARK)
        if not mark or MARK in after:
            raise AssayError(f"the chat template of '{self.path}' loses or repeats the prompt; use chat=False")
        return before, after

    @cached_property
    def control(self) -> Mapping[int, str]:
        """Control tokens: special ones, and added ones that the template writes."""
        frame, added = "\n".join(self.frame), self.backend.added_tokens_decoder.items()
        return {i: one.content for i, one in added if one.special or (one.content in frame and one.content.strip())}

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The model's number of tokens, and the ids described above."""
        eos, bos, pad = self.backend.eos_token_id, self.backend.bos_token_id, self.backend.pad_token_id
        if any(self.frame):
            after_reply = self.raw(self.rendered(MARK, MARK).rpartition(MARK)[2])
            eos = next((index for index in after_reply if index in self.control), eos)
            bos = next((index for index in self.raw(MARK.join(self.frame))[:1] if index in self.control), bos)
        if eos is None:
            raise AssayError(f"'{self.path}' has no end token; name its eos_token in tokenizer_config.json")
        reader = require("transformers", "language").AutoConfig
        config = reader.from_pretrained(self.backend.name_or_path, trust_remote_code=False, local_files_only=True)
        given = [int(eos if one is None else one) for one in (pad, bos, eos)]
        return Vocabulary(int(config.get_text_config().vocab_size), *given)

    def raw(self, written: str) -> list[int]:
        """Ids of text in which control tokens are control tokens."""
        return list(self.backend.encode(written, add_special_tokens=False, split_special_tokens=False))

    def encode(self, text: str) -> list[int]:
        """Ids of text (cut where it spells a control token), or of a framed prompt without its bos, or ValueError."""
        before, after = self.frame if isinstance(text, Framed) else ("", "")
        whole, shift = before + text + after, len(before) + 1
        spelt = "|".join(re.escape(token) for token in self.control.values()) or "$^"
        cuts = sorted({match.start() + shift for match in re.finditer(f"(?={spelt})", text)})
        pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        ids = [index for piece in pieces for index in self.raw(piece)]
        allowed = len(re.findall(spelt, before)) + len(re.findall(spelt, after))
        if sum(index in self.control for index in ids) != allowed or max(ids, default=0) >= self.vocabulary.size:
            raise ValueError(f"the tokenizer of '{self.path}' cannot write {text[:60]!a} as plain text")
        return ids[1:] if before and ids[0] == self.vocabulary.bos else ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text without pad, bos and eos; other special tokens, and ids that are no token, read as U+FFFD."""
        added, vocabulary = self.backend.added_tokens_decoder, self.vocabulary
        shown = [index for index in ids if index not in (vocabulary.pad, vocabulary.bos, vocabulary.eos)]
        names = dict(zip(shown, self.backend.convert_ids_to_tokens(shown), strict=True))
        runs = itertools.groupby(shown, lambda one: names[one] is None or (one in added and added[one].special))
        read = partial(self.backend.decode, clean_up_tokenization_spaces=False)
        return "".join(text.SPOILED * len(list(run)) if is_bad else read(list(run)) for is_bad, run in runs)


# ---------------------------------------------------------------------------------------------------- the task
@dataclass(frozen=True)
class ModelTask(PromptTask):
    """Prompts that stand in a model's chat template, where it has one."""

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        """The items of these ordinals, their prompts framed."""
        return [replace(item, prompt=Framed(item.prompt)) for item in super().items_of(starts, split)]


def with_model(task: Task, model: str | Pretrained, chat: bool = True, max_tokens: int = 0) -> PromptTask | PairsTask:
    """The task in the model's tokens, its prompts in the model's chat template where it has one.

    `max_tokens` 0 keeps the task's limit, or raises it to the longest demonstration.
    """
    chosen = pinned(model) if isinstance(model, str) else model
    if isinstance(task, PairsTask):
        return PairsTask(cast(PromptTask, with_model(task.prompts, chosen, chat, max_tokens)))
    if not isinstance(task, PromptTask):
        raise AssayError(f"task '{task.name}' has no prompts; a language model needs a token task such as countdown")
    tokenizer = PretrainedTokenizer(chosen.path, chosen.revision, chat)
    frame = len(prompt_ids(tokenizer, Framed(""), sys.maxsize)) + 2
    prompt, reply = longest(tokenizer, task.items)
    if not isinstance(task.items, TextFile):  # of items that were not seen, no token is shorter than a byte
        prompt = max(prompt, task.max_prompt)
    return ModelTask(task.name, task.items, tokenizer, prompt + frame, max_tokens or max(reply + 1, task.max_tokens))


def longest(tokenizer: PretrainedTokenizer, items: Items) -> tuple[int, int]:
    """Tokens of the longest prompt and reply; AssayError where the tokenizer cannot write them and read them back."""
    some = items.rows if isinstance(items, TextFile) else [items.item(k // 2, k % 2) for k in range(NUM_MEASURED)]
    prompts, replies = [0], [0]
    with asking(f"the tokenizer of '{tokenizer.path}' does not fit the task"):
        for place, item in enumerate(some):
            words = (item.prompt, item.demonstration, str(item.facts.get("rejected", "")))
            written = [tokenizer.encode(one) for one in words]
            for ids in written if place < NUM_MEASURED else ():
                read = tokenizer.decode(ids)
                if tokenizer.encode(read) != ids:
                    raise ValueError(f"it writes {ids[:20]} and reads that as {read[:60]!a}, which has other ids")
            prompts.append(len(written[0]))
            replies += map(len, written[1:])
    return max(prompts), max(replies)
