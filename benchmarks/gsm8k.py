"""GSM8K: one method on a pretrained model, scored on all held-out problems before and after, as one row of JSON.

    python -m benchmarks.gsm8k grpo --model FOLDER --data FOLDER --seed 0 --steps 80 --out grpo-0.json
    python -m benchmarks.gsm8k grpo --model FOLDER --data FOLDER --out grpo-0.json --minutes 9   # ends in time, with 75
    python -m benchmarks.gsm8k grpo --model FOLDER --data FOLDER --out grpo-0.json --resume      # goes on

`--data` has train.jsonl and test.jsonl (question, answer). The reward is 1 if the last number of an answer is the right
one (`gsm8k_reward.py`), in training and in every score. A score is greedy decoding, and pass@1 and pass@k of k samples,
on every test problem with the same random numbers for all methods and seeds. Device, precision and compiled layers
are the library's defaults. The score before training is that of the model: it is kept beside `--runs` and used again.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.store import write_json
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.machine import describe_machine, tuned
from assay.runs import hardware
from assay.runs.options import CadenceOptions, LanguageOptions, OwnOptions, RunOptions
from assay.runs.plan import Plan, make_plan
from assay.runs.result import Run
from assay.runs.run import execute
from assay.runs.signals import Stopped
from assay.statistics.intervals import Estimate, mean_interval, measured_change
from assay.statistics.passk import pass_at_k_intervals
from assay.version import __version__
from benchmarks import gsm8k_reward
from benchmarks.gpu_work import peak, reset_peak

REWARD = f"{gsm8k_reward.__file__}:{gsm8k_reward.last_number.__name__}"
UNFINISHED = 75
"""Exit code of a run that was stopped in time and goes on with --resume."""
RESERVE = 60.0
"""Seconds before the end of --minutes in which no step begins: a checkpoint of billions of bytes is written."""


def plan_of(options: argparse.Namespace) -> Plan:
    """Returns the plan of a run: the library's defaults but for sizes, limits and the reward."""
    sizes = LanguageOptions(max_tokens=options.max_tokens, prompts=options.prompts, group_size=options.group_size)
    sizes = replace(sizes, dtype=options.dtype)
    cadence = CadenceOptions(evaluations=options.evaluations, eval_prompts=options.eval_prompts, keep=1)
    cadence = replace(cadence, save_every=f"{options.steps + 1}steps")  # a run that is stopped is saved by itself
    asked = RunOptions(own=OwnOptions(reward=(REWARD,)), language=sizes, cadence=cadence)
    settings = dict(word.split("=", 1) for word in options.set)
    where, asked = hardware.chosen(options.model, asked, settings, device=options.device, compiled=options.compiled)
    task = f"{options.data / 'train.jsonl'},{options.data / 'test.jsonl'}"
    given = {"steps": options.steps, "seed": options.seed, "settings": settings, "warmup": 0, "placement": where}
    return make_plan(options.method, task, model=options.model, options=asked, **given)


# ---------------------------------------------------------------------------------------------------- scores
def estimate(found: Estimate) -> dict[str, float]:
    """Returns an estimate as JSON."""
    return {"value": found.value, "low": found.low, "high": found.high}


def count_problems(folder: Path) -> int:
    """Returns the number of test problems."""
    return sum(bool(line.strip()) for line in (folder / "test.jsonl").read_text(encoding="utf-8").splitlines())


