"""Published reference returns and scores of benchmarks, by name: D4RL's and NeoRL-2's.

    score = 100 (return - low) / (high - low)

(low, high) are the benchmark's own numbers: an untrained and an expert policy in its environments, evaluated its way.
A return from anywhere else (another version of an environment, data made here) has no score of that benchmark.

The files in `published/` say where each number is from, and under which licence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import AssayError
from assay.statistics.intervals import Values

FOLDER = Path(__file__).parent / "published"


@dataclass(frozen=True)
class Reference:
    """The returns that are score 0 and score 100."""

    low: float
    high: float

    def score(self, returns: ArrayLike) -> Values:
        """Returns the scores of returns, undiscounted sums of an episode's rewards or their mean."""
        return 100.0 * (np.asarray(returns, dtype=np.float64) - self.low) / (self.high - self.low)

    def returns(self, score: ArrayLike) -> Values:
        """Returns the returns that have these scores."""
        return self.low + (self.high - self.low) * np.asarray(score, dtype=np.float64) / 100.0


@cache
def published(benchmark: str) -> Mapping[str, Any]:
    """Returns what is carried of a benchmark: `source`, `licence`, `reference` and, if there are any, tables of
    `returns` and `scores` by task and method.
    """
    known = sorted(path.stem for path in FOLDER.glob("*.json"))
    if benchmark not in known:
        raise AssayError(f"there are no published numbers of '{benchmark}'. Use {', '.join(known)}")
    found: dict[str, Any] = json.loads((FOLDER / f"{benchmark}.json").read_text())
    return found


def reference(benchmark: str, task: str) -> Reference:
    """Returns the published reference returns of a task or dataset, such as ("d4rl", "hopper-medium-v2")."""
    known = published(benchmark)["reference"]
    if task not in known:
        near = get_close_matches(task, known, 3) or sorted(known)[:3]
        raise AssayError(f"{benchmark} has no reference of '{task}'. Use {', '.join(near)} or another of {len(known)}")
    return Reference(*known[task])


def beats(scores: Mapping[str, Mapping[str, float]], method: str, by: float, than: str = "data") -> int:
    """Returns on how many tasks a method's score is above that of the data (or of another column) by more than `by`."""
    return sum(row[method] > row[than] + by for row in scores.values())
