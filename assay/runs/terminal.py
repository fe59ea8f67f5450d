"""Terminal output of a run: learning curves, a table of before and after, and escaping of untrusted text.

A curve is drawn with braille dots in colour, or with one ASCII mark per series if the terminal's encoding is not UTF or
several series would look alike without colour. It fits the given width.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from assay.statistics.intervals import Change, Estimate, Series, Values, digits, number

COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
MARKS = "*o+x#@"
VERDICT_COLOURS = {"better": "green", "worse": "red", "no clear change": "dim"}
SPARKS, ASCII_SPARKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
Line: TypeAlias = tuple[str, Values, Values]
DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column


# ---------------------------------------------------------------------------------------------------- text
def printable(text: str, limit: int = 200, encoding: str = "utf-8") -> str:
    """Returns one line without control codes: characters that are not printable are escaped.

    At most `limit` characters are kept; the number of the others is added. Characters outside `encoding` are escaped.
    """
    kept: list[str] = []
    room = limit
    for character in text[:limit]:
        shown = character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        shown = shown.encode(encoding, "backslashreplace").decode(encoding)
        room -= len(shown)
        if room < 0:
            break
        kept.append(shown)
    cut = len(text) - len(kept)
    return "".join(kept) + (f" (+{cut} characters)" if cut else "")


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
        before, after = stacked(row.before), stacked(row.after)
        change = stacked(row.change, row.verdict, verdict_colour)
        count = Text(str(row.change.count), style="dim")
        table.add_row(Text(printable(row.name, 60, encoding)), before, after, change, count)
    return table


def stacked(estimate: Estimate, verdict: str = "", verdict_colour: str = "") -> Text:
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


@dataclass(frozen=True)
class Curve:
    """A learning curve to print with rich: `console.print(Curve(...))`."""

    series: Sequence[Series]
    title: str = ""
    x_label: str = "step"
    height: int = 12

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [(each, *each.middle()) for each in self.series]
        drawn = [(each.name, x, y) for each, x, y in lines if x.size]
        encoding = options.encoding
        if not drawn:
            title = printable(self.title, 80, encoding)
            yield Text(f"{title}: nothing was measured, so there is no curve".removeprefix(": "))
            return
        is_plain = options.ascii_only or (len(drawn) > 1 and (console.color_system is None or console.no_color))
        yield self.heading([name for name, _, _ in drawn], is_plain, encoding)
        yield from self.body(drawn, options.max_width, is_plain, options.ascii_only)

    def heading(self, names: Sequence[str], is_plain: bool, encoding: str) -> Text:
        """Returns title and legend."""
        heading = Text(printable(self.title, 80, encoding), style="bold")
        for place, name in enumerate(names):
            mark = MARKS[place % len(MARKS)] if is_plain else "━━"
            heading.append("   " if heading.plain else "")
            heading.append(f"{mark} ", style=f"not bold {colour(place)}")
            heading.append(printable(name, 40, encoding), style="not bold")
        return heading

    def body(self, drawn: Sequence[Line], width: int, is_plain: bool, is_ascii: bool) -> Iterator[Text]:
        """Yields the rows with the y axis, the x axis, and its labels."""
        y_low, y_high = (float(pick(end(y) for _, _, y in drawn)) for pick, end in ((min, np.min), (max, np.max)))
        y_low, y_high, ticks = scale(y_low, y_high, max(3, self.height // 2))
        labels = tick_labels(ticks)
        margin = max(map(len, labels)) + 1
        columns = max(8, width - margin - 2)
        x_low, x_high = min(float(x[0]) for _, x, _ in drawn), max(float(x[-1]) for _, x, _ in drawn)
        x_high = x_high if x_high > x_low else x_low + 1
        rows, wide = (self.height, columns) if is_plain else (self.height * 4, columns * 2)
        owner = np.full((rows, wide), -1)
        for place, (_, x, y) in enumerate(drawn):
            heights = (resampled((x - x_low) / (x_high - x_low), y, wide) - y_low) / (y_high - y_low)
            draw(owner, np.rint((1 - heights) * (rows - 1)), place)
        cells = marked(owner) if is_plain else dotted(owner)
        tick_rows = [round((y_high - tick) / (y_high - y_low) * (self.height - 1)) for tick in ticks]
        at = dict(zip(tick_rows, labels, strict=True))
        bar, knot = ("|", "+") if is_ascii else ("│", "┤")
        for row, cell in enumerate(cells):
            yield Text.assemble((f"{at.get(row, ''):>{margin}} {knot if row in at else bar}", "dim"), cell)
        yield from self.x_axis(x_low, x_high, columns, margin, is_ascii)

    def x_axis(self, low: float, high: float, columns: int, margin: int, is_ascii: bool) -> Iterator[Text]:
        """Yields the line under the curve with its numbers and what they count."""
        corner, line, knot = ("+", "-", "+") if is_ascii else ("└", "─", "┬")
        counts = float(low).is_integer() and float(high).is_integer()  # steps and decisions have no halves
        found = scale(low, high, max(2, columns // 10), 1.0 if counts else 0.0)[2]
        ticks = [tick for tick in found if low <= tick <= high]
        axis, words = [line] * columns, [" "] * (columns + margin + 2)
        room = columns + margin + 1 - len(self.x_label)
        for tick, label in zip(ticks, tick_labels(ticks), strict=True):
            place = round((tick - low) / (high - low) * (columns - 1))
            axis[place] = knot
            start = max(0, place + margin + 2 - len(label) // 2)
            end = start + len(label)
            if end < room and not "".join(words[max(0, start - 1) : end + 1]).strip():
                words[start:end] = label
        if room > 0:
            words[-len(self.x_label) :] = self.x_label
        yield Text(" " * (margin + 1) + corner + "".join(axis), style="dim")
        yield Text("".join(words), style="dim")


def scale(low: float, high: float, most: int, least: float = 0.0) -> tuple[float, float, list[float]]:
    """Returns the two ends of an axis and its ticks: round numbers (1, 2, 5 times a power of ten), at most about
    `most`, and `least` apart.

    The ends are those of the values, moved out to a tick that is near; equal values get some room, but none below 0.
    """
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-100):
        pad = abs(low) * 0.1 if abs(low) > 1e-90 else 1.0
        low, high = low - pad if low < 0 else max(0.0, low - pad), high + pad
    rough = max(least, (high - low) / max(1, most - 1))
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.8)
    first, last = math.ceil(low / step - 0.25), math.floor(high / step + 0.25)
    ticks = [place * step for place in range(first, last + 1)]
    return min(low, ticks[0]), max(high, ticks[-1]), ticks


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Returns the ticks as text with equally many decimals."""
    step = min((b - a for a, b in pairwise(ticks)), default=1.0)
    return [number(tick, max(0, -math.floor(math.log10(step) + 1e-9))) for tick in ticks]


