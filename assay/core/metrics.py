"""Metrics that a run watches: what a part logs and a user should see while it trains.

A part, or a setting of one, declares them in its own class:

    watches: ClassVar[tuple[Metric, ...]] = (Metric("intervened"),)

The display shows them beside the curve, and a guard raises an alarm where one exceeds its limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from assay.core.settings import children


@dataclass(frozen=True)
class Metric:
    """A metric by the name under which it is logged. Above `most`, and where it is NaN, the alarm `guard` is raised
    with `text`, in which {value} and {step} are filled in. With `largest_of`, the loop logs it: the largest mean of
    that metric over the step's updates, where others are means over all of them. Degenerate: without a text it is only
    shown.
    """

    name: str
    most: float = math.inf
    guard: str = ""
    text: str = ""
    largest_of: str = ""


def watched_in(value: Any) -> dict[str, Metric]:
    """Returns the metrics that a part and the parts inside it watch, by name; the outer part's come first."""
    found = {one.name: one for one in getattr(value, "watches", ())}
    for _, item in children(value):
        for name, metric in watched_in(item).items():
            found.setdefault(name, metric)
    return found
