"""Whether every method learns: start, end and the reward that is trained on, at defaults, three seeds.

    python -m benchmarks.learning --workers 16            all methods; runs that are in the file already are kept
    python -m benchmarks.learning ppo grpo --seeds 1      some methods
    python -m benchmarks.learning --table                 docs/learning.md, from the numbers in the file

A run is `assay train METHOD`: its default task, settings and steps. It ends early when its training steps have taken
`--cpu-seconds` of its process, or three times as many of the clock; the table says how many steps it took of how many.
Phases before the method's own steps (a supervised warm-up, pretraining) are not cut; methods with the same warm-up
share it. Every run is a process, which is ended after ten times the limit. Numbers are written as soon as a run ends,
so the command continues where it stopped.

The sentence on why a method is not above its start is kept under "causes" in the file, by the method's name.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.store import write_text
from assay.engine.machine import describe_machine
from assay.runs import catalogue
from assay.runs.folder import read_metrics
from assay.runs.phase_plans import phase_plan, phases_of
from assay.runs.plan import Plan, make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute
from assay.statistics.intervals import Estimate, formatted, mean_interval
from benchmarks.thresholds import end_with

RESULTS = Path(__file__).with_name("learning.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "learning.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"
SEEDS, CPU_SECONDS = 3, 40.0
CLOCK = 3.0
"""Seconds of the clock that a second of the limit allows: processes that only sample use no time of the trainer's."""
ABOVE, BELOW, UNCLEAR, CUT = "above", "below", "not shown", "cut early"


# ---------------------------------------------------------------------------------------------------- one run
def time_limit(seconds: float) -> Callable[[int, Mapping[str, Any], Any], str]:
    """Returns a callback that ends a run `seconds` of CPU, or `CLOCK` times as many of the clock, after its first
    step.
    """
    began: list[tuple[float, float]] = []

    def is_over(step: int, metrics: Mapping[str, Any], policy: Any) -> str:
        if not began:
            began.append((time.process_time(), time.monotonic()))
        spent, passed = time.process_time() - began[0][0], time.monotonic() - began[0][1]
        return f"limit of {seconds:g} CPU-seconds" if spent > seconds or passed > CLOCK * seconds else ""

    return is_over


def trained_rewards(curves: Sequence[Mapping[str, Any]]) -> list[float]:
    """Returns the reward that each step trained on, of an answer or episode: mean of a decision times mean length.

    Steps without experience of their own (offline datasets), or in which no episode ended, have none.
    """
    rows = [row for row in curves if row.get("reward_per_decision") is not None and row.get("length") is not None]
    return [row["reward_per_decision"] * row["length"] for row in rows]


