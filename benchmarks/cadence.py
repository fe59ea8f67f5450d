"""The shares of saving, evaluating, sampling and updating in a run with default settings: grpo on a model of
Qwen3-0.6B's shape with random weights.

    python -m benchmarks.cadence --device cuda --steps 20 --out /tmp/cadence-run
    python -m benchmarks.cadence --toy

The model and a file of questions are written into the folder first. Saving is the time for which training waits:
copying the state, and the end of the last write. Needs the extra `language`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_work import SHAPE, SMALL

TOY = {"rollout.num_starts": 2, "rollout.group_size": 2}


def model_folder(folder: Path, toy: bool) -> Path:
    """Writes a network with random weights and a byte-level tokenizer."""
    import tokenizers
    import transformers

    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["What is 12 + 34? Answer with the number only."], trainer)
    tokens = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")
    tokens.save_pretrained(folder)
    torch.manual_seed(0)
    shape = SHAPE | (SMALL if toy else {}) | {"eos_token_id": tokens.eos_token_id}
    shape["vocab_size"] = max(shape["vocab_size"], len(tokens))
    transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**shape)).to(torch.bfloat16).save_pretrained(folder)
    return folder


def questions(path: Path, count: int) -> Path:
    """Writes questions with answers, the same on every machine."""
    draw, rows = random.Random(0), dict[str, str]()
    while len(rows) < count:
        a, b = draw.randint(100, 999), draw.randint(100, 999)
        rows[f"What is {a} + {b}? Answer with the number only."] = str(a + b)
    path.write_text("".join(json.dumps({"prompt": one, "answer": other}) + "\n" for one, other in rows.items()))
    return path


def measure(folder: Path, device: str, steps: int, toy: bool) -> dict[str, Any]:
    """Trains once; returns seconds by phase, their shares of the whole, and the number of evaluations."""
    from assay.core import store
    from assay.engine.placement import Placement
    from assay.runs.options import CadenceOptions, RunOptions
    from assay.runs.plan import make_plan
    from assay.runs.run import execute

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = model_folder(folder / "model", toy)
    task = "addition-1" if toy else str(questions(folder / "questions.jsonl", 2000))
    options = RunOptions(cadence=CadenceOptions(eval_prompts=4 if toy else None))
    settings: dict[str, Any] = {"dtype": "bfloat16"} | (TOY if toy else {})
    told: dict[str, Any] = {"model": str(model), "placement": Placement(device), "options": options}
    plan = make_plan("grpo", task, steps=steps, settings=settings, **told)
    begin = time.perf_counter()
    run = execute(plan, folder / "run")
    whole = time.perf_counter() - begin
    newest = store.saved_steps(folder / "run" / "checkpoints")[-1]
    files = (folder / "run" / "checkpoints").glob(f"step-{newest:08d}/*")
    saved = [row["time"]["saved"] for row in run.curves if "saved" in row.get("time", {})]
    return {
        "steps": steps,
        "seconds": round(whole, 1),
        "shares": {phase: round(spent / whole, 4) for phase, spent in run.seconds.items()},
        "other": round(1 - sum(run.seconds.values()) / whole, 4),
        "evaluations": sum("evaluation" in row for row in run.curves),
        "checkpoints": len({*saved, newest}),
        "checkpoint_bytes": sum(path.stat().st_size for path in files),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Prints the shares as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cadence", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--toy", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--out", type=Path, help="folder, emptied first (default: a temporary one)")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        found = measure(options.out or Path(scratch) / "cadence", options.device, options.steps, options.toy)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
