"""What a run says on a terminal: a learning curve, a table of before and after, and text from outside made harmless.

A curve is drawn with braille dots in colour, and with one ASCII mark a series where the terminal's encoding is not UTF
or where several series would look alike without colour. It takes the width it is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from assay.evidence.intervals import Change, Estimate, digits, mean_interval, number

COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")
MARKS = "*o+x#@"
VERDICT_COLOURS = {"better": "green", "worse": "red", "no clear change": "dim"}
DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column


# ---------------------------------------------------------------------------------------------------- text
def printable(text: str, limit: int = 200, encoding: str = "utf-8") -> str:
    """One line that cannot move the cursor, ring, colour or reverse anything: what is not printable is escaped.

    At most `limit` characters are kept; what was cut is counted at the end. What `encoding` lacks is escaped too.
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
    """Two lines a measure: before, after and the change with what its interval says; below each its interval."""
    caption = Text("below each mean its 95 % confidence interval", style="dim")
    table = Table(title=Text(printable(title, 100, encoding), style="bold") if title else None, box=SIMPLE_HEAD, caption=caption)
    table.title_justify = table.caption_justify = "left"
    table.add_column("measure", overflow="fold")
    for heading in ("before", "after", "change"):
        table.add_column(heading, overflow="fold")
    table.add_column("values", overflow="fold", justify="right")
    for row in rows:
        colour = VERDICT_COLOURS[row.verdict]
        before, after = stacked(row.before), stacked(row.after)
        change = stacked(row.change, row.verdict, colour)
        table.add_row(Text(printable(row.name, 60, encoding)), before, after, change, Text(str(row.change.count), style="dim"))
    return table


def stacked(estimate: Estimate, verdict: str = "", colour: str = "") -> Text:
    """The mean, and its interval on a line below."""
    if not estimate.count:
        return Text("no values", style="dim")
    value, low, high = digits(estimate, signed=bool(verdict))
    interval = f"[{low}, {high}]" if math.isfinite(estimate.low + estimate.high) else "one value"
    return Text.assemble((value, f"bold {colour}"), f" {verdict}" if verdict else "", "\n", (interval, "dim"))


