"""GRPO on a pretrained model: does a short run lift the score on held-out problems?

    python -m benchmarks.pretrained_gain MODEL --device cuda --out runs/gain

Two-digit additions in words, answered with a number; 256 held-out problems, scored as sampled; the paired change with
its interval. MODEL is a folder or a hub id of a small instruct model.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from pathlib import Path

import assay
from assay.engine.placement import Placement
from assay.models.pretrained.transformers import pinned
from assay.runs.catalogue import with_pretrained
from assay.tasks.adapters.pretrained import with_model
from assay.tasks.language.textfile import textfile

QUESTION = "What is {} + {}? Answer with the number only."


def problems(path: Path, count: int = 3_000) -> Path:
    """A file of questions with answers, the same on every machine."""
    draw = random.Random(0)
    pairs = sorted({(draw.randint(10, 99), draw.randint(10, 99)) for _ in range(count)})
    draw.shuffle(pairs)
    lines = [json.dumps({"prompt": QUESTION.format(a, b), "answer": str(a + b)}) for a, b in pairs]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def main() -> None:
    """Trains and prints before, after and change."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretrained_gain", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rate", type=float, default=5e-6)
    parser.add_argument("--out", type=Path, default=Path("runs/gain"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    task = with_model(textfile(str(problems(options.out / "problems.jsonl"))), options.model, max_tokens=24)
    recipe = with_pretrained(assay.recipes.grpo(), pinned(options.model))
    recipe = recipe.set("policy.learning_rate", options.rate)
    begin = time.perf_counter()
    placement = Placement(options.device, micro_batch=128)
    run = assay.train(recipe, task, steps=options.steps, warmup=0, out=options.out / "run", placement=placement)
    print(
        json.dumps({"seconds": time.perf_counter() - begin, "steps": options.steps, "change": str(run.change.change)})
    )
    print(f"{run.change.before} -> {run.change.after}, change {run.change.change}")


if __name__ == "__main__":
    main()