def resampled(place: Values, y: Values, columns: int) -> Values:
    """Returns one height per column: the mean of its points, linear between them; NaN beyond the ends."""
    column = np.rint(place * (columns - 1)).astype(int)
    counts = np.bincount(column, minlength=columns)
    sums = np.bincount(column, weights=y, minlength=columns)
    filled = np.flatnonzero(counts)
    return np.interp(np.arange(columns), filled, sums[filled] / counts[filled], left=np.nan, right=np.nan)


def draw(owner: NDArray[Any], rows: Values, place: int) -> None:
    """Writes `place` into the cells that a line through one row a column touches."""
    before = math.nan
    for column, row in enumerate(rows):
        if not math.isnan(row):
            start = row if math.isnan(before) else before + np.sign(row - before)
            low, high = sorted((int(start), int(row)))
            owner[low : high + 1, column] = place
        before = row


def colour(place: int) -> str:
    """Returns the colour of a series, "" for an empty cell."""
    return COLOURS[place % len(COLOURS)] if place >= 0 else ""


def dotted(owner: NDArray[Any]) -> Iterator[Text]:
    """Yields rows of braille cells; a cell has the colour of the last series in it."""
    for top in range(0, owner.shape[0], 4):
        line = Text()
        for left in range(0, owner.shape[1], 2):
            cell = owner[top : top + 4, left : left + 2]
            bits = sum(DOT_BITS[row][column] for row, column in np.argwhere(cell >= 0))
            line.append(chr(0x2800 + bits) if bits else " ", style=colour(int(cell.max())))
        yield line


def marked(owner: NDArray[Any]) -> Iterator[Text]:
    """Yields rows with one mark per series."""
    for row in owner:
        line = Text()
        for place in row:
            line.append(MARKS[place % len(MARKS)] if place >= 0 else " ", style=colour(place))
        yield line
