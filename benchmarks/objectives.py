"""All policy-gradient methods of the library on the same three language testbeds, at equal samples, ranked.

python -m benchmarks.objectives --seeds 10 --jobs 16 --out runs/objectives
python -m benchmarks.objectives --list                 the methods, and why others are left out
assay report runs/objectives                           the page again, from the run folders

A method is every one of the catalogue whose family learns from sampled answers and that plans on all three tasks as it
is. Every run is read up to the same number of answers, those that a method drops and samples again included. The score
of a run is the mean of its exact pass rate over these answers (area), so that no choice of the last step enters; `end`
is its value there. Runs that are finished are read again, so that an interrupted command continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from assay.claims.claim import Curves
from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.engine.machine import describe_machine
from assay.engine.memory import ROWS, parts_below, whole_numbers
from assay.report import comparison as comparison_page
from assay.runs import catalogue, comparison
from assay.runs.arms import Arm, Setup
from assay.statistics.intervals import Estimate, mean_interval

TASKS = ("levels", "many-ways", "stale")
TOKENS, ANSWERS = 2, 25_600
"""Tokens of an answer on all three, and answers of a run: 100 steps of grpo."""
FAMILIES = ("policy gradient", "credit assignment", "preference", "curriculum")
"""Families of methods that learn from their own answers and a verifier alone, no demonstrations."""
METRIC = "pass_rate"
EXCLUDED = {
    "archer": "130 seconds a run, fifty times those of grpo",
    "arenarl": "learns from a judge, not from the verifier",
    "echo-chamber": "trains as grpo does",
    "limit-of-rlvr": "trains as grpo does",
    "dpo-q-function": "acts by beam search, which has no probabilities to evaluate exactly",
    "mpo-meta": "learns from a judge, not from the verifier",
    "open-rs": "answers of these tasks end at their limit, which it counts as wrong",
    "rlpr": "needs a mark between reasoning and answer, which these tasks have not",
    "spct-grm": "trains the judge itself",
    "think-rm": "learns from a judge, not from the verifier",
}
"""Methods that plan on the tasks and do not belong into the table, with the reason."""


@dataclass(frozen=True)
class Row:
    """A method's rank, and means over seeds with 95 % intervals: over all tasks, then of each one."""

    rank: int
    method: str
    area: Estimate
    end: Estimate
    tasks: Mapping[str, Estimate]
    sampled: float
    """Answers of a whole run, on average; those after the common number are not read."""


