"""One GRPO step on one GPU, the peer's side: TRL's GRPOTrainer with HF generate."""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_work import Size, even_share, network, peak, prompt_text, reset_peak, seconds


@dataclass
class Ends:
    """Ends each row where the table says; rows are generated in parts, of which this one begins at `first`."""

    limit: Tensor
    size: Size
    first: int = 0

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores that allow the end token at a row's end, and nowhere else."""
        is_over = ids.shape[1] - self.size.prompt >= self.limit[self.first : self.first + len(ids)] - 1
        eos = torch.arange(scores.shape[1], device=scores.device) == self.size.words - 1
        return scores.masked_fill(eos != is_over.unsqueeze(1), -torch.inf)


def micro_batch(size: Size) -> int:
    """Rows in one backward pass."""
    return 2 if size.toy else 16


def rows_at_once(size: Size, asked: int) -> int:
    """Rows that are generated at once, all of a step for 0; parts hold whole groups, and whole parts make a step."""
    rows, unit = size.prompts * size.samples, math.lcm(micro_batch(size), size.samples)
    parts = [part for part in range(unit, rows + 1, unit) if rows % part == 0]
    if asked not in (0, *parts):
        raise ValueError(f"{asked} rows at once cannot be; what can: {', '.join(map(str, parts))}, or 0 for all")
    return asked or rows


def tokenizer_of(size: Size) -> Any:
    """Words are numbers; the last two of the vocabulary pad and end."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{token}": token for token in range(size.words - 2)} | {"<pad>": size.words - 2, "<eos>": size.words - 1}
    inner = Tokenizer(models.WordLevel(words, unk_token="w2"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def settings(folder: str, size: Size, longest: int, steps: int, at_once: int) -> Any:
    """TRL's: one optimizer step for all rows, which are generated `at_once` at a time."""
    from trl import GRPOConfig

    small = micro_batch(size)
    return GRPOConfig(
        output_dir=folder, per_device_train_batch_size=small,
        gradient_accumulation_steps=size.prompts * size.samples // small, steps_per_generation=at_once // small,
        num_generations=size.samples, max_completion_length=longest, beta=0.0, bf16=size.device == "cuda",
        learning_rate=1e-6, max_steps=steps, report_to=[], save_strategy="no", loss_type="grpo", temperature=1.0,
        disable_tqdm=True, logging_strategy="no", use_cpu=size.device == "cpu", gradient_checkpointing=False,
    )  # fmt: skip


def peer(
    case: str, size: Size, steps: int, warm: int, at_once: int, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Seconds and peak memory of `steps` steps, after `warm` that do not count; `keep` gets what is known after each.

    A step generates its rows in parts of `at_once` rows, each just before its backward passes; decoding is their sum.
    """
    from datasets import Dataset
    from transformers import LogitsProcessorList, TrainerCallback
    from trl import GRPOTrainer

    lengths = size.lengths(case).tolist()
    model = network(size, torch.bfloat16)
    ends = Ends(torch.tensor(lengths, device=size.device), size)
    phases: dict[str, list[float]] = {"decode": [], "whole step": []}
    made: list[int] = []
    generate = model.generate

    def generated(*given: Any, **options: Any) -> Any:
        before = seconds()
        result = generate(*given, logits_processor=LogitsProcessorList([ends]), **options)
        phases["decode"][-1] += seconds() - before
        ends.first += len(result)
        return result

    model.generate = generated

    def measured() -> dict[str, Any]:
        counted = {name: some[warm:] for name, some in phases.items()}
        row = {
            "who": "TRL", "case": case, "seconds": counted, "peak_gib": peak(), "response_tokens": sum(lengths),
            "decode_tokens_per_second": sum(lengths) / statistics.median(counted["decode"]),
        }  # fmt: skip
        return row if at_once == len(lengths) else row | {"at_once": at_once}

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.start = seconds()
            phases["decode"].append(0.0)
            made.clear()
            ends.first = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            phases["whole step"].append(seconds() - self.start)
            print(f"  TRL step: {phases['whole step'][-1]:.2f} s {peak():.1f} GiB", file=sys.stderr, flush=True)
            if made != lengths:
                raise RuntimeError(f"a step made {len(made)} rows of {sum(made)} tokens, not those of the table")
            if len(phases["whole step"]) > warm:
                keep(measured())

    def reward(completions: list[str], completion_ids: list[list[int]], **rest: Any) -> list[float]:
        made.extend(map(len, completion_ids))
        return [even_share(completion) for completion in completions]

    prompts = [" ".join(["w1", prompt_text(size, ordinal)]) for ordinal in range(size.prompts * (warm + steps))]
    reset_peak()
    with tempfile.TemporaryDirectory() as folder:
        GRPOTrainer(
            model=model, reward_funcs=reward, args=settings(folder, size, max(lengths), warm + steps, at_once),
            train_dataset=Dataset.from_dict({"prompt": prompts}), processing_class=tokenizer_of(size),
            callbacks=[Clock()],
        ).train()  # fmt: skip
    return measured()
