"""How good the episodes of offline datasets are, and how much of states and actions they cover, before training.

    TQ = (mean return - worst) / (best - worst)      SACo = different state-action pairs / those of a reference

Schweighofer et al. 2022, arXiv:2111.04714; computed by `assay.statistics`. What worst, best and reference are is said
with the numbers: high TQ favours cloning, high SACo methods that improve on the behaviour. Beside them stands how alike
the actions of like states are, and how noisy the system (arXiv:2306.02437).

Axes: N rows of a column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from assay.core.slots import ScriptedTask, Task
from assay.datasets.dataset import Dataset
from assay.datasets.made import Random, Scripted
from assay.statistics.datasets import Dataset as Steps
from assay.statistics.datasets import binned, described, trajectory_quality
from assay.statistics.demonstrations import FEWEST, imitability

EPISODES = 32
"""Episodes that are played to find the returns of uniform actions and of the expert."""
WIDEST = 1_000
"""Numbers of an observation above which distances say nothing: images."""
COUNTED = 1_000_000
"""Rows above which pairs are counted by HyperLogLog with 2^14 registers, 0.8 % off."""


@dataclass(frozen=True)
class Ends:
    """What TQ 0 and TQ 1 are: mean returns, and in words whose."""

    worst: float
    best: float
    worst_is: str
    best_is: str


def ends_of(data: Sequence[Dataset], task: Task | None) -> Ends:
    """Returns the ends of TQ: of uniform actions and the scripted expert of a task that is given, of the agent that
    made the data if the file says so, else of the worst and the best episode of all files.
    """
    low, high = (float(end) for end in (min(one.returns.min() for one in data), max(one.returns.max() for one in data)))
    made = [one.about["at"] for one in data if isinstance(one.about.get("at"), Mapping)]
    found = Ends(low, high, "the worst episode of these files", "the best episode of these files")
    if made and {"random", "end"} <= set(made[0]):
        at = made[0]
        found = Ends(float(at["random"]), float(at["end"]), "uniform actions", f"{at['agent']} at its end")
    if task is None:
        return found
    uniform = float(Random(EPISODES).make(task).returns.mean())
    if isinstance(task, ScriptedTask) and task.expert is not None:
        best = float(Scripted(EPISODES, noise=0.0).make(task).returns.mean())
        return Ends(uniform, best, "uniform actions", "the task's expert")
    return Ends(uniform, found.best, "uniform actions", found.best_is)


def measure(data: Sequence[Dataset], task: Task | None, reference: Dataset | None) -> list[dict[str, Any]]:
    """Returns TQ and SACo of each dataset as JSON, with what they are relative to; a number is None where nothing tells
    worst from best, or where there is no reference: one file alone. Of several files the one with the most pairs is it.
    """
    ends = ends_of(data, task)
    every = [*data, *([reference] if reference is not None else [])]
    steps = steps_of(every)
    precision = 14 if max(map(len, every)) > COUNTED else None
    sheets = [described(one, precision=precision) for one in steps]
    of = sheets[-1].unique_pairs if reference is not None else max(one.unique_pairs for one in sheets)
    is_alone = len(every) == 1
    found = []
    for one, sheet in zip(data, sheets, strict=False):
        is_known = ends.best > ends.worst
        quality = trajectory_quality(one.returns.numpy(), ends.worst, ends.best) if is_known else None
        coverage = None if is_alone else sheet.unique_pairs / of
        found.append({"tq": quality, "ends": vars(ends), "unique_pairs": sheet.unique_pairs, "saco": coverage})
    return found


def imitation(data: Dataset) -> dict[str, float] | None:
    """Returns what a dataset tells about cloning it; None of observations that are images, and of fewer rows with an
    action than tell how far neighbours may be apart.
    """
    acted = slice(None) if data.acted is None else data.acted
    seen, is_measured = data.observation[acted], data.observation.is_floating_point()
    if seen[0].numel() > WIDEST or (is_measured and len(seen) < FEWEST):
        return None
    ends = (data.terminal | data.truncated)[acted]
    done, after = data.action[acted].numpy(), data.next_observation[acted].numpy()
    return vars(imitability(seen.numpy(), done, after, ends.numpy()))


def steps_of(data: Sequence[Dataset]) -> list[Steps]:
    """Returns the steps for counting; vectors are binned, a hundred bins between the least and most of all datasets."""
    columns = [together([getattr(one, name) for one in data]) for name in ("observation", "action")]
    ends = [(one.terminal | one.truncated).numpy() for one in data]
    return [
        Steps(seen, taken, one.reward.numpy(), over)
        for one, seen, taken, over in zip(data, *columns, ends, strict=True)
    ]


def together(columns: Sequence[Tensor]) -> list[np.ndarray]:
    """Returns a column of several datasets as numbers that can be counted."""
    arrays = [column.numpy() for column in columns]
    if not columns[0].is_floating_point():
        return arrays
    flat = [array.reshape(len(array), -1) for array in arrays]
    low, high = (np.stack([side(array, 0) for array in flat]) for side in (np.min, np.max))
    return [binned(array, low.min(0), high.max(0)) for array in flat]