def answers_a_step(key: str) -> int:
    """Returns the answers that a step of a method samples at least: those of its first step, or of one round of its
    rollout if that samples again; a task does not change it.
    """
    task = catalogue.find_task(TASKS[0])
    recipe = catalogue.recipe_for(key, task, {})
    sizes = (whole_numbers(part, ROWS) for _, part in parts_below(recipe.rollout, "rollout"))
    loop = Loop(recipe, task, seed=0, num_steps=1)
    loop.step()
    return min(math.prod(size for found in sizes for size in found.values()), loop.progress.decisions // TOKENS)


def setup_of(keys: Sequence[str], options: argparse.Namespace) -> Setup:
    """Returns the comparison of these methods, each with the steps that sample the answers."""
    steps = {key: -(-options.answers // answers_a_step(key)) for key in keys}
    arms = tuple(Arm(key, key, {"steps": steps[key]}) for key in keys)
    return Setup(arms, TASKS, options.out, options.seeds, {}, options.minutes, options.jobs)


def found_methods(options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Returns the methods that run on all tasks, and the reason for each of the others."""
    taken, left = list[str](), dict[str, str]()
    for key, method in sorted(catalogue.methods().items()):
        if method.family not in FAMILIES:
            continue
        if key in EXCLUDED:
            left[key] = EXCLUDED[key]
            continue
        try:
            setup_of([key], options).check()
        except AssayError as error:
            left[key] = str(error)
        else:
            taken.append(key)
    return taken, left


def height(curves: Curves, answers: int, places: int = 21) -> tuple[float, float]:
    """Returns the mean of the pass rate over the first `answers` answers, and its value there, by straight lines."""
    known = [(row.get("decisions_total", 0), row[METRIC]) for row in curves if row.get(METRIC) is not None]
    at, values = zip(*known, strict=True)
    found = np.interp(np.linspace(0, TOKENS * answers, places), at, values)
    return float(found.mean()), float(found[-1])


def by_seed(outcome: comparison.Outcome, arm: str, answers: int, place: int) -> dict[str, dict[int, float]]:
    """Returns the area (place 0) or the end (1) of each finished run, by task and seed."""
    found: dict[str, dict[int, float]] = {task: {} for task in TASKS}
    for one in outcome.of(arm):
        found[one.job.task][one.job.seed] = height(one.curves, answers)[place]
    return found


def over_tasks(found: Mapping[str, Mapping[int, float]]) -> Estimate | None:
    """Returns the mean over tasks, with an interval over the seeds that all tasks have; None without two of them."""
    seeds = sorted(set.intersection(*(set(values) for values in found.values())))
    if len(seeds) < 2:
        return None
    return mean_interval(np.array([np.mean([found[task][seed] for task in TASKS]) for seed in seeds]))


def rows_of(outcome: comparison.Outcome, answers: int) -> Iterator[Row]:
    """Returns the methods from the best to the worst mean area; those with fewer than two seeds are left out, and those
    whose runs sampled fewer answers than are read.
    """
    kept = []
    for arm in outcome.setup.arms:
        areas, ends = (by_seed(outcome, arm.name, answers, place) for place in (0, 1))
        area, end = over_tasks(areas), over_tasks(ends)
        enough = all(one.decisions >= TOKENS * answers for one in outcome.of(arm.name))
        if area is not None and end is not None and enough:
            each = {task: mean_interval(np.array(list(areas[task].values()))) for task in TASKS}
            sampled = float(np.mean([one.decisions for one in outcome.of(arm.name)])) / TOKENS
            kept.append(Row(0, arm.name, area, end, each, sampled))
    kept.sort(key=lambda row: -row.area.value)
    return (replace(row, rank=place) for place, row in enumerate(kept, 1))


def words(found: Estimate) -> str:
    """Returns mean and interval with three digits."""
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def cells(row: Row) -> list[str]:
    """Returns the cells of a row."""
    numbers = [row.area, row.end, *(row.tasks[task] for task in TASKS)]
    return [str(row.rank), row.method, *map(words, numbers), f"{row.sampled:,.0f}"]


HEAD = ("rank", "method", "area", "end", *(f"area, {task}" for task in TASKS), "sampled")


def write(folder: Path, rows: Sequence[Row], left: Mapping[str, str], seconds: float) -> list[Path]:
    """Writes the table as Markdown and every number as JSON."""
    facts: dict[str, Any] = {"machine": describe_machine(), "tasks": TASKS, "seconds_of_runs": seconds}
    facts |= {"rows": [asdict(row) for row in rows], "left_out": dict(left)}
    lines = [" | ".join(HEAD), " | ".join("---" for _ in HEAD), *(" | ".join(cells(row)) for row in rows)]
    reasons = [f"- {name}: {reason}" for name, reason in left.items()]
    text = "\n".join([*(f"| {line} |" for line in lines), "", "Left out:", "", *reasons]) + "\n"
    paths = folder / "objectives.md", folder / "objectives.json"
    for path, own in zip(paths, (text, json.dumps(facts, indent=1) + "\n"), strict=True):
        path.write_text(own)
    return list(paths)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the methods and writes the ranking; 1 if a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objectives", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("methods", nargs="*", help="which (default: all that run on the three tasks)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--answers", type=int, default=ANSWERS, help="answers that a run samples")
    parser.add_argument("--jobs", type=int, help="runs side by side (default: one for each core)")
    parser.add_argument("--minutes", type=float, help="no run starts after so many minutes")
    parser.add_argument("--out", type=Path, default=Path("runs/objectives"))
    parser.add_argument("--list", action="store_true", help="say which methods would run, and which not")
    options = parser.parse_args(arguments)
    taken, left = (list(options.methods), dict[str, str]()) if options.methods else found_methods(options)
    console = Console(width=160)
    if options.list:
        console.print("\n".join([*taken, "", *(f"{name}: {reason}" for name, reason in left.items())]), markup=False)
        return 0
    outcome = comparison.run(setup_of(taken, options))
    rows, seconds = list(rows_of(outcome, options.answers)), sum(one.seconds for one in outcome.results)
    table = Table(*HEAD, title=f"{len(rows)} methods, {options.seeds} seeds, {seconds:,.0f} seconds of runs")
    for row in rows:
        table.add_row(*(cell.replace("[", "\\[") for cell in cells(row)))
    console.print(table)
    for path in [*write(options.out, rows, left, seconds), *comparison_page.save(outcome)]:
        console.print(f"{path}", markup=False)
    for failure in outcome.failures:
        console.print(f"failed: {failure.job.arm} on {failure.job.task}: {failure.reason}", markup=False)
    return int(bool(outcome.failures))


if __name__ == "__main__":
    raise SystemExit(main())
