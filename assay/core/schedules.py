"""Schedules: settings that change with progress; each can replace a number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from assay.core.record import Progress
from assay.core.slots import Schedule


@dataclass(frozen=True)
class Linear(Schedule):
    """Goes linearly from `start` to `end` over the first `share` of the run, then stays at `end`."""

    start: float
    end: float
    share: float = 1.0

    def at(self, progress: Progress) -> float:
        done = min(1.0, progress.fraction / self.share)
        return self.start + (self.end - self.start) * done


@dataclass(frozen=True)
class WarmUp(Schedule):
    """Goes linearly from 0 to `value` over the first `share` of the run, then stays at `value`."""

    value: float
    share: float = 0.05

    def at(self, progress: Progress) -> float:
        """Returns its current value; never exactly 0, so that the first step counts."""
        return self.value * min(1.0, (progress.fraction + 1.0 / max(1, progress.num_steps)) / self.share)


@dataclass(frozen=True)
class Delayed(Schedule):
    """0 during the first `share` of the run, then `value`: a policy that is frozen until its critics are trained."""

    value: float
    share: float = 0.2
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"value": 1.0},)

    def at(self, progress: Progress) -> float:
        return 0.0 if progress.fraction < self.share else self.value


@dataclass(frozen=True)
class Scaled(Schedule):
    """`factor` times another schedule."""

    schedule: Schedule
    factor: float
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"schedule": Delayed(1.0), "factor": 0.5},)

    def at(self, progress: Progress) -> float:
        return self.factor * self.schedule.at(progress)


def with_peak(value: float | Schedule, peak: float) -> float | Schedule:
    """Returns a number or schedule with the same shape and the maximum `peak`.

    Linear, WarmUp and Delayed keep their class, so that their settings keep their names; any other schedule is scaled
    by a factor found at a thousand points of a run. A schedule that is always 0 stays 0.
    """
    if isinstance(value, int | float):
        return peak if value else value
    if isinstance(value, WarmUp | Delayed):
        return replace(value, value=peak) if value.value else value
    if isinstance(value, Linear):
        highest = max(value.start, value.end)
        start, end = (peak if each == highest else peak * each / highest for each in (value.start, value.end))
        return replace(value, start=start, end=end) if highest else value
    highest = peak_of(value)
    return Scaled(value, peak / highest) if highest else value


def peak_of(value: float | Schedule) -> float:
    """Returns a number, or the maximum of a schedule at a thousand points of a run."""
    if isinstance(value, int | float):
        return float(value)
    return max(value.at(Progress(step, 1_000)) for step in range(1_001))
