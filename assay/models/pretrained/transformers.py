"""Pretrained language models as actors: any causal model of transformers, from a folder or a hub id.

This module has folders and tokenizers; `causal` has the actor, `adapters` LoRA, `tasks.adapters.pretrained` the
tasks.

Weights come from safetensors only, no code from a model's folder is run, and a model that would train with wrong
numbers is rejected before compute is spent: see `check_folder`, `loaded` and `check_numbers`.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.spaces import Spec, Vocabulary
from assay.models.bodies.hidden import Sequences
from assay.models.pretrained.adapters import Lora, adapter_settings, attach_saved, merged, save
from assay.models.pretrained.causal import PretrainedActor, PretrainedStates, asking, check_numbers
from assay.models.pretrained.chat import pieces_of, reply_of, texts_around, with_text_arguments
from assay.models.pretrained.chat_texts import Answered, Framed
from assay.models.pretrained.hub import downloaded
from assay.models.pretrained.settings_files import settings_in, texts_of
from assay.models.pretrained.spelling import plain_ids
from assay.models.pretrained.tool_turns import ToolTurns, tool_turns
from assay.models.pretrained.weight_index import foreign_shard, misfits, too_large
from assay.ops.bfloat16 import prepare_bfloat16
from assay.ops.distributions import check_temperature
from assay.rollouts import text
from assay.rollouts.text import Message, Said, ToolResults

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
FILES = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
MARK = "prompt-goes-here-1+1"
TODAY = "{% macro strftime_now(form) %}26 Jul 2024{% endmacro %}{{ '' }}"  # a run must not depend on the date


# ---------------------------------------------------------------------------------------------------- the folder
@dataclass(frozen=True)
class Pretrained(Sequences):
    """A causal language model of transformers, from a folder or from a hub id at a revision.

    By itself it is an actor; as a body it provides a copy of its hidden states to a head: `Critic(Pretrained(path))`.

    In bfloat16 weights and arithmetic take half the memory and time; small updates are not lost, since the optimizers
    that support it keep float32 master weights (`Adam`).

    With `lora` only adapters are trained. A folder that peft saved means its base model with that adapter, which is
    trained further. Logits are divided by `temperature` wherever the policy is used, see `Categorical`.
    """

    path: str
    revision: str | None = None
    dtype: str = "float32"
    lora: Lora = Lora()
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    def build(self, spec: Spec) -> nn.Module:
        """Returns the actor, checked against the network's own forward pass."""
        network = self.fitting(spec)
        actor = PretrainedActor(cast(Vocabulary, spec.action), network)
        check_numbers(actor, self.path)
        actor.temperature = self.temperature
        return actor

    def states(self, spec: Spec) -> PretrainedStates:
        """Returns the network without its output layer."""
        return PretrainedStates(self.fitting(spec))

    def fitting(self, spec: Spec) -> Any:
        """Returns the network; raises AssayError if it does not fit the task."""
        network = loaded(self)
        size = network.get_output_embeddings().weight.shape[0]
        if not isinstance(spec.action, Vocabulary) or spec.action.size != size:
            what = f"model '{self.path}' has {size} tokens, the task has actions {spec.action}"
            raise AssayError(f"{what}. Give the task the model's tokenizer with with_model")
        limit = getattr(network.config.get_text_config(), "max_position_embeddings", 0) or spec.horizon
        if spec.horizon > limit:
            what = f"model '{self.path}' reads {limit} tokens, the task needs {spec.horizon}"
            fix = "Lower --max-tokens; with tools --tool-calls or --tool-bytes; max_reply of own conversations"
            raise AssayError(f"{what}. {fix}")
        return network


def pinned(address: str) -> Pretrained:
    """Returns the model at FOLDER, OWNER/NAME or OWNER/NAME@REVISION; a hub id is pinned to its current commit."""
    if Path(address).expanduser().is_dir():
        return Pretrained(address)
    path, _, revision = address.partition("@")
    return Pretrained(path, folder_of(Pretrained(path, revision or None)).name)


def folder_of(model: Pretrained) -> Path:
    """Returns the model's folder, downloaded if the path is a hub id, and its base model's if it is an adapter;
    raises AssayError if it cannot be an actor.
    """
    folder = Path(model.path).expanduser()
    adapter = adapter_settings(folder)
    if adapter and not (folder / "config.json").is_file():
        base = Pretrained(adapter["base_model_name_or_path"], adapter.get("revision"))
        if adapter_settings(Path(base.path).expanduser()):
            raise AssayError(
                f"'{model.path}' adapts another adapter, '{base.path}'. Merge that one into its base model"
            )
        return folder_of(base)
    if not folder.is_dir():
        lost = f"there is no folder '{model.path}' (looked up from {Path.cwd()})"
        if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", model.path):
            raise AssayError(f"{lost}. Use a folder with config.json and safetensors, or a hub id such as owner/name")
        with asking(f"{lost}, and the hub does not have this id"):
            folder = downloaded(model.path, model.revision, FILES)
    check_folder(folder, model.path)
    return folder