def scored(policy: Any, task: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the greedy score, pass@1 and pass@k, with 95 % intervals over problems, and the verdict on every one."""
    begin, num = time.perf_counter(), options.problems or count_problems(options.data)
    greedy = evaluation.evaluate(policy, task, num=num, greedy=True)
    middle = time.perf_counter()
    sampled = evaluation.evaluate(policy, task, num=num, samples=options.samples, greedy=False)
    right = sampled.values.reshape(-1, options.samples).sum(1).astype(int)
    ks = sorted({1, options.samples})
    passed = zip(ks, pass_at_k_intervals(options.samples, right, ks), strict=True)
    found = {f"pass@{k}": estimate(one) for k, one in passed}
    assert greedy.played is not None
    assert sampled.played is not None
    return {
        "greedy": estimate(mean_interval(greedy.values, binary=True)), **found, "problems": len(greedy.values),
        "samples": options.samples, "tokens": {name: float(one.mask.sum()) / len(one) for name, one in
                                               (("greedy", greedy.played), ("sampled", sampled.played))},
        "cut": float(sampled.played.truncated.any(1).float().mean()),
        "seconds": {"greedy": middle - begin, "sampled": time.perf_counter() - middle},
        "right": {"greedy": "".join(str(int(value)) for value in greedy.values), "sampled": right.tolist()},
    }  # fmt: skip


def before(plan: Plan, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the scores of the model as it is, from a file if they are known."""
    what = [str(Path(options.model).resolve()), str(options.data.resolve()), plan.recipe.actor.dtype]
    what += [str(getattr(options, name)) for name in ("max_tokens", "samples", "problems", "device")]
    path = options.runs / f"before-{hashlib.sha256('|'.join(what).encode()).hexdigest()[:12]}.json"
    if path.is_file():
        known: dict[str, Any] = json.loads(path.read_text())
        return known
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=1, placement=plan.placement)
    with computing(loop.engine):
        found = scored(loop.policy, plan.task, options)
    write_json(path, found)
    del loop
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found


def computing(engine: Any) -> Any:
    """Returns the context in which a model of this size computes."""
    return tuned(sum(flat.num_parameters for flat in engine.flats.values()), bfloat16=engine.bfloat16)


# ---------------------------------------------------------------------------------------------------- training
def stopping(until: float) -> Callable[[int, Mapping[str, Any], Any], None]:
    """Returns a callback that stops a run at a time, as if it had been told to: it is saved."""

    def look(step: int, metrics: Mapping[str, Any], policy: Any) -> None:
        if time.monotonic() >= until:
            signal.raise_signal(signal.SIGTERM)

    return look


def trained(plan: Plan, folder: Path, until: float) -> Run | None:
    """Trains on in the folder; returns the run, None if the time has passed before its last step."""
    try:
        return execute(plan, folder, callbacks=[stopping(until)])
    except Stopped as stopped:
        print(stopped)
        return None


def facts(plan: Plan, options: argparse.Namespace) -> dict[str, Any]:
    """Returns what identifies a row."""
    config = plan.config()
    kept = ("device", "options", "settings", "compiled", "steps", "seed", "fingerprint")
    machine = describe_machine()
    return {
        "benchmark": "gsm8k", "method": options.method, "model": Path(options.model).name, "assay": __version__,
        "settings": {name: config[name] for name in kept if name in config}, "recipe": config["recipe"],
        "machine": {name: machine[name] for name in ("gpu", "torch", "python")},
    }  # fmt: skip


def results(run: Run) -> dict[str, Any]:
    """Returns what training cost, and its curves."""
    decisions = run.curve("decisions_total")[1]
    return {
        "generated_tokens": int(decisions[-1]) if decisions else 0, "seconds_by_phase": dict(run.seconds),
        "curve": list(zip(*run.curve("evaluation"), strict=True)), "ended": run.ended,
        "reward": list(zip(*run.curve("reward"), strict=True)), "alarms": sorted({one.guard for one in run.alarms}),
    }  # fmt: skip


