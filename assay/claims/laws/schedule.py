"""Laws of schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assay.claims.laws.laws import Contract, law
from assay.core.record import Progress


@dataclass(frozen=True)
class ProgressCase:
    """A moment of a run."""

    name: str
    progress: Progress


def progress_cases(part: Any) -> list[ProgressCase]:
    """Returns moments from the first step to one after the last, and a run of one step."""
    moments = [Progress(step, 10) for step in (0, 1, 5, 10, 11)] + [Progress(0, 1)]
    return [ProgressCase(f"step {moment.step} of {moment.num_steps}", moment) for moment in moments]


@law("it is a finite number at every moment, the same one each time")
def finite(part: Any, case: ProgressCase) -> Iterator[str]:
    """A float, a function of progress alone."""
    value = part.at(case.progress)
    if not isinstance(value, float | int) or isinstance(value, bool) or not math.isfinite(value):
        yield f"it is {value!r}"
    elif part.at(case.progress) != value:
        yield f"it is {value} and then {part.at(case.progress)}"


SCHEDULE = Contract("schedule", (finite,), progress_cases)
check_schedule = SCHEDULE.check
"""Checks the laws of a schedule."""