# ---------------------------------------------------------------------------------------------------- curves
@dataclass(frozen=True)
class Series:
    """One line of a learning curve: a row of values for each seed over common x; NaN where nothing was measured."""

    name: str
    x: Sequence[float]
    rows: Sequence[Sequence[float]]

    @property
    def values(self) -> NDArray[np.float64]:
        """Seeds by points; what is not finite counts as not measured."""
        values = np.asarray(self.rows, dtype=np.float64).reshape(len(self.rows), len(self.x))
        return np.where(np.isfinite(values), values, np.nan)

    def middle(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """x and the mean over seeds, at the points where some seed was measured."""
        values = self.values
        counts = np.isfinite(values).sum(0)
        seen = counts > 0
        mean = np.nansum(values, 0)[seen] / counts[seen]
        return np.asarray(self.x, dtype=np.float64)[seen], mean

    def band(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """x, low and high end of the mean's interval, at the points where at least two seeds were measured."""
        columns = [(x, column[np.isfinite(column)]) for x, column in zip(self.x, self.values.T, strict=True)]
        estimates = [(x, mean_interval(column, level, binary=False)) for x, column in columns if column.size > 1]
        if not estimates:
            return np.empty(0), np.empty(0), np.empty(0)
        x, low, high = zip(*((x, each.low, each.high) for x, each in estimates), strict=True)
        return np.asarray(x), np.asarray(low), np.asarray(high)


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
            yield Text(f"{printable(self.title, 80, encoding)}: nothing was measured, so there is no curve".removeprefix(": "))
            return
        is_plain = options.ascii_only or (len(drawn) > 1 and (console.color_system is None or console.no_color))
        yield self.heading([name for name, _, _ in drawn], is_plain, encoding)
        yield from self.body(drawn, options.max_width, is_plain, options.ascii_only)

    def heading(self, names: Sequence[str], is_plain: bool, encoding: str) -> Text:
        """Title and legend."""
        heading = Text(printable(self.title, 80, encoding), style="bold")
        for place, name in enumerate(names):
            mark = MARKS[place % len(MARKS)] if is_plain else "━━"
            heading.append("   " if heading.plain else "")
            heading.append(f"{mark} ", style=f"not bold {COLOURS[place % len(COLOURS)]}")
            heading.append(printable(name, 40, encoding), style="not bold")
        return heading

    def body(
        self, drawn: Sequence[tuple[str, NDArray[np.float64], NDArray[np.float64]]], width: int, is_plain: bool, is_ascii: bool
    ) -> Iterator[Text]:
        """The rows with the y axis, the x axis, and its labels."""
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
        at = {round((y_high - tick) / (y_high - y_low) * (self.height - 1)): label for tick, label in zip(ticks, labels, strict=True)}
        bar, knot = ("|", "+") if is_ascii else ("│", "┤")
        for row, cell in enumerate(cells):
            yield Text.assemble((f"{at.get(row, ''):>{margin}} {knot if row in at else bar}", "dim"), cell)
        yield from self.x_axis(x_low, x_high, columns, margin, is_ascii)

    def x_axis(self, low: float, high: float, columns: int, margin: int, is_ascii: bool) -> Iterator[Text]:
        """The line under the curve with its numbers and what they count."""
        corner, line, knot = ("+", "-", "+") if is_ascii else ("└", "─", "┬")
        ticks = [tick for tick in scale(low, high, max(2, columns // 10))[2] if low <= tick <= high]
        axis, words = [line] * columns, [" "] * (columns + margin + 2)
        room = columns + margin + 1 - len(self.x_label)
        for tick, label in zip(ticks, tick_labels(ticks), strict=True):
            place = round((tick - low) / (high - low) * (columns - 1))
            axis[place] = knot
            start = max(0, place + margin + 2 - len(label) // 2)
            if start + len(label) < room and all(letter == " " for letter in words[max(0, start - 1) : start + len(label) + 1]):
                words[start : start + len(label)] = label
        if room > 0:
            words[-len(self.x_label) :] = self.x_label
        yield Text(" " * (margin + 1) + corner + "".join(axis), style="dim")
        yield Text("".join(words), style="dim")


def scale(low: float, high: float, most: int) -> tuple[float, float, list[float]]:
    """The two ends of an axis and its ticks: round numbers (1, 2, 5 times a power of ten), at most about `most`.

    The ends are those of the values, moved out to a tick that is near; equal values get some room.
    """
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-300):
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.8)
    first, last = math.ceil(low / step - 0.25), math.floor(high / step + 0.25)
    ticks = [place * step for place in range(first, last + 1)]
    return min(low, ticks[0]), max(high, ticks[-1]), ticks


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """The ticks as text with equally many decimals."""
    step = min((b - a for a, b in pairwise(ticks)), default=1.0)
    return [number(tick, max(0, -math.floor(math.log10(step) + 1e-9))) for tick in ticks]


def resampled(place: NDArray[np.float64], y: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """One height a column: the mean of the points that fall in it, straight lines between; NaN beyond the ends."""
    column = np.rint(place * (columns - 1)).astype(int)
    counts = np.bincount(column, minlength=columns)
    sums = np.bincount(column, weights=y, minlength=columns)
    filled = np.flatnonzero(counts)
    return np.interp(np.arange(columns), filled, sums[filled] / counts[filled], left=np.nan, right=np.nan)


def draw(owner: NDArray[np.int64], rows: NDArray[np.float64], place: int) -> None:
    """Writes `place` into the cells that a line through one row a column touches."""
    before = math.nan
    for column, row in enumerate(rows):
        if not math.isnan(row):
            start = row if math.isnan(before) else before + np.sign(row - before)
            low, high = sorted((int(start), int(row)))
            owner[low : high + 1, column] = place
        before = row


def dotted(owner: NDArray[np.int64]) -> Iterator[Text]:
    """Rows of braille cells; a cell has the colour of the last series in it."""
    for top in range(0, owner.shape[0], 4):
        line = Text()
        for left in range(0, owner.shape[1], 2):
            cell = owner[top : top + 4, left : left + 2]
            bits = sum(DOT_BITS[row][column] for row, column in np.argwhere(cell >= 0))
            line.append(chr(0x2800 + bits) if bits else " ", style=COLOURS[int(cell.max()) % len(COLOURS)] if bits else "")
        yield line


def marked(owner: NDArray[np.int64]) -> Iterator[Text]:
    """Rows of one mark a series."""
    for row in owner:
        line = Text()
        for place in row:
            line.append(MARKS[place % len(MARKS)] if place >= 0 else " ", style=COLOURS[place % len(COLOURS)] if place >= 0 else "")
        yield line
