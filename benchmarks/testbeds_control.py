"""Dial curves of the control testbeds: how a rival's score moves with a setting of the task, 5 seeds each.

python -m benchmarks.testbeds_control                 all curves, then the table in docs/testbeds_control.md
python -m benchmarks.testbeds_control NAME NAME       some of them; other curves keep their numbers
python -m benchmarks.testbeds_control --table         the table alone, from the committed numbers
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.claims.claim import Curves
from assay.claims.testbeds.control.cost_corridor import within_budget
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.runs.plan import make_plan
from assay.statistics.intervals import mean_interval

RESULTS = Path(__file__).with_name("testbeds_control.json")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "testbeds_control.md"
BEGIN, END = "<!-- curves -->\n", "<!-- end of curves -->\n"
SEEDS, EVALUATIONS = 5, 4


@dataclass(frozen=True)
class Curve:
    """A method with its default settings on a task at several values of one setting."""

    method: str
    task: str
    dial: str
    values: tuple[float, ...]
    steps: int
    quantity: str = "evaluation"
    matched: str = ""
    """A setting of the recipe that gets the value of the dial too."""
    metric: Callable[[float], Callable[[Curves], float]] | None = None
    """A metric of the run's evaluations, made from the value of the dial; it is the quantity then."""

    @property
    def name(self) -> str:
        """Returns method, task and dial in one word."""
        more = "" if self.quantity == "evaluation" else f"-{self.quantity}"
        return f"{self.method}-{self.task.partition(':')[0]}-{self.dial}{more}"

    def address(self, value: float) -> str:
        """Returns the task at a value of the dial."""
        return f"{self.task}{',' if ':' in self.task else ':'}{self.dial}={value:g}"


CURVES = (
    Curve("dqn", "random-mdp", "noise", (0, 2, 8), 10),
    Curve("ppo", "random-mdp", "noise", (0, 2, 8), 25),
    Curve("bc", "logged-tree", "coverage", (0.1, 0.3, 0.6), 20),
    Curve("bc", "logged-tree:coverage=1", "stitching", (1, 2, 4), 20),
    Curve("cql", "logged-tree:coverage=1", "stitching", (1, 4), 40),
    Curve("cql", "logged-tree:coverage=0.3", "corruption", (0, 0.4), 40),
    Curve("ppo", "cost-corridor", "budget", (5, 10, 20), 12, "within_budget", metric=within_budget),
    Curve("safe-rl-review", "cost-corridor", "budget", (5, 10, 20), 12, "evaluation_cost", "Multiplier.limit"),
    Curve("ppo", "coded-rule", "cardinality", (2, 6), 10),
    Curve("gbrl", "coded-rule", "cardinality", (2, 6), 10),
)


def run(curve: Curve, value: float, seed: int) -> dict[str, float]:
    """Trains and evaluates one seed: `evaluation`, further measurements of the task, `area` under the curve, cpu
    seconds.
    """
    settings = {curve.matched: value} if curve.matched else {}
    plan = make_plan(curve.method, curve.address(value), steps=curve.steps, seed=seed, settings=settings)
    began, rows = time.process_time(), []
    loop = Loop(plan.recipe, plan.task, seed=seed, num_steps=plan.steps)
    for step in range(1, curve.steps + 1):
        loop.step()
        if step * EVALUATIONS % curve.steps < EVALUATIONS:
            scores, more = evaluation.outcomes(loop.policy, plan.task)
            rows.append({"evaluation": float(scores.mean()), **more})
    if curve.metric is not None:
        rows[-1][curve.quantity] = curve.metric(value)(rows)
    area = sum(row["evaluation"] for row in rows) / len(rows)
    return rows[-1] | {"area": area, "cpu_seconds": time.process_time() - began}


def measure(curve: Curve, seeds: int = SEEDS) -> dict[str, Any]:
    """Returns the runs of every value of the dial."""
    rows = {f"{value:g}": [run(curve, value, seed) for seed in range(seeds)] for value in curve.values}
    about = {"method": curve.method, "task": curve.task, "dial": curve.dial, "steps": curve.steps}
    return about | {"quantity": curve.quantity, "runs": rows}


def table(results: Mapping[str, Any]) -> Iterable[str]:
    """Yields the lines of a markdown table: mean and 95 % interval over the seeds at each value."""
    yield "| method (steps) | task | dial | quantity | value: mean [95 % interval] | area | cpu-s a run |"
    yield "|---|---|---|---|---|---|---|"
    for curve in CURVES:
        if curve.name not in results:
            continue
        one = results[curve.name]
        cells, areas, spent = [], [], []
        for value, runs in one["runs"].items():
            found = mean_interval([row[one["quantity"]] for row in runs], binary=False)
            cells.append(f"{value}: {found.value:.2f} [{found.low:.2f}, {found.high:.2f}]")
            areas.append(f"{mean_interval([row['area'] for row in runs], binary=False).value:.2f}")
            spent += [row["cpu_seconds"] for row in runs]
        start = f"| {one['method']} ({one['steps']}) | {one['task']} | {one['dial']} | {one['quantity']} | "
        yield f"{start}{'; '.join(cells)} | {', '.join(areas)} | {sum(spent) / len(spent):.1f} |"


def write_table() -> None:
    """Replaces the table of the page by that of the committed numbers."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    lines = "\n".join(table(json.loads(RESULTS.read_text())))
    PAGE.write_text(f"{before}{BEGIN}{lines}\n{END}{after}")


def main(arguments: Sequence[str]) -> None:
    """Measures the named curves, or all, and writes numbers and table."""
    torch.set_num_threads(1)
    if arguments != ["--table"]:
        for curve in CURVES:
            if not arguments or curve.name in arguments:
                measured = {curve.name: measure(curve)}
                known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
                RESULTS.write_text(json.dumps(known | measured, indent=1) + "\n")
                print(curve.name, flush=True)
    write_table()


if __name__ == "__main__":
    main(sys.argv[1:])
