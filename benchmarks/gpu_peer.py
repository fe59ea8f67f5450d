"""One GRPO step on one GPU, the peer's side: TRL's GRPOTrainer with HF generate."""

from __future__ import annotations

import statistics
import sys
import tempfile
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_work import PROMPTS, SAMPLES, Size, even_share, network, peak, prompt_text, reset_peak, seconds


def peer(case: str, size: Size, steps: int) -> dict[str, Any]:
    """TRL's GRPOTrainer with HF generate; rows end where the table says."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LogitsProcessorList, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    words = {f"w{token}": token for token in range(size.words - 2)} | {"<pad>": size.words - 2, "<eos>": size.words - 1}
    inner = Tokenizer(models.WordLevel(words, unk_token="w2"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    model = network(size, torch.bfloat16)
    limit = torch.from_numpy(size.lengths(case)).to(size.device)
    phases: dict[str, list[float]] = {"decode": [], "whole step": []}
    generate = model.generate

    def ended(ids: Tensor, scores: Tensor) -> Tensor:
        is_over = ids.shape[1] - size.prompt >= limit[: len(ids)] - 1
        eos = torch.arange(scores.shape[1], device=scores.device) == size.words - 1
        return scores.masked_fill(eos != is_over.unsqueeze(1), -torch.inf)

    def generated(*given: Any, **options: Any) -> Any:
        before = seconds()
        result = generate(*given, logits_processor=LogitsProcessorList([ended]), **options)
        phases["decode"].append(seconds() - before)
        return result

    model.generate = generated

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.start = seconds()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            phases["whole step"].append(seconds() - self.start)
            print(f"  TRL step: {phases['whole step'][-1]:.2f} s {peak():.1f} GiB", file=sys.stderr, flush=True)

    def reward(completions: list[str], **rest: Any) -> list[float]:
        return [even_share(completion) for completion in completions]

    small, most = (2, 8) if size.toy else (16, PROMPTS * SAMPLES // 16)
    prompts = [" ".join(["w1", prompt_text(size, ordinal)]) for ordinal in range(size.prompts * (steps + 1))]
    reset_peak()
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=small, gradient_accumulation_steps=most,
            num_generations=size.samples, max_completion_length=int(limit.max()), beta=0.0, bf16=size.device == "cuda",
            learning_rate=1e-6, max_steps=steps + 1, report_to=[], save_strategy="no", loss_type="grpo",
            temperature=1.0, disable_tqdm=True, logging_strategy="no", use_cpu=size.device == "cpu",
            gradient_checkpointing=False,
        )  # fmt: skip
        data = Dataset.from_dict({"prompt": prompts})
        GRPOTrainer(
            model=model, reward_funcs=reward, args=settings, train_dataset=data, processing_class=tokenizer,
            callbacks=[Clock()],
        ).train()  # fmt: skip
    return {
        "who": "TRL", "case": case, "seconds": {name: some[1:] for name, some in phases.items()}, "peak_gib": peak(),
        "response_tokens": int(limit.sum()),
        "decode_tokens_per_second": int(limit.sum()) / statistics.median(phases["decode"][1:]),
    }  # fmt: skip
