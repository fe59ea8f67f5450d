"""Sampling beside training, on the wall's clock: `python -m benchmarks.systems`.

One process samples, this one trains; both sleep instead of computing (log-normal with sigma 0.8 a step, and constant),
so that a busy machine decides little. At lag 0 they alternate, at lag 1 they overlap.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from assay.claims.systems.schedules import Virtual, tailed
from assay.core.record import Experience, State
from assay.core.slots import Rollout, Scene
from assay.parts.rollouts.episodes import Episodes
from assay.runs import catalogue
from assay.runs.distributed.ledger import WorkSchedule
from assay.runs.options import CadenceOptions, GatherOptions, RunOptions
from assay.runs.progress import Mode
from assay.runs.run import train

STEPS, STARTS = 16, 4
TIMES = tailed(0, STEPS, 0.8)
PAIRS = ((0.6, 0.6), (1.0, 0.5))
"""Seconds of sampling and of training a step."""


@dataclass(frozen=True)
class Sleeping(Rollout):
    """Gathers, and sleeps `seconds` times the length of the step."""

    gather: Episodes = Episodes(STARTS, 4)
    seconds: float = 0.5
    by_start: ClassVar[bool] = True

    @property
    def num_starts(self) -> int:
        """Returns the number of starts of the inner rollout."""
        return self.gather.num_starts

    def __call__(self, scene: Scene, state: State) -> Experience:
        """Returns what the inner rollout gathers."""
        time.sleep(self.seconds * TIMES[scene.progress.step % STEPS])
        return self.gather(scene, state)


def seconds_a_step(lag: int, sampling: float, training: float) -> float:
    """Returns the wall time of a step, without the first, in which the process starts."""
    task = catalogue.find_task("bandit")
    recipe = replace(catalogue.recipe_for("grpo", task, {}), rollout=Sleeping(seconds=sampling))
    marks = list[float]()

    def slow(step: int, metrics: Any, policy: Any) -> None:
        time.sleep(training)
        marks.append(time.monotonic())

    options = RunOptions(
        cadence=CadenceOptions(evaluations=0, save_every="1000steps"), gathering=GatherOptions(gatherers=1, lag=lag)
    )
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train(recipe, task, steps=STEPS, out=out, options=options, callbacks=[slow], mode=Mode.SILENT)
    return (marks[-1] - marks[0]) / (STEPS - 1)


def simulated(lag: int, sampling: float, training: float) -> float:
    """Returns the same by the ledger on a virtual clock."""
    run = Virtual(WorkSchedule(STEPS, 1, lag=lag), 1, lambda step: sampling * float(TIMES[step]), training).run()
    return (run.now - sampling * float(TIMES[0]) - training) / (STEPS - 1)


def main(words: Sequence[str] | None = None) -> int:
    """Prints seconds a step at lag 0 and 1, measured and simulated."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.systems", description=__doc__)
    parser.add_argument("--unit", type=float, default=1.0, help="seconds of sleep that stand for one second")
    parser.add_argument("--pairs", type=int, default=len(PAIRS), help="of sampling and training times")
    options = parser.parse_args(words)
    found = {}
    for sampling, training in ((options.unit * one, options.unit * two) for one, two in PAIRS[: options.pairs]):
        wall = [seconds_a_step(lag, sampling, training) for lag in (0, 1)]
        clock = [simulated(lag, sampling, training) for lag in (0, 1)]
        ratios = {"ratio": wall[0] / wall[1], "simulated_ratio": clock[0] / clock[1]}
        found[f"{sampling:g} s sampling, {training:g} s training"] = {"wall": wall, "simulated": clock, **ratios}
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
