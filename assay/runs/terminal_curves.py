"""Curves as text: points of a figure, one character each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from assay.statistics.intervals import Series, Values, number

COLOURS = ("cyan", "yellow", "magenta", "green", "blue", "red")

MARKS = "*o+x#@"



Line: TypeAlias = tuple[str, Values, Values]
DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column



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