def check_folder(folder: Path, name: str) -> None:
    """Raises AssayError if the files are not those of a causal language model that can be trained here."""
    with asking(f"'{name}' cannot be looked up") as library:
        known = library.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    file = folder / "config.json"
    config = settings_in(file, {"model_type": str, "architectures": list})
    other = settings_in(folder / "tokenizer_config.json", {})
    kind, classes = config.get("model_type"), texts_of(config, "architectures", file)
    is_causal = kind in known and not config.get("is_encoder_decoder")
    is_causal &= not classes or any(one.endswith(("ForCausalLM", "LMHeadModel")) for one in classes)
    is_adapter = (folder / "adapter_config.json").is_file()
    has_weights = any((folder / f"model.safetensors{rest}").is_file() for rest in ("", ".index.json"))
    foreign, large = foreign_shard(folder), too_large(folder, config)
    reasons = {
        "is a model and an adapter of another. Keep them in two folders": is_adapter and bool(config),
        "is an adapter. Download it and use its folder": is_adapter,
        "has no config.json, so it is not a model of transformers": not config,
        "needs to run its own code (auto_map). Use one built into transformers": "auto_map" in config | other,
        f"is not a causal language model of transformers (model_type {kind}, architectures {classes})": not is_causal,
        "has quantised weights, which cannot be trained. Use the original model": "quantization_config" in config,
        f"has weights outside of its folder ({foreign}), which are not read. Copy them into it": bool(foreign),
        "has no model.safetensors, and pickles are not read. Save it with save_pretrained": not has_weights,
        f"does not fit its config.json: {large}. Restore it": bool(large),
    }
    if any(reasons.values()):
        raise AssayError(f"'{name}' {next(reason for reason, holds in reasons.items() if holds)}")


def loaded(model: Pretrained) -> Any:
    """Returns the network with all weights loaded from the file, always in evaluation mode: no dropout."""
    if model.dtype not in DTYPES:
        what = f"dtype is '{model.dtype}'. Use {' or '.join(DTYPES)}"
        raise AssayError(f"{what}; for mixed precision use Placement(precision=torch.bfloat16)")
    if model.dtype == "bfloat16":
        prepare_bfloat16()
    folder = folder_of(model)
    options = {"dtype": DTYPES[model.dtype], "use_safetensors": True, "local_files_only": True}
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}  # the report names what does not fit
    with asking(f"'{model.path}' cannot be loaded") as library:
        network, report = library.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False, **options)
    if wrong := misfits(report):
        raise AssayError(f"'{model.path}': {len(wrong)} weights do not fit the architecture: {', '.join(wrong[:3])}")
    return with_adapters(network, model).to(DTYPES[model.dtype]).eval()


def with_adapters(network: Any, model: Pretrained) -> Any:
    """Returns the network with the adapter of its path or its settings; unchanged without one."""
    folder = Path(model.path).expanduser()
    if not adapter_settings(folder):
        return model.lora.attach(network) if model.lora.rank else network
    if model.lora.rank:
        raise AssayError(f"'{model.path}' is an adapter already and is trained further. Set lora.rank=0")
    return attach_saved(network, folder)


def export(policy: Any, model: Any, target: Path, *, merge: bool = False) -> None:
    """Writes a trained policy that was built from `model` into a new folder, as `adapters.save` does; with `merge`, its
    adapter merged into the base model. Another temperature than 1 is written as that of generation.
    """
    if not isinstance(policy, PretrainedActor) or not isinstance(model, Pretrained):
        raise AssayError("this policy is not a network of transformers. Train with --model, or use its checkpoints")
    if target.exists():
        raise AssayError(f"{target} exists already. Use a new folder")
    adapter = adapter_settings(Path(model.path).expanduser())
    base = Pretrained(adapter["base_model_name_or_path"], adapter.get("revision")) if adapter else model
    network = merged(policy.network) if merge else policy.network
    with asking(f"{target} cannot be written"):
        if model.temperature != 1.0:
            network.generation_config.update(temperature=model.temperature, do_sample=True)
        save(network, PretrainedTokenizer(model.path, model.revision).backend, target, base.path, base.revision)
        if model.temperature != 1.0:
            network.generation_config.save_pretrained(target)


