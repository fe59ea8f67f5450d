"""Settings that move with progress; each stands where a number stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from assay.core.record import Progress
from assay.core.slots import Schedule


@dataclass(frozen=True)
class Linear(Schedule):
    """From `start` to `end` over the first `share` of the run, then `end`."""

    start: float
    end: float
    share: float = 1.0

    def at(self, progress: Progress) -> float:
        """Its value now."""
        done = min(1.0, progress.fraction / self.share)
        return self.start + (self.end - self.start) * done


@dataclass(frozen=True)
class WarmUp(Schedule):
    """0 to `value` over the first `share` of the run, then `value`."""

    value: float
    share: float = 0.05

    def at(self, progress: Progress) -> float:
        """Its value now; never exactly 0, so that the first step counts."""
        return self.value * min(1.0, (progress.fraction + 1.0 / max(1, progress.num_steps)) / self.share)


@dataclass(frozen=True)
class Delayed(Schedule):
    """0 during the first `share` of the run, then `value`: a policy that waits until its critics have learned."""

    value: float
    share: float = 0.2
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"value": 1.0},)

    def at(self, progress: Progress) -> float:
        """Its value now."""
        return 0.0 if progress.fraction < self.share else self.value


@dataclass(frozen=True)
class Scaled(Schedule):
    """`factor` times another schedule."""

    schedule: Schedule
    factor: float
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"schedule": Delayed(1.0), "factor": 0.5},)

    def at(self, progress: Progress) -> float:
        """Its value now."""
        return self.factor * self.schedule.at(progress)


def with_peak(value: float | Schedule, peak: float) -> float | Schedule:
    """Returns a number or schedule with the same shape whose largest value is `peak`.

    Linear, WarmUp and Delayed keep their class, so that their settings keep their names; any other schedule is scaled
    by a factor found at a thousand moments of a run. What is 0 all the time stays 0.
    """
    if isinstance(value, int | float):
        return peak if value else value
    if isinstance(value, WarmUp | Delayed):
        return replace(value, value=peak) if value.value else value
    if isinstance(value, Linear):
        highest = max(value.start, value.end)
        start, end = (peak if each == highest else peak * each / highest for each in (value.start, value.end))
        return replace(value, start=start, end=end) if highest else value
    highest = max(value.at(Progress(step, 1_000)) for step in range(1_001))
    return Scaled(value, peak / highest) if highest else value
