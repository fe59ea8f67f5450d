"""What both sides of the benchmark on one GPU share: sizes, the network, prompts and their score, clocks."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

PROMPTS, SAMPLES, PROMPT = 64, 8, 256
MEAN, MOST = 512, 2048
SHAPE = {
    "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
    "max_position_embeddings": 40_960, "rope_theta": 1_000_000.0, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": None,
}  # fmt: skip
SMALL = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """How much: the real thing, or a toy that runs on a CPU to see that everything works."""

    prompts: int = PROMPTS
    samples: int = SAMPLES
    prompt: int = PROMPT
    mean: int = MEAN
    most: int = MOST
    toy: bool = False

    @property
    def shape(self) -> dict[str, Any]:
        """Of the network."""
        return SHAPE | SMALL if self.toy else SHAPE

    @property
    def words(self) -> int:
        """Of the vocabulary."""
        return int(self.shape["vocab_size"])

    @property
    def device(self) -> str:
        """Toys run anywhere."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def lengths(self, case: str) -> np.ndarray:
        """Response tokens of each row: the mean (a), or a log-normal with deviation 0.8 of the logarithm (b)."""
        num = self.prompts * self.samples
        if case == "a":
            return np.full(num, self.mean)
        drawn = np.random.default_rng(0).lognormal(math.log(self.mean) - 0.5 * 0.8**2, 0.8, num)
        drawn *= self.mean / drawn.clip(1, self.most).mean()
        return drawn.round().clip(1, self.most).astype(np.int64)


TOY = Size(4, 4, 16, 12, 40, toy=True)


def network(size: Size, dtype: torch.dtype) -> Any:
    """Random weights, from one seed."""
    from transformers import AutoModelForCausalLM, Qwen3Config

    torch.manual_seed(0)
    with torch.device(size.device):
        return AutoModelForCausalLM.from_config(Qwen3Config(**size.shape), dtype=dtype).eval()


def prompt_text(size: Size, ordinal: int) -> str:
    """Words of prompt `ordinal`."""
    return " ".join(f"w{token}" for token in np.random.default_rng(ordinal).integers(2, size.words, size.prompt - 1))


def even_share(text: str) -> float:
    """Even words over all."""
    ends = "".join([word[-1] for word in text.split()])
    return sum(map(ends.count, "02468")) / max(1, len(ends))


def seconds() -> float:
    """The clock, when the device has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def reset_peak() -> None:
    """Memory is counted from here."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak() -> float:
    """GiB allocated at most."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