def ends_of(values: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Returns the means of the first and of the last tenth, of at least three values where there are six."""
    if not values:
        return None, None
    count = max(len(values) // 10, min(3, len(values) // 2), 1)
    return float(np.mean(values[:count])), float(np.mean(values[-count:]))


def score_before_phases(folder: Path, names: Sequence[str], task: str) -> float | None:
    """Returns the held-out score before the method's own phases: that of step 0 of the first one on the run's task,
    if no other phase stands before it; None without phases.
    """
    for path in sorted(folder.glob("phase-*")):
        facts = json.loads((path / "config.json").read_text())
        if path.name.split("-", 2)[2] in names and facts["task"] == task:
            score = read_metrics(path)[0].get("evaluation")
            return None if score is None else float(score)
    return None


@contextmanager
def shared_warmup(plan: Plan, folder: Path, cache: Path) -> Iterator[None]:
    """Begins with the finished warm-up of another run of the same fingerprint if the cache holds one, as a resumed
    run would; else keeps this one's at the end.
    """
    if not plan.warmup:
        yield
        return
    phase = phases_of(plan)[0]
    warm = phase_plan(plan, phase, None)
    assert warm is not None
    name, kept = f"phase-1-{phase.name}", cache / warm.config()["fingerprint"].replace(":", "-")
    if kept.is_dir():
        shutil.copytree(kept, folder / name)
    yield
    if not kept.exists():
        copy = Path(tempfile.mkdtemp(dir=cache))
        shutil.copytree(folder / name, copy / name)
        with suppress(OSError):  # another process has just kept the same
            (copy / name).rename(kept)
        shutil.rmtree(copy)


def measured_run(method: str, seed: int, seconds: float, cache: Path, steps: int | None = None) -> dict[str, Any]:
    """Trains one seed of a method at its defaults; returns its scores, rewards, steps and alarms."""
    key, found = catalogue.find_method(method)
    plan = make_plan(key, found.default_task, seed=seed, steps=steps, evaluations=0)
    own = [phase.name for phase in plan.recipe.before]
    began = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        with shared_warmup(plan, folder, cache):
            run = execute(plan, folder, mode=Mode.SILENT, callbacks=[time_limit(seconds)])
        before = score_before_phases(folder, own, plan.config()["task"]) if own else None
    first, last = ends_of(trained_rewards(run.curves))
    change = run.change
    alarms = sorted({alarm.guard for alarm in run.alarms})
    return {
        "task": plan.task.name,
        "steps": run.curves[-1]["step"],
        "planned": plan.steps,
        "start": change.before.value if before is None else before,
        "after_phases": change.before.value,
        "end": change.after.value,
        "low": change.change.low,
        "high": change.change.high,
        "starts": change.change.count,
        "reward_start": first,
        "reward_end": last,
        "alarms": alarms,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


# ---------------------------------------------------------------------------------------------------- all runs
def separate_run(method: str, seed: int, seconds: float, cache: Path, steps: int | None) -> dict[str, Any]:
    """Does what `measured_run` does, in a process of its own with one thread; {"error": ...} if it fails or is still
    there after ten times the limit.
    """
    words = [sys.executable, "-m", "benchmarks.learning", method, "--one", str(seed), "--cpu-seconds", str(seconds)]
    words += ["--cache", str(cache)] + ([] if steps is None else ["--steps", str(steps)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[1],
        start_new_session=True,  # the processes that sample end with it
    )
    try:
        out, error = child.communicate(timeout=10 * seconds + 60)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return {"error": f"not over after {10 * seconds + 60:g} seconds"}
    if child.returncode:
        return {"error": error.strip().splitlines()[-1] if error.strip() else f"exit code {child.returncode}"}
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def read_results(path: Path) -> dict[str, Any]:
    """Returns the numbers of the file; empty tables if it does not exist."""
    empty: dict[str, Any] = {"causes": {}, "runs": {}}
    return {**empty, **json.loads(path.read_text())} if path.is_file() else empty


def warming_first(methods: Sequence[str]) -> list[str]:
    """Returns the methods with the first of each default task in front, whose warm-up the others share."""
    tasks = [catalogue.find_method(method)[1].default_task for method in methods]
    return sorted(methods, key=lambda method: tasks.index(tasks[methods.index(method)]) != methods.index(method))


def measure(
    methods: Sequence[str],
    path: Path,
    *,
    seeds: int = SEEDS,
    seconds: float = CPU_SECONDS,
    workers: int = 2,
    minutes: float | None = None,
    steps: int | None = None,
) -> int:
    """Runs every (method, seed) that the file lacks, or has an error of; returns how many failed or are missing."""
    known = read_results(path)
    known |= {"machine": describe_machine(), "cpu_seconds": seconds}
    todo = [
        (method, seed)
        for seed in range(seeds)
        for method in warming_first(methods)
        if "end" not in known["runs"].get(method, {}).get(str(seed), {})
    ]
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    missing = 0

    def one(method: str, seed: int) -> dict[str, Any] | None:
        late = deadline is not None and time.monotonic() > deadline
        return None if late else separate_run(method, seed, seconds, Path(cache), steps)

    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(workers) as pool:
        jobs = {pool.submit(one, *job): job for job in todo}
        for done, future in enumerate(as_completed(jobs), 1):
            (method, seed), found = jobs[future], future.result()
            missing += found is None or "error" in found
            if found is not None:
                known["runs"].setdefault(method, {})[str(seed)] = found
                write_text(path, json.dumps(known, indent=1, sort_keys=True) + "\n")
                said = found.get("error") or f"{found['start']:.4g} -> {found['end']:.4g}, {found['cpu_seconds']} s"
                print(f"{done} of {len(todo)}: {method}, seed {seed}: {said}", flush=True)
    return missing


# ---------------------------------------------------------------------------------------------------- the table
def verdict_of(runs: Sequence[Mapping[str, Any]], change: Estimate) -> str:
    """Returns whether a method ends above its start: the interval over seeds excludes 0, or at least two seeds are
    above by their own held-out starts (95 %, paired) and none is below.

    Seeds that start before phases of the method have no paired starts; for these the interval over seeds decides. Of
    one seed its own held-out starts decide. Runs that took less than half of their steps are not judged.
    """
    if any(2 * run["steps"] < run["planned"] for run in runs):
        return CUT
    paired = [run for run in runs if run["start"] == run["after_phases"]]
    above, below = sum(run["low"] > 0 for run in paired), sum(run["high"] < 0 for run in paired)
    if change.low > 0 or (above >= 2 and not below):
        return ABOVE
    return BELOW if change.high < 0 or (below >= 2 and not above) else UNCLEAR


def table_row(method: str, runs: Sequence[Mapping[str, Any]], cause: str) -> tuple[str, str]:
    """Returns the verdict on a method and its line of the table."""
    change = mean_interval([run["end"] - run["start"] for run in runs], binary=False)
    if len(runs) == 1 and runs[0]["start"] == runs[0]["after_phases"]:
        change = Estimate(change.value, runs[0]["low"], runs[0]["high"], runs[0]["starts"])
    start, end = (mean_interval([run[name] for run in runs], binary=False) for name in ("start", "end"))
    rewards = [(run["reward_start"], run["reward_end"]) for run in runs if run["reward_start"] is not None]
    first, last = (float(np.mean(column)) for column in zip(*rewards, strict=True)) if rewards else (None, None)
    trained = "offline data" if first is None else f"{first:.3g} → {last:.3g}"
    took, planned = min(run["steps"] for run in runs), runs[0]["planned"]
    steps = f"{took}" if took == planned else f"{took} of {planned}"
    alarms = ", ".join(sorted({alarm for run in runs for alarm in run["alarms"]}))
    verdict = verdict_of(runs, change)
    scores = f"{formatted(start)} | {formatted(end)} | {formatted(change, signed=True)}"
    cells = (f"`{method}`", runs[0]["task"], steps, scores, trained, verdict, alarms, cause)
    return verdict, f"| {' | '.join(cells)} |"


def table(results: Mapping[str, Any]) -> list[str]:
    """Returns the lines of the page: how many methods end above their start, the table, and runs that failed."""
    lines, failed, counts = [], [], dict.fromkeys((ABOVE, UNCLEAR, BELOW, CUT), 0)
    for method, runs in sorted(results["runs"].items()):
        good = [run for _, run in sorted(runs.items()) if "end" in run]
        failed += [f"- `{method}`, seed {seed}: {run['error']}" for seed, run in sorted(runs.items()) if "error" in run]
        if good:
            verdict, line = table_row(method, good, results["causes"].get(method, ""))
            counts[verdict] += 1
            lines.append(line)
    said = f"{counts[ABOVE]} of {len(lines)} methods end above their start, {counts[UNCLEAR]} are not shown to, "
    said += f"{counts[BELOW]} end below, {counts[CUT]} were cut before half of their steps and are not judged. Limit: "
    said += f"{results['cpu_seconds']:g} CPU-seconds of training steps a run; seeds of a method: up to "
    said += f"{max((len(runs) for runs in results['runs'].values()), default=0)}."
    columns = ["method", "task", "steps", "start", "end", "change", "reward trained on", "verdict", "alarms", "cause"]
    return [said, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *lines, "", *failed]


def write_table(results: Mapping[str, Any], page: Path) -> None:
    """Replaces the table of the page by that of the numbers."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n" + "\n".join(table(results)) + f"\n{END}{rest.partition(END)[2]}")


