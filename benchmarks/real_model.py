"""Objectives of the library on one pretrained model: equal samples, several seeds, two tasks.

    python -m benchmarks.real_model MODEL --device cuda --jobs 6 --out runs/real-model

Every method gets the same prompts, samples, steps and learning rate; none is tuned. `sft` sees the answers instead of
sampling. Runs are started in the order seed, task, method, so that a budget that ends early leaves whole seeds.

A task ranks methods if the model is right about some answers when a method begins, so that there is something to
reinforce, and wrong about many at the end of grpo. For SmolLM2-135M-Instruct addition and sequence are such tasks.

A score is counted twice, before and after: `strict` as training rewards it (the answer alone), `content` if the last
numbers or words of the text are the answer. What `strict` gains beyond `content` is form.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("grpo", "rloo", "dr_grpo", "dapo", "gspo", "cispo", "nft", "rec", "sft")
NUMBERS = ("start", "start_content", "strict", "content", "seconds")
"""What the table has of each run."""
PIECES = re.compile(r"\d+(?::\d+)?|[a-z]+")
WORDS = (
    "apple",
    "bridge",
    "candle",
    "door",
    "eagle",
    "forest",
    "garden",
    "hammer",
    "island",
    "jacket",
    "kettle",
    "lemon",
)


# ---------------------------------------------------------------------------------------------------- tasks
def addition(draw: random.Random) -> tuple[str, str]:
    """Returns a sum of two two-digit numbers."""
    a, b = draw.randint(10, 99), draw.randint(10, 99)
    return f"What is {a} + {b}? Answer with the number only.", str(a + b)


def subtraction(draw: random.Random) -> tuple[str, str]:
    """Returns a difference of two two-digit numbers that is not negative."""
    b, a = sorted((draw.randint(10, 99), draw.randint(10, 99)))
    return f"What is {a} - {b}? Answer with the number only.", str(a - b)


def sorting(draw: random.Random) -> tuple[str, str]:
    """Returns four two-digit numbers to be put in order."""
    numbers = draw.sample(range(10, 100), 4)
    given, answer = (", ".join(map(str, order)) for order in (numbers, sorted(numbers)))
    return f"Sort these numbers from smallest to largest: {given}. Answer with the numbers only.", answer


def sequence(draw: random.Random) -> tuple[str, str]:
    """Returns four terms of an arithmetic progression; the fifth is wanted."""
    first, step = draw.randint(1, 99), draw.randint(2, 40)
    given = ", ".join(str(first + step * k) for k in range(4))
    return f"Which number comes next: {given}? Answer with the number only.", str(first + 4 * step)


def three_terms(draw: random.Random) -> tuple[str, str]:
    """Returns a sum of three two-digit numbers."""
    a, b, c = (draw.randint(10, 99) for _ in range(3))
    return f"What is {a} + {b} + {c}? Answer with the number only.", str(a + b + c)


def reversal(draw: random.Random) -> tuple[str, str]:
    """Returns four words to be written in the opposite order."""
    words = draw.sample(WORDS, 4)
    return f"Write these words in reverse order: {', '.join(words)}. Answer with the words only.", ", ".join(
        words[::-1]
    )


def later(draw: random.Random) -> tuple[str, str]:
    """Returns a time of day and a number of minutes; the time after them is wanted."""
    hour, minute, more = draw.randint(1, 10), draw.randrange(60), draw.randint(5, 95)
    end = 60 * hour + minute + more
    question = f"What time is it {more} minutes after {hour}:{minute:02d}? Answer with the time only."
    return question, f"{end // 60}:{end % 60:02d}"


QUESTIONS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "addition": addition,
    "sorting": sorting,
    "sequence": sequence,
    "three-terms": three_terms,
    "reversal": reversal,
    "later": later,
    "subtraction": subtraction,
}
"""How a question and its answer are drawn, by task."""


def problems(task: str, path: Path, count: int = 3_000) -> Path:
    """Writes questions with answers, the same on every machine."""
    draw = random.Random(0)
    rows: dict[str, str] = {}
    while len(rows) < count:
        question, answer = QUESTIONS[task](draw)
        rows[question] = answer
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": key, "answer": value}) + "\n" for key, value in rows.items()))
    return path


def states(text: str, answer: str) -> bool:
    """Returns whether the last numbers (or words, if the answer has some) of a text are those of the answer."""
    wanted, found = PIECES.findall(answer.lower()), PIECES.findall(text.lower())
    if not any(piece.isalpha() for piece in wanted):
        found = [piece for piece in found if not piece.isalpha()]
    return found[-len(wanted) :] == wanted


# ---------------------------------------------------------------------------------------------------- one run
def train_one(options: argparse.Namespace) -> None:
    """Trains one method on one task with one seed and writes result.json into its folder."""
    import torch

    from assay.engine.loop import Loop
    from assay.engine.placement import Placement
    from assay.models.pretrained.transformers import pinned
    from assay.recipes.presets import LANGUAGE
    from assay.runs.catalogue import find_method, with_pretrained
    from assay.runs.plan import make_plan
    from assay.runs.run import execute
    from assay.tasks.adapters.pretrained import with_model
    from assay.tasks.language.textfile import textfile

    warnings.simplefilter("ignore")
    method, name, seed = options.one.split(":")
    folder = options.out / f"{method}-{name}-{seed}"
    task: Any = with_model(textfile(str(problems(name, folder / f"{name}.jsonl"))), options.model, max_tokens=24)
    recipe = with_pretrained(find_method(method)[1].recipe(LANGUAGE), pinned(options.model))
    recipe = recipe.set("learning_rate", options.rate)
    placement = Placement(options.device, precision=torch.bfloat16 if options.device != "cpu" else None)
    plan = make_plan(
        recipe, task, steps=options.steps, seed=int(seed), warmup=options.warmup, evaluations=6, placement=placement
    )
    untrained = Loop(recipe, task, seed=int(seed), num_steps=1, placement=placement)
    start_content = content(untrained.policy, task)
    del untrained
    begin = time.perf_counter()
    run = execute(replace(plan, save_every=options.steps), folder / "run")
    seconds = time.perf_counter() - begin
    facts = {"method": method, "task": name, "seed": int(seed), "seconds": seconds, "steps": options.steps}
    facts["warmup"] = options.warmup
    facts |= {"start": float(run.before.value), "start_content": start_content}
    facts |= {"strict": float(run.after.value), "content": content(run.policy, task)}
    facts["curve"] = list(zip(*run.curve("evaluation"), strict=True))
    sampled = dict(zip(*run.curve("decisions_total"), strict=True))
    facts["sampled"] = [(step, sampled.get(step, 0)) for step, _ in facts["curve"]]
    clocks = [row.get("time", {}) for row in run.curves]
    facts["time"] = {key: sum(one.get(key, 0.0) for one in clocks) for key in ("sample", "update", "evaluate", "save")}
    (folder / "result.json").write_text(json.dumps(facts))
    shutil.rmtree(folder / "run")  # a checkpoint is gigabytes


def content(policy: Any, task: Any, num: int = 256) -> float:
    """Returns the share of held-out samples that state the answer, in whatever form."""
    from assay.core.record import Draw

    starts = np.arange(num, dtype=np.int64)
    played = task.play(policy, starts, np.zeros_like(starts), Draw(0, (7,)), split=1, greedy=False)
    right = 0
    for row, item in enumerate(task.items_of(starts, 1)):
        tokens = played.action[row][played.mask[row]].tolist()
        right += states(task.tokenizer.decode(tokens), item.answer)
    return right / num


# ---------------------------------------------------------------------------------------------------- many runs
def wanted(options: argparse.Namespace) -> Iterator[str]:
    """Yields METHOD:TASK:SEED in the order in which runs start, without those that have a result."""
    for seed in options.seeds:
        for task in options.tasks:
            for method in options.methods:
                if not (options.out / f"{method}-{task}-{seed}" / "result.json").is_file():
                    yield f"{method}:{task}:{seed}"


def train_all(options: argparse.Namespace) -> None:
    """Runs up to `jobs` processes at once until all are done or the budget has ended."""
    deadline = time.monotonic() + 60 * options.budget
    running: dict[str, subprocess.Popen[bytes]] = {}
    todo = list(wanted(options))
    while (todo and time.monotonic() < deadline) or running:
        while todo and len(running) < options.jobs and time.monotonic() < deadline:
            one = todo.pop(0)
            log = options.out / f"{one.replace(':', '-')}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "benchmarks.real_model", options.model, "--one", one]
            for name in ("device", "steps", "rate", "warmup", "out"):
                command += [f"--{name}", str(getattr(options, name))]
            with log.open("wb") as file:
                running[one] = subprocess.Popen(command, stdout=file, stderr=file)
        time.sleep(0.5)
        running = {one: child for one, child in running.items() if child.poll() is None}


def table(out: Path) -> list[dict[str, Any]]:
    """Returns one row per task and method: means over seeds with their 95 % intervals."""
    from assay.statistics.intervals import mean_interval

    found = [json.loads(path.read_text()) for path in sorted(out.glob("*/result.json"))]
    rows = []
    for task in QUESTIONS:
        for method in dict.fromkeys([*METHODS, *(one["method"] for one in found)]):
            mine = [one for one in found if (one["task"], one["method"]) == (task, method)]
            if mine:
                numbers = {key: [one[key] for one in mine] for key in NUMBERS}
                told = {key: vars(mean_interval(each, binary=False)) for key, each in numbers.items() if len(each) > 1}
                rows.append({"task": task, "method": method, "seeds": len(mine), "values": numbers} | told)
    return rows


def main() -> None:
    """Trains what is missing, then prints the table as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_model", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rate", type=float, default=1e-5)
    parser.add_argument("--warmup", type=int, default=0, help="supervised steps before the method's own")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--tasks", nargs="+", choices=list(QUESTIONS), default=["addition", "sequence"])
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--budget", type=float, default=600.0, help="start no run after this many minutes")
    parser.add_argument("--out", type=Path, default=Path("runs/real-model"))
    parser.add_argument("--one", help="METHOD:TASK:SEED, for internal use")
    options = parser.parse_args()
    if options.one:
        train_one(options)
        return
    train_all(options)
    print(json.dumps(table(options.out), indent=1))


if __name__ == "__main__":
    main()
