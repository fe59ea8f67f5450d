"""Measures the dials of the language testbeds with a rival alone: a quantity against a setting, over seeds.

    python tools/dials.py --jobs 2                     measures all, writes docs/testbeds/language.json
    python tools/dials.py --only lock,stale            measures some again, keeps the others
    python tools/dials.py --table                      prints the file as the table of docs/testbeds.md

A quantity is `area:NAME` (mean over the run of an exact metric, evaluated 20 times), `end:NAME`, `start:NAME`,
`mean:NAME` (of a metric that every step logs), `idle` (share of decode slots that wait for the longest answer) or
`credit` (correlation of the first step's advantages with the true ones).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.claims.testbeds.language.places import true_advantage
from assay.engine.loop import Loop
from assay.runs import catalogue
from assay.runs.plan import make_plan
from assay.statistics.intervals import mean_interval

FILE = Path(__file__).resolve().parents[1] / "docs" / "testbeds" / "language.json"
EVALUATIONS = 20


@dataclass(frozen=True)
class Dial:
    """One curve: a rival on a task, a setting with its values (of the task, or of the recipe if it has a dot), and the
    quantities that must move.
    """

    name: str
    task: str
    setting: str
    values: tuple[float, ...]
    quantities: tuple[str, ...]
    method: str = "grpo"
    steps: int = 100
    warmup: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def at(self, value: float) -> tuple[str, dict[str, Any]]:
        """Returns the address of the task and the settings of the recipe at a value of the dial."""
        if "." in self.setting:
            return self.task, {**self.settings, self.setting: value}
        mark = "," if ":" in self.task else ":"
        return f"{self.task}{mark}{self.setting}={value:g}", dict(self.settings)


DIALS = (
    Dial("stale", "stale", "rollout.delay", (0, 10, 40), ("area:pass_rate",), steps=100),
    Dial("stale, rank 4", "stale", "rollout.delay", (0, 10, 40), ("area:pass_rate",), steps=100,
         settings={"actor.rank": 4}),
    Dial("many-ways", "many-ways", "actor.rank", (0, 64, 16, 4), ("start:pass@64", "end:pass@64", "end:pass_rate",
         "end:distinct@8", "end:right_entropy"), steps=150),
    Dial("many-ways, skew", "many-ways:rare=0", "skew", (1, 4), ("start:right_entropy", "end:right_entropy",
         "end:distinct@8"), steps=100),
    Dial("key-decisions", "key-decisions", "length", (2, 8, 32), ("credit", "area:pass_rate"), steps=40),
    Dial("levels", "levels", "easy", (0, 0.5, 0.9), ("end:pass_rate/3-rare", "end:pass_rate/2-hard",
         "mean:zero_advantage_groups"), steps=100),
    Dial("lock", "lock", "digits", (1, 2, 3, 4, 5), ("start:pass_rate", "area:pass_rate", "end:pass_rate"), steps=100),
    Dial("judge", "judge", "compression", (1, 0.3, 0.1, 0.03), ("end:true_score",), steps=60),
    Dial("judge, ties", "judge", "tie", (0, 1), ("end:true_score", "mean:zero_advantage_groups"), steps=60),
    Dial("hackable", "hackable", "hack", (0, 0.9, 1.1, 2), ("end:true_score", "end:nines"), steps=60),
    Dial("redo", "redo", "planted", (0.25, 0.5, 0.75), ("end:pass_rate/clean", "end:pass_rate/planted"), steps=100),
    Dial("formats", "formats", "cost", (0, 0.1, 0.3), ("start:cheapest_share", "end:cheapest_share", "end:own_share",
         "end:pass_rate"), steps=100),
    Dial("formats, accuracy", "formats:shares=55", "right", (55, 64, 82), ("start:share/0", "end:share/0",
         "end:own_share"), steps=100),
    Dial("register-walk", "register-walk", "tail", (100, 1), ("idle", "end:pass_rate"), steps=30, warmup=500),
)  # fmt: skip


def measured(dial: Dial, value: float, seed: int) -> dict[str, float]:
    """Returns the dial's quantities of one run, and its cpu seconds."""
    torch.set_num_threads(1)
    begin = time.process_time()
    address, settings = dial.at(value)
    plan = make_plan(dial.method, address, seed=seed, settings=settings, steps=dial.steps)
    task: Any = plan.task
    loop = Loop(plan.recipe, task, seed=seed, num_steps=dial.steps)
    if dial.warmup:
        warm = Loop(catalogue.recipe_for("sft", task, {}), task, seed=seed, num_steps=dial.warmup)
        for _ in range(dial.warmup):
            warm.step()
        loop.actor.load_state_dict(warm.actor.state_dict())
    points, logged = [task.exact(loop.policy)], list[dict[str, float]]()
    found = {"credit": correlation(loop, task)} if "credit" in dial.quantities else {}
    every = max(1, dial.steps // EVALUATIONS)
    while loop.progress.step < dial.steps:
        logged.append(loop.step().metrics)
        if loop.progress.step % every == 0:
            points.append(task.exact(loop.policy))
    found["idle"] = 1.0 - float(np.mean([row["length"] / row["longest"] for row in logged]))
    for name in (name for name in dial.quantities if ":" in name):
        kind, _, metric = name.partition(":")
        curve = [row[metric] for row in (logged if kind == "mean" else points)]
        found[name] = {"start": curve[0], "end": curve[-1]}.get(kind, float(np.mean(curve)))
    return {name: found[name] for name in dial.quantities} | {"cpu_seconds": time.process_time() - begin}


def correlation(loop: Loop, task: Any) -> float:
    """Returns the correlation of a step's advantages with the true ones of the policy that gathered; the step is
    undone.
    """
    before, actor = loop.snapshot(), deepcopy(loop.actor)
    fresh = loop.step().fresh
    assert fresh is not None
    truth, mask = true_advantage(task, fresh, actor), fresh.mask
    loop.restore(before)
    return float(np.corrcoef(fresh.extra["advantage"][mask].double().numpy(), truth[mask].numpy())[0, 1])


def curve(dial: Dial, seeds: int, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """Returns the curve of a dial: for each value the numbers of all seeds."""
    jobs = {value: [pool.submit(measured, dial, value, seed) for seed in range(seeds)] for value in dial.values}
    rows = []
    for value, waiting in jobs.items():
        results = [one.result() for one in waiting]
        rows.append({"value": value, **{name: [result[name] for result in results] for name in results[0]}})
    spec = {"task": dial.task, "setting": dial.setting, "method": dial.method, "steps": dial.steps}
    return spec | {"warmup": dial.warmup, "settings": dict(dial.settings), "seeds": seeds, "rows": rows}


def table(curves: Mapping[str, Any]) -> str:
    """Returns the curves as Markdown: mean and half-width of the 95 % interval over seeds."""
    lines = []
    for name, one in curves.items():
        quantities = [key for key in one["rows"][0] if key not in ("value", "cpu_seconds")]
        seconds = [second for row in one["rows"] for second in row["cpu_seconds"]]
        more = "".join(f", {key}={value}" for key, value in one["settings"].items())
        warm = f", {one['warmup']} supervised steps first" if one["warmup"] else ""
        lines += [f"**{name}**: {one['method']} on `{one['task']}`{more}, {one['steps']} steps{warm}, {one['seeds']} "
                  f"seeds, {np.mean(seconds):.1f} cpu-seconds a run.", ""]  # fmt: skip
        lines += [f"| {one['setting']} | {' | '.join(quantities)} |", "|---" * (1 + len(quantities)) + "|"]
        for row in one["rows"]:
            lines.append(f"| {row['value']:g} | {' | '.join(cell(row[key]) for key in quantities)} |")
        lines.append("")
    return "\n".join(lines)


def cell(values: Sequence[float]) -> str:
    """Returns mean and half-width; more digits for small numbers."""
    found = mean_interval(values, binary=False)
    digits = 3 if abs(found.value) >= 0.002 or found.value == 0 else 6
    half = (found.high - found.low) / 2
    return f"{found.value:.{digits}f}" + (f" ± {half:.3f}" if half >= 0.0005 else "")


def main() -> None:
    """Measures, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of testbeds, separated by commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out.is_file() else {}
    if options.table:
        print(table(known))
        return
    only = set(filter(None, options.only.split(",")))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.jobs) as pool:
        for dial in DIALS:
            if only and not {dial.name, dial.name.split(",")[0]} & only:
                continue
            known[dial.name] = curve(dial, options.seeds, pool)
            options.out.write_text(json.dumps(known, indent=1) + "\n")
            print(table({dial.name: known[dial.name]}), flush=True)


if __name__ == "__main__":
    main()