def main(words: Sequence[str] | None = None) -> int:
    """Runs what is missing, or writes the table; 1 if a run failed or is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("methods", nargs="*", help="methods (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cpu-seconds", type=float, default=CPU_SECONDS, help="limit of a run's training steps")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--minutes", type=float, help="start no run after this time")
    parser.add_argument("--steps", type=int, help="steps instead of the default ones, to see that it works")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the numbers")
    parser.add_argument("--table", action="store_true", help="only write the page")
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write the table into")
    parser.add_argument("--cache", type=Path, help="folder of warm-ups that --one shares with other runs")
    parser.add_argument("--one", type=int, metavar="SEED", help="run one seed of one method and print its numbers")
    options = parser.parse_args(words)
    if options.one is not None:
        end_with(os.getppid())
        with tempfile.TemporaryDirectory() as alone:
            cache = options.cache or Path(alone)
            found = measured_run(options.methods[0], options.one, options.cpu_seconds, cache, options.steps)
        print(json.dumps(found))
        return 0
    if options.table:
        write_table(read_results(options.out), options.page)
        return 0
    methods = [catalogue.find_method(name)[0] for name in options.methods] or sorted(catalogue.methods())
    missing = measure(
        methods,
        options.out,
        seeds=options.seeds,
        seconds=options.cpu_seconds,
        workers=options.workers,
        minutes=options.minutes,
        steps=options.steps,
    )
    print(f"{missing} runs failed or are missing; numbers: {options.out}")
    return min(1, missing)


if __name__ == "__main__":
    raise SystemExit(main())
