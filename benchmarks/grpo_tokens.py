"""One GRPO step of a tiny transformer on the CPU: 32 prompts x 8 samples x exactly 64 new tokens, two threads.

No side may stop early, one optimizer step on 256 sequences, no reference model, float32. The peer is TRL's GRPOTrainer
with a Llama of the same width, depth, heads and vocabulary, at its defaults and with oneDNN off.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.arms import interleaved

SIZES = {"1.07M": (128, 5, 4, 320), "0.1M": (64, 2, 4, 64), "toy": (16, 1, 2, 64)}
"""Width, layers, heads, vocabulary."""
NEW = 64


def work(size: str) -> tuple[int, int, int]:
    """Prompts, new tokens of each of their 8 samples, and steps of which the first is not measured."""
    return (2, 4, 2) if size == "toy" else (32, NEW, 4)


def measure(quick: bool, toy: bool = False) -> list[dict[str, Any]]:
    """One row an arm."""
    sizes = [size for size in SIZES if (size == "toy") == toy]
    arms = {f"{who} {size}": [who, size] for size in sizes for who in ("assay", "TRL", "TRL,oneDNN-off")}
    return interleaved("benchmarks.grpo_tokens", arms, 1 if quick or toy else 3, 2)


@dataclass(frozen=True)
class Words:
    """A tokenizer whose words are numbers; its end token is never allowed, so that every answer has 64 tokens."""

    size: int

    @property
    def vocabulary(self) -> Any:
        """The end token is one that the policy cannot choose."""
        from assay.core.spaces import Vocabulary

        return Vocabulary(self.size, pad=0, bos=1, eos=1)

    def encode(self, text: str) -> list[int]:
        """w7 -> 7."""
        return [int(word[1:]) for word in text.split()]

    def decode(self, ids: Any) -> str:
        """7 -> w7."""
        return " ".join(f"w{int(token)}" for token in ids)


@dataclass(frozen=True)
class Parity:
    """Random prompts; the score is the share of even tokens."""

    size: int

    def item(self, ordinal: int, split: int) -> Any:
        """Fifteen random words."""
        from assay.tasks.language.items import Item

        ids = np.random.default_rng((ordinal, split)).integers(2, self.size, 15)
        return Item(" ".join(f"w{token}" for token in ids), "", "")

    def verify(self, item: Any, completion: str) -> Any:
        """Share of even words."""
        from assay.core.record import Score

        return Score(even_share(completion))


def even_share(text: str) -> float:
    """Even words over 64."""
    return sum(int(word[1:]) % 2 == 0 for word in text.split()) / NEW


def assay_arm(size: str) -> dict[str, Any]:
    """recipes.grpo with one update a step."""
    from assay import recipes
    from assay.engine.loop import Loop
    from assay.engine.machine import tuned
    from assay.engine.placement import Placement
    from assay.models.bodies.transformer import Transformer
    from assay.models.model import Policy
    from assay.parts.rollouts.episodes import Episodes
    from assay.parts.sources.fresh import FreshSequences
    from assay.tasks.language.prompts import PromptTask

    (width, layers, heads, vocabulary), (prompts, new, steps) = SIZES[size], work(size)
    recipe = replace(
        recipes.grpo(),
        actor=Policy(Transformer(width, layers, heads)),
        source=FreshSequences(),
        rollout=Episodes(prompts, 8),
    )
    task = PromptTask("parity", Parity(vocabulary), Words(vocabulary), 16, new)
    loop = Loop(recipe, task, seed=0, num_steps=100, placement=Placement(micro_batch=32))
    seconds, cpu, parts = [], [], []
    with tuned(sum(parameter.numel() for parameter in loop.actor.parameters())):
        for _ in range(steps):
            start, used = time.perf_counter(), time.process_time()
            step = loop.step()
            seconds.append(time.perf_counter() - start)
            cpu.append(time.process_time() - used)
            parts.append(step.seconds)
    return {
        "parameters": sum(parameter.numel() for parameter in loop.actor.parameters()),
        "step_seconds": float(np.median(seconds[1:])),
        "cpu_seconds": float(np.median(cpu[1:])),
        "sample_seconds": float(np.median([part["sample"] for part in parts[1:]])),
        "update_seconds": float(np.median([part["update"] for part in parts[1:]])),
    }


def peer_arm(size: str, onednn: bool) -> dict[str, Any]:
    """TRL's GRPOTrainer."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.backends.mkldnn.enabled = onednn  # type: ignore[assignment]
    (width, layers, heads, vocabulary), (starts, new, steps) = SIZES[size], work(size)
    words = {f"w{token}": token for token in range(vocabulary)} | {"<pad>": vocabulary, "<eos>": vocabulary + 1}
    inner = Tokenizer(models.WordLevel(words, unk_token="w2"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    shape = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=round(8 * width / 3), num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads, tie_word_embeddings=False, max_position_embeddings=128,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    model, draw = LlamaForCausalLM(shape), np.random.default_rng(0)
    prompts = [" ".join(f"w{token}" for token in draw.integers(2, vocabulary, 16)) for _ in range(2 * starts * steps)]
    seconds: list[float] = []
    cpu: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.start, self.used = time.perf_counter(), time.process_time()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            seconds.append(time.perf_counter() - self.start)
            cpu.append(time.process_time() - self.used)

    def reward(completions: list[str], **rest: Any) -> list[float]:
        return [even_share(completion) for completion in completions]

    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=8 * starts, num_generations=8, max_completion_length=new,
            beta=0.0, bf16=False, learning_rate=3e-4, max_steps=steps, report_to=[], save_strategy="no",
            loss_type="grpo", use_cpu=True, disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": prompts})
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=settings,
            train_dataset=data,
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        trainer.train()
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_seconds": float(np.median(seconds[1:])),
        "cpu_seconds": float(np.median(cpu[1:])),
    }


def arm(words: Sequence[str]) -> dict[str, Any]:
    """The arm that a child process is asked for."""
    who, size = words
    return assay_arm(size) if who == "assay" else peer_arm(size, "off" not in who)


if __name__ == "__main__":
    torch.set_num_threads(2)
    print(json.dumps(arm(sys.argv[1:])))
