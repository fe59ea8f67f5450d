"""Whether the bases reach the thresholds that people know: final held-out returns of five seeds, with an interval.

    python -m benchmarks.thresholds                   every row; those that are there already are kept
    python -m benchmarks.thresholds --only sac        the rows of one method

CartPole-v1 counts as solved at 475 and InvertedPendulum at 950 (Gymnasium's own thresholds); the pendulum has none, and
-200 is the custom. Each run is evaluated on 20 held-out episodes with the policy's mode. A row is written as soon as
its seeds are done, so that the command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from assay.engine.machine import describe_machine
from assay.runs.progress import Mode
from assay.runs.run import train
from assay.statistics.intervals import mean_interval

SEEDS = 5


@dataclass(frozen=True)
class Row:
    """A method on a task for some steps, and the return that it is to reach."""

    method: str
    task: str
    threshold: float
    steps: int

    @property
    def name(self) -> str:
        """How it is called in the results."""
        return f"{self.method} on {self.task}"


ROWS = (
    Row("ppo", "cartpole", 475.0, 100),
    Row("dqn", "cartpole", 475.0, 200),
    Row("ppo", "pendulum", -200.0, 100),
    Row("sac", "pendulum", -200.0, 1_000),
    Row("td3", "pendulum", -200.0, 2_000),
    Row("ppo", "InvertedPendulum-v5", 950.0, 100),
    Row("sac", "InvertedPendulum-v5", 950.0, 2_000),
    Row("td3", "InvertedPendulum-v5", 950.0, 3_600),
)


def final_return(row: Row, seed: int) -> tuple[float, float, float]:
    """(held-out return before, after, decisions) of one run."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(row.method, row.task, steps=row.steps, seed=seed, out=folder, evaluations=0, mode=Mode.SILENT)
        return run.before.value, run.after.value, run.curve("decisions_total")[1][-1]


def end_with(parent: int) -> None:
    """Ends this process when its parent is gone, who would not take the result any more."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def measured(row: Row, workers: int, seeds: int = SEEDS) -> dict[str, object]:
    """The returns of all seeds, their interval, and how many reach the threshold; no workers: in this process."""
    if workers:
        with ProcessPoolExecutor(workers, get_context("spawn"), end_with, (os.getpid(),)) as pool:
            found = list(pool.map(final_return, [row] * seeds, range(seeds)))
    else:
        found = [final_return(row, seed) for seed in range(seeds)]
    before, after, decisions = (np.array(column) for column in zip(*found, strict=True))
    interval = mean_interval(after)
    return {
        "threshold": row.threshold,
        "steps": row.steps,
        "decisions": float(decisions[0]),
        "before": before.tolist(),
        "after": after.tolist(),
        "mean": interval.value,
        "low": interval.low,
        "high": interval.high,
        "reached": int((after >= row.threshold).sum()),
    }


def show(results: dict[str, dict[str, object]]) -> None:
    """The table."""
    table = Table(title=f"final held-out return, {SEEDS} seeds")
    for column in ("what", "decisions", "threshold", "mean [95 %]", "seeds that reach it"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for name, row in results.items():
        interval = f"{row['mean']:.0f} [{row['low']:.0f}, {row['high']:.0f}]"
        reached = f"{row['reached']} of {len(row['after'])}"  # type: ignore[arg-type]
        table.add_row(name, f"{row['decisions']:,.0f}", f"{row['threshold']:g}", interval, reached)
    Console().print(table)


def main() -> None:
    """Measures the rows that are not there yet."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.thresholds", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/thresholds.json"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--toy", action="store_true", help="two seeds of one step each, to see that it works")
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out.is_file() else {"rows": {}}
    for row in ROWS:
        if options.only in row.name and row.name not in known["rows"]:
            small = replace(row, steps=1), options.workers, 2
            known["rows"][row.name] = measured(*small) if options.toy else measured(row, options.workers)
            options.out.write_text(json.dumps({"machine": describe_machine(), **known}, indent=1) + "\n")
            show({row.name: known["rows"][row.name]})
    show({row.name: known["rows"][row.name] for row in ROWS if row.name in known["rows"]})


if __name__ == "__main__":
    main()