# ---------------------------------------------------------------------------------------------------- the tokenizer
@dataclass(frozen=True)
class PretrainedTokenizer:
    """The tokenizer of a pretrained model. Text is only ever text: "<|im_end|>" in a prompt is not a control token.

    `bos` begins every prompt: the template's first control token, else the tokenizer's bos, else its eos (Qwen has no
    bos and separates documents by eos). `eos` is the token that the template puts after a reply, else the tokenizer's
    eos. `pad` defaults to eos: padding is identified by the columns `mask` and `valid`, never by its id. Control tokens
    in `kept`, such as those around tool calls, are text where an utterance is decoded.
    """

    path: str
    revision: str | None = None
    chat: bool = True
    kept: tuple[str, ...] = ()

    @cached_property
    def backend(self) -> Any:
        """The tokenizer of transformers."""
        folder = folder_of(Pretrained(self.path, self.revision))
        with asking(f"the tokenizer of '{self.path}' cannot be loaded") as library:
            return library.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)

    def rendered(self, *turns: str) -> str:
        """Returns the chat template around a prompt, a prompt and its reply, and so on in turn."""
        roles = itertools.cycle(("user", "assistant"))
        return self.template([Message(role, turn) for role, turn in zip(roles, turns, strict=False)])

    def template(self, messages: Sequence[Message], tools: str = "") -> str:
        """Returns the chat template around messages; it opens a reply unless the last one is the assistant's."""
        return self.chat_text([message.fields for message in messages], tools)

    def chat_text(self, chat: Sequence[Mapping[str, Any]], tools: str = "") -> str:
        """Returns the chat template around messages as transformers takes them, tool calls included.
        Arguments of calls are objects; a template that joins them to text gets them as JSON.
        """
        roles = ", ".join(message["role"] for message in chat)
        with asking(f"the chat template of '{self.path}' fails on {roles} (chat=False uses none)"):
            template = TODAY + self.backend.get_chat_template()
            options = {"chat_template": template, "add_generation_prompt": chat[-1]["role"] != "assistant"}
            options |= {"tools": json.loads(tools)} if tools else {}
            try:
                return str(self.backend.apply_chat_template(list(chat), tokenize=False, **options))
            except TypeError:
                if not any(one.get("tool_calls") for one in chat):
                    raise
            return str(self.backend.apply_chat_template(with_text_arguments(chat), tokenize=False, **options))

    def pieces(self, prompt: str, said: Said) -> list[tuple[list[int], bool]]:
        """Returns the tokens of a demonstrated conversation in pieces; see `chat.pieces_of`."""
        return pieces_of(self, Framed(prompt), said)

    def written(self, prompt: Framed, said: Said) -> Said:
        """Returns the last reply in the words of the template, which it needs for calls and reasoning."""
        return Said(said.message, reply_of(self, (*prompt.messages, said.message), prompt.tools, -1)[1])

    @cached_property
    def frames(self) -> dict[tuple[tuple[tuple[str, bool], ...], str], list[str]]:
        """The texts that the template writes around messages, by their roles and tools; filled by `around`."""
        return {}

    def around(self, prompt: Framed) -> list[str]:
        """Returns the texts that the template writes around the messages of a prompt; see `chat.texts_around`."""
        key = (tuple((message.role, bool(message.content)) for message in prompt.messages), prompt.tools)
        own = any(message.more for message in prompt.messages)  # calls differ from row to row
        found = texts_around(self, prompt.messages, prompt.tools) if own or key not in self.frames else self.frames[key]
        return found if own else self.frames.setdefault(key, found)

    @cached_property
    def frame(self) -> tuple[str, str]:
        """The text that the chat template writes before and after a prompt; empty without a template."""
        if not self.chat or not self.backend.chat_template:
            return "", ""
        before, mark, after = self.rendered(MARK).partition(MARK)
        if not mark or MARK in after:
            raise AssayError(f"the chat template of '{self.path}' drops or repeats the prompt. Use chat=False")
        return before, after

    @cached_property
    def gap(self) -> tuple[str, str]:
        """The text that the chat template writes before and after a reply between two utterances, beginning with the
        first one's end token. Raises AssayError if the template changes earlier turns when a conversation continues.
        """
        if not any(self.frame):
            raise AssayError(f"'{self.path}' has no chat template. Use a chat model for conversations")
        whole = self.rendered(MARK, MARK, MARK)
        begun = self.rendered(MARK) + MARK
        before, mark, after = whole.removeprefix(begun).partition(MARK)
        goes_on = whole.startswith(begun) and bool(mark) and self.raw(before)[:1] == [self.vocabulary.eos]
        if not goes_on or self.rendered(*[MARK] * 5) != whole + MARK + before + MARK + after:
            what = f"the chat template of '{self.path}' rewrites earlier turns when a conversation continues"
            raise AssayError(f"{what}. Use a model whose template appends, or a task of one turn")
        return before, after

    def tool_turns(self, num_results: int) -> ToolTurns | None:
        """Returns how the template writes a call and the results of an utterance; None if it does not write calls."""
        if num_results not in self.turns:
            eos = self.control.get(self.vocabulary.eos, "")
            self.turns[num_results] = tool_turns(self.path, self.chat_text, eos, num_results) if eos else None
        return self.turns[num_results]

    @cached_property
    def turns(self) -> dict[int, ToolTurns | None]:
        """The texts around results, by their number; filled by `tool_turns`."""
        return {}

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
            raise AssayError(f"'{self.path}' has no end token. Set eos_token in tokenizer_config.json")
        given = [int(eos if one is None else one) for one in (pad, bos, eos)]
        return Vocabulary(int(self.config.vocab_size), *given)

    @cached_property
    def config(self) -> Any:
        """The model's configuration."""
        reader = require("transformers", "language").AutoConfig
        config = reader.from_pretrained(self.backend.name_or_path, trust_remote_code=False, local_files_only=True)
        return config.get_text_config()

    @property
    def most_tokens(self) -> int:
        """The tokens that the model can read; a very large number if it does not say."""
        return int(getattr(self.config, "max_position_embeddings", 0) or sys.maxsize)

    def raw(self, written: str) -> list[int]:
        """Returns ids of text in which control tokens are control tokens."""
        return list(self.backend.encode(written, add_special_tokens=False, split_special_tokens=False))

    def encode(self, text: str) -> list[int]:
        """Returns ids of text (split where it spells a control token), of a framed prompt without its bos, or of a
        reply with everything the template writes since the last utterance, from its end token on. Raises ValueError
        if the text cannot be encoded.
        """
        around, texts = self.spelled(text)
        ids = plain_ids(self, around, texts)
        return ids[1:] if isinstance(text, Framed) and around[0] and ids[0] == self.vocabulary.bos else ids

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Returns the tokens of each text, all in one call, bos included where the template writes it. Texts that spell
        a control token are encoded one by one.
        """
        spelt, wholes = re.compile("|".join(map(re.escape, self.control.values())) or "$^"), list[str | None]()
        for one in texts:
            around, contents = self.spelled(one)
            inner = [piece for pair in zip(contents, around[1:], strict=True) for piece in pair]
            wholes.append(None if any(map(spelt.search, contents)) else around[0] + "".join(inner))
        found = self.backend([one or "" for one in wholes], add_special_tokens=False, split_special_tokens=False)
        pairs = zip(found["input_ids"], wholes, texts, strict=True)
        return [len(self.encode(one)) if whole is None else len(ids) for ids, whole, one in pairs]

    def spelled(self, text: str) -> tuple[Sequence[str], list[str]]:
        """Returns the template's texts before, between and after, and the texts that are only ever text."""
        if isinstance(text, ToolResults) and (turns := self.tool_turns(len(text.results))) is not None:
            return turns.pieces, [*text.results]
        if isinstance(text, Answered):
            return self.gap, [text]
        if not isinstance(text, Framed) or not any(self.frame):
            return ("", ""), [text]
        if len(text.messages) == 1 and text.messages[0].role == "user" and not text.tools:
            return self.frame, [text.messages[0].content]
        return self.around(text), [message.content for message in text.messages if message.content]

    @cached_property
    def special(self) -> frozenset[int]:
        """Special tokens that are not kept; transformers builds the whole table of added ones at every look."""
        added = self.backend.added_tokens_decoder.items()
        return frozenset(i for i, one in added if one.special and one.content not in self.kept)

    def decode(self, ids: Sequence[int]) -> str:
        """Returns text without pad, bos and eos; other special tokens and invalid ids become U+FFFD."""
        vocabulary = self.vocabulary
        shown = [index for index in ids if index not in (vocabulary.pad, vocabulary.bos, vocabulary.eos)]
        names = dict(zip(shown, self.backend.convert_ids_to_tokens(shown), strict=True))
        runs = itertools.groupby(shown, lambda one: names[one] is None or one in self.special)
        read = partial(self.backend.decode, clean_up_tokenization_spaces=False)
        return "".join(text.SPOILED * len(list(run)) if is_bad else read(list(run)) for is_bad, run in runs)
