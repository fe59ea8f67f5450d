"""Alarms, and the guards that raise them.

A guard looks at a `Moment` of the loop and raises alarms. `stop` alarms end the run (its state is saved first), the
others are logged, shown, and counted. Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Experience, Progress, State
from assay.engine.updates import Slip


@dataclass(frozen=True)
class Alarm:
    """One finding of a guard."""

    guard: str
    message: str
    stop: bool = False


class GuardError(AssayError):
    """A guard stopped the run."""

    exit_code = 3


@dataclass(frozen=True)
class Moment:
    """The state of the loop after gathering (`metrics` empty) or after its updates."""

    recipe: Recipe
    progress: Progress
    actor: Any
    fresh: Experience | None
    metrics: Mapping[str, float]
    faults: tuple[str, ...] = ()
    slips: tuple[Slip, ...] = ()
    tried: int = 0
    """Optimizer steps that were tried, the skipped ones included."""


class Watch(Protocol):
    """A guard: `gathered` sees fresh experience before credit, `updated` the step's metrics, `evaluated` the scores of
    held-out starts. Each looks at nothing unless the guard says otherwise.
    """

    def init(self) -> State:
        """Returns the guard's initial state."""
        return {}

    def gathered(self, moment: Moment, state: State) -> list[Alarm]:
        """Checks fresh experience."""
        return []

    def updated(self, moment: Moment, state: State) -> list[Alarm]:
        """Checks the step's updates."""
        return []

    def evaluated(self, scores: Sequence[float], state: State) -> list[Alarm]:
        """Checks an evaluation."""
        return []


def lasts(is_bad: bool, state: State, name: str, patience: int) -> bool:
    """Counts steps in a row in the state; returns whether an alarm is due: after `patience` of them, and then again."""
    state[name] = state[name] + 1 if is_bad else 0
    return bool(state[name]) and state[name] % patience == 0


@dataclass
class Alarms:
    """The alarms of a run: the last `most` of each guard, and how many there were."""

    kept: list[Alarm] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    most: int = 20

    def add(self, alarms: Iterable[Alarm]) -> None:
        """Keeps the alarms, and drops the oldest of a guard that has more than `most`."""
        for alarm in alarms:
            self.kept.append(alarm)
            self.counts[alarm.guard] = self.counts.get(alarm.guard, 0) + 1
            same = [one for one in self.kept if one.guard == alarm.guard]
            if len(same) > self.most:
                self.kept.remove(same[0])

    def snapshot(self) -> State:
        """Returns them as plain values."""
        return {"kept": [dict(vars(alarm)) for alarm in self.kept], "counts": dict(self.counts)}

    @classmethod
    def of(cls, saved: State) -> Alarms:
        """Returns saved alarms."""
        return cls([Alarm(**one) for one in saved["kept"]], dict(saved["counts"]))
