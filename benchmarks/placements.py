"""Which GPUs sample and which train, scored by the simulated cluster: `python -m benchmarks.placements`.

    together   every GPU samples, then every GPU trains, at lag 0
    split      s of n GPUs sample while n - s train, at lag 1 or more

With sequences of equal length and whole loads a step takes, L tokens a sequence and r sequences a GPU,

    together   hand-over + L (decode + r per_row) + hand-over + n r L / (rate n)
    split      max(sampling, hand-over + training) of its own GPUs, once the first step is sampled, if the longer of
               the two is longer by two hand-overs

which `by_hand` computes and a test compares. With log-normal lengths there is no such form: all splits are simulated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass

from assay.runs.distributed.ledger import WorkSchedule
from benchmarks.cluster import DECODE, HANDOVER, MEDIAN, PER_ROW, SIGMA, SLOTS, TRAINED_PER_SECOND, Cluster, Simulation

STARTED = 1.0
"""Seconds in which a process of the simulation starts."""


@dataclass(frozen=True)
class Placed:
    """`sampling` of `gpus` GPUs sample and the others train; all do both if they are equal."""

    gpus: int
    sampling: int
    lag: int = 0
    rows: int = 4_096
    steps: int = 12
    sigma: float = SIGMA
    median: float = MEDIAN

    @property
    def training(self) -> int:
        """The number of GPUs that train."""
        return self.gpus - self.sampling or self.gpus

    def seconds(self, seed: int = 0) -> float:
        """Returns the time of a step in the simulation, the first one with the start included."""
        members = 8
        plan = WorkSchedule(self.steps, self.rows // members, members, self.lag)
        slots = SLOTS if self.sigma and self.lag else self.rows // self.sampling  # equally many
        cluster = Cluster(plan, self.sampling, self.training, slots, median=self.median, sigma=self.sigma)
        return Simulation(cluster, seed).run().now / self.steps

    def by_hand(self) -> float:
        """Returns the same for sequences of equal length that fill all samplers equally."""
        sampled = HANDOVER + self.median * (DECODE + PER_ROW * self.rows / self.sampling)
        trained = self.rows * self.median / (TRAINED_PER_SECOND * self.training)
        if not self.lag:
            return (STARTED + self.steps * (sampled + trained + HANDOVER) - HANDOVER) / self.steps
        each = max(sampled, trained + HANDOVER)
        return (STARTED + sampled + (self.steps - 1) * each + trained) / self.steps


def best(gpus: int, lag: int, rows: int, steps: int = 12) -> list[tuple[float, int]]:
    """Returns the time of a step for every split in eighths, shortest first, with the number of samplers."""
    shares = sorted({max(1, gpus * eighth // 8) for eighth in range(1, 8)})
    return sorted((Placed(gpus, some, lag, rows, steps).seconds(), some) for some in shares)


def main(words: Sequence[str] | None = None) -> int:
    """Prints together and every split as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placements", description=__doc__)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--lag", type=int, default=4)
    options = parser.parse_args(words)
    rows = 64 * options.gpus
    together = Placed(options.gpus, options.gpus, 0, rows).seconds()
    found = [
        {"sample": some, "train": options.gpus - some, "seconds_a_step": round(seconds, 1), "over": together / seconds}
        for seconds, some in best(options.gpus, options.lag, rows)
    ]
    print(json.dumps({"together": together, "splits": found}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