def work(options: argparse.Namespace) -> dict[str, Any]:
    """Scores, trains and scores again; returns the row, which has the status "done" if nothing is left to do."""
    begin = time.monotonic()
    until = begin + 60.0 * options.minutes - (RESERVE if options.minutes > 2 * RESERVE / 60.0 else 0.0)
    plan = plan_of(options)
    folder = options.runs / f"{options.method.replace(':', '-')}-{options.seed}"
    if not options.resume and folder.exists():
        shutil.rmtree(folder)
    row = facts(plan, options) | {"status": "started", "pieces": pieces_of(options.out) if options.resume else []}
    row["before"] = before(plan, options)
    reset_peak()
    started = time.monotonic()
    run = trained(plan, folder, until)
    piece = {"seconds": time.monotonic() - started, "peak_gib": peak()}
    row["pieces"].append(piece | {"start_seconds": started - begin})
    row["train_seconds"] = sum(one["seconds"] for one in row["pieces"])
    row["peak_gib"] = max(one["peak_gib"] for one in row["pieces"])
    if run is None:
        return row | {"status": "stopped"}
    row |= results(run)
    needed = 1.5 * sum(row["before"]["seconds"].values())
    if time.monotonic() + needed > begin + 60.0 * options.minutes:
        return row | {"status": "trained"}
    with tuned(sum(one.numel() for one in run.policy.parameters()), bfloat16=plan.recipe.actor.dtype == "bfloat16"):
        row["after"] = scored(run.policy, plan.task, options)
    if options.remove:
        shutil.rmtree(folder)  # a checkpoint is gigabytes
    return row | {"status": "done", "change": changes(row["before"], row["after"])}


def pieces_of(path: Path) -> list[dict[str, float]]:
    """Returns the pieces of training that a row has recorded so far."""
    found: list[dict[str, float]] = json.loads(path.read_text())["pieces"] if path.is_file() else []
    return found


def changes(first: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the paired changes of the greedy score and of pass@1, with their intervals."""
    greedy = [np.array([float(one) for one in some["right"]["greedy"]]) for some in (first, last)]
    sampled = [np.array(some["right"]["sampled"]) / some["samples"] for some in (first, last)]
    pairs = {"greedy": greedy, "pass@1": sampled}
    return {name: estimate(measured_change(name, *both, paired=True).change) for name, both in pairs.items()}


def told(row: Mapping[str, Any]) -> str:
    """Returns a row in one line."""
    if row["status"] != "done":
        return f"{row['method']}: {row['status']} after {row['train_seconds']:.0f} s; go on with --resume"
    names = [name for name in row["after"] if name == "greedy" or name.startswith("pass@")]
    values = [f"{name} {row['before'][name]['value']:.3f} -> {row['after'][name]['value']:.3f}" for name in names]
    tokens = f"{row['generated_tokens']:,} tokens, {row['train_seconds']:.0f} s, {row['peak_gib']:.1f} GiB"
    return f"{row['method']}, seed {row['settings']['seed']}: {', '.join(values)}; {tokens}"


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gsm8k", description=__doc__.split("\n")[0])
    parser.add_argument("method")
    parser.add_argument("--model", required=True, help="folder of a pretrained model")
    parser.add_argument("--data", type=Path, required=True, help="folder with train.jsonl and test.jsonl")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--max-tokens", type=int, default=320)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8, help="samples of a problem for pass@k, k included")
    parser.add_argument("--problems", type=int, help="held-out problems of a score (default: all)")
    parser.add_argument("--evaluations", type=int, default=4, help="during training, sampled")
    parser.add_argument("--eval-prompts", type=int, default=256, help="problems of these")
    parser.add_argument("--device", help="as in assay train")
    parser.add_argument("--dtype", help="as in assay train")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction)
    parser.add_argument("--set", action="append", default=[], metavar="PART.FIELD=VALUE")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end in time, so that --resume goes on")
    parser.add_argument("--runs", type=Path, default=Path("runs/gsm8k"), help="folder of run folders")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--resume", action="store_true", help="go on with the run of this method and seed")
    parser.add_argument("--remove", action="store_true", help="remove the run folder at the end")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Writes the row, also of a run that is not finished; returns 0, or `UNFINISHED`."""
    options = arguments(words)
    options.runs.mkdir(parents=True, exist_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    row = work(options)
    write_json(options.out, row)
    print(told(row))
    return 0 if row["status"] == "done" else UNFINISHED


if __name__ == "__main__":
    raise SystemExit(main())
