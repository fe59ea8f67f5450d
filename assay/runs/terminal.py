"""Terminal output of a run: learning curves, a table of before and after, and escaping of untrusted text.

A curve is drawn with braille dots in colour, or with one ASCII mark per series if the terminal's encoding is not UTF or
several series would look alike without colour. It fits the given width.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from assay.runs.terminal_curves import printable
from assay.statistics.intervals import Change, Estimate, digits

VERDICT_COLOURS = {"better": "green", "worse": "red", "no clear change": "dim"}
SPARKS, ASCII_SPARKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"


# ---------------------------------------------------------------------------------------------------- text


# ---------------------------------------------------------------------------------------------------- tables
def before_after(rows: Sequence[Change], title: str = "", encoding: str = "utf-8") -> Table:
    """Returns two lines per measure: before, after and the change with its verdict; below each its interval."""
    caption = Text("below each mean its 95 % confidence interval", style="dim")
    shown = Text(printable(title, 100, encoding), style="bold") if title else None
    table = Table(title=shown, caption=caption, box=SIMPLE_HEAD)
    table.title_justify = table.caption_justify = "left"
    table.add_column("measure", overflow="fold")
    for heading in ("before", "after", "change"):
        table.add_column(heading, overflow="fold")
    table.add_column("values", overflow="fold", justify="right")
    for row in rows:
        verdict_colour = VERDICT_COLOURS[row.verdict]
        before, after = stacked_lines(row.before), stacked_lines(row.after)
        change = stacked_lines(row.change, row.verdict, verdict_colour)
        count = Text(str(row.change.count), style="dim")
        table.add_row(Text(printable(row.name, 60, encoding)), before, after, change, count)
    return table


def stacked_lines(estimate: Estimate, verdict: str = "", verdict_colour: str = "") -> Text:
    """Returns the mean, and its interval on a line below."""
    if not estimate.count:
        return Text("no values", style="dim")
    value, low, high = digits(estimate, signed=bool(verdict))
    interval = f"[{low}, {high}]" if math.isfinite(estimate.low + estimate.high) else "one value"
    return Text.assemble((value, f"bold {verdict_colour}"), f" {verdict}" if verdict else "", "\n", (interval, "dim"))


# ---------------------------------------------------------------------------------------------------- curves
@dataclass
class Trace:
    """A metric over a whole run in bounded memory: means of ever wider buckets, and the last values."""

    buckets: list[float] = field(default_factory=list)
    width: int = 1
    total: float = 0.0
    count: int = 0
    last: deque[float] = field(default_factory=lambda: deque(maxlen=20))

    def push(self, value: float) -> None:
        """Adds one value; ignores NaN and infinity."""
        if not math.isfinite(value):
            return
        self.last.append(value)
        self.total += value
        self.count += 1
        if self.count == self.width:
            self.buckets.append(self.total / self.count)
            self.total, self.count = 0.0, 0
            if len(self.buckets) == 64:
                self.buckets = [(a + b) / 2 for a, b in zip(self.buckets[::2], self.buckets[1::2], strict=True)]
                self.width *= 2

    @property
    def level(self) -> float:
        """Returns mean of the last ten values."""
        recent = list(self.last)[-10:]
        return sum(recent) / len(recent) if recent else math.nan

    @property
    def trend(self) -> int:
        """Returns 1, 0 or -1: the last ten values against the ten before, if the gap is twice its standard error."""
        if len(self.last) < 20:
            return 0
        values = list(self.last)
        means = sum(values[:10]) / 10, sum(values[10:]) / 10
        spread = sum((value - means[place // 10]) ** 2 for place, value in enumerate(values)) / 18
        gap = means[1] - means[0]
        return 0 if abs(gap) <= 2 * math.sqrt(spread / 5) else 1 if gap > 0 else -1

    def sparkline(self, width: int, sparks: str = SPARKS) -> str:
        """Returns the run so far in `width` characters, lowest to highest."""
        points = self.buckets + ([self.total / self.count] if self.count else [])
        if len(points) < 2:
            return ""
        columns = min(width, len(points))
        edges = [round(place * len(points) / columns) for place in range(columns + 1)]
        means = [sum(points[a:b]) / (b - a) for a, b in zip(edges, edges[1:], strict=False)]
        low, high = min(means), max(means)
        scale = (len(sparks) - 1) / (high - low) if high > low else 0.0
        return "".join(sparks[round((mean - low) * scale)] for mean in means)


