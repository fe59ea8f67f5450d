"""Metrics of measured claims that need the trained policy itself, or the whole curve: pass@k, distinct@k, exact pass
rates, areas.

    metric=PassAt(64)                    after the run: 64 samples of each of 256 held-out prompts
    metric=AnswerProbability()           after the run: pi(the only right answer), one forward pass, no sampling
    metric=Area("pass_rate")             of the curve that an exact task logs at every evaluation
    metric=AtEqual("pass@64")            of both curves, where both have the same pass rate
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from assay.claims.claim import Curves, values_of
from assay.core.errors import AssayError
from assay.core.score_range import RIGHT
from assay.core.record import Draw, Need
from assay.core.slots import DemonstratedTask, Task, TextTask
from assay.statistics.curves import value_where
from assay.statistics.passk import pass_at_k

ROWS = 512
"""Rows of one forward pass."""


# ---------------------------------------------------------------------------------------------------- of curves
@dataclass(frozen=True)
class Area:
    """The area under a metric over the steps of a run, divided by their number: its mean by the trapezoid rule."""

    metric: str = "evaluation"

    def __call__(self, curves: Curves) -> float:
        """Returns the mean height; a single value is its own."""
        values = values_of(curves, self.metric)
        steps = [float(row["step"]) for row in curves if row.get(self.metric) is not None]
        if len(values) == 1:
            return values[0]
        return float(np.trapezoid(values, steps)) / (steps[-1] - steps[0])


@dataclass(frozen=True)
class Largest:
    """The largest value of a metric in a run, such as a gradient norm."""

    metric: str

    def __call__(self, curves: Curves) -> float:
        """Returns the maximum."""
        return max(values_of(curves, self.metric))


@dataclass(frozen=True)
class AtEqual:
    """A metric of both sides where they have come equally far, not where they have taken equally many steps.

        level = the lower of the two last values of `reached`;  value of a side where it first reaches the level

    Between two evaluations both are linear. What shrinks while a policy learns (pass@k, different answers, entropy) is
    larger in whichever learns more slowly; this compares at one pass rate. With `reached="decisions_total"` it compares
    at equally many generated tokens. A side that begins above the level is taken at its beginning.
    """

    metric: str
    reached: str = "pass_rate"

    def of_both(self, ours: Curves, theirs: Curves) -> tuple[float, float]:
        """Returns the metric of ours and theirs at the level; AssayError if no line has both metrics."""
        level = min(values_of(curves, self.reached)[-1] for curves in (ours, theirs))
        return self.at(ours, level), self.at(theirs, level)

    def at(self, curves: Curves, level: float) -> float:
        """Returns the metric where `reached` first is at the level."""
        lines = [row for row in curves if row.get(self.metric) is not None and row.get(self.reached) is not None]
        return value_where(values_of(lines or curves, self.reached), values_of(lines or curves, self.metric), level)


# ---------------------------------------------------------------------------------------------------- of policies
@dataclass(frozen=True)
class PassAt:
    """pass@k on held-out prompts, unbiased from `samples` samples of each; a sample is right above 1/2."""

    k: int = 8
    samples: int = 64
    prompts: int = 256

    def of(self, policy: Any, task: Task) -> float:
        """Returns the mean over prompts."""
        right = sampled(policy, task, self.prompts, self.samples)[0]
        return float(pass_at_k(self.samples, right.sum(1), self.k).mean())


@dataclass(frozen=True)
class DistinctAt:
    """Expected number of different right answers among k samples of a prompt, unbiased from `samples` of each.

    sum over answers of 1 - C(n - c, k) / C(n, k), c the times that it was written. Answers are equal as text.
    """

    k: int = 8
    samples: int = 64
    prompts: int = 256

    def of(self, policy: Any, task: Task) -> float:
        """Returns the mean over prompts."""
        right, texts = sampled(policy, task, self.prompts, self.samples)
        total = 0.0
        for is_right, said in zip(right, texts, strict=True):
            counts = list(Counter(one for one, good in zip(said, is_right, strict=True) if good).values())
            total += float(pass_at_k(self.samples, counts, self.k).sum()) if counts else 0.0
        return total / self.prompts


@dataclass(frozen=True)
class AnswerProbability:
    """Mean probability of the demonstrated answers of held-out prompts, their end included: the pass rate without
    sampling noise, where the demonstrated answer is the only right one.
    """

    prompts: int = 2048

    def of(self, policy: Any, task: Task) -> float:
        """Returns the mean over prompts."""
        if not isinstance(task, DemonstratedTask) or not isinstance(task, TextTask):
            raise AssayError(
                f"task '{task.name}' has no demonstrated answers. Use PassAt(1) instead of AnswerProbability"
            )
        found, device = [], next(policy.parameters()).device
        for first in range(0, self.prompts, ROWS):
            rows = task.demonstrate(np.arange(first, min(first + ROWS, self.prompts)), 1).to(device)
            with torch.no_grad():
                found.append(policy.score(rows, frozenset({Need.LOGP})).logp.double().sum(1).exp().cpu())
        return float(torch.cat(found).mean())


def sampled(policy: Any, task: Task, prompts: int, samples: int) -> tuple[np.ndarray, list[list[str]]]:
    """Returns whether each sample of each held-out prompt is right, [prompts, samples], and its text."""
    if not isinstance(task, TextTask):
        raise AssayError(f"task '{task.name}' has no texts to sample. Use a language task")
    right, texts, step = [], [], max(1, ROWS // samples)
    for first in range(0, prompts, step):
        starts = np.arange(first, min(first + step, prompts))
        rows, which = np.repeat(starts, samples), np.tile(np.arange(samples), len(starts))
        played = task.judge(task.play(policy, rows, which, Draw(0, (11,)), split=1, greedy=False), 1)
        right.append((played.column("score") > RIGHT).view(len(starts), samples).numpy())
        said = [str(row["completion"]) for row in task.texts(played, 1)]
        texts += [said[place : place + samples] for place in range(0, len(said), samples)]
    return np.concatenate(right), texts
