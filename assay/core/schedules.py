"""Settings that move with progress; each stands where a number stands."""

from __future__ import annotations

from dataclasses import dataclass
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
