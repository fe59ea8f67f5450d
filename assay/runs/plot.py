"""Learning curves as files: PNG, SVG or PDF, by matplotlib's object interface (no pyplot, so no global figure stays).

Colours are those of Okabe and Ito (2008), safe for common colour blindness; lines differ in dashes and markers too, so
that one line on top of another leaves both to be seen, and are labelled at their ends. Equal series give equal bytes.
"""

from __future__ import annotations

import io
import math
import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.runs.terminal_curves import printable
from assay.statistics.intervals import Series, Values

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2.5)), (0, (1, 1.6)), (0, (7, 2, 1, 2)), (0, (3, 1.5)))
MARKERS = "os^D"
KINDS = ("png", "svg", "pdf")
INK, PALE, GRID = "#222222", "#6b6b6b", "#e4e4e4"
STYLE = {
    "font.family": "sans-serif", "font.size": 9.5, "axes.edgecolor": PALE, "axes.labelcolor": PALE, "text.color": INK,
    "xtick.color": PALE, "ytick.color": PALE, "axes.linewidth": 0.8, "svg.hashsalt": "assay", "svg.fonttype": "path",
    "pdf.fonttype": 42,  # TrueType: conferences refuse Type 3
    "text.usetex": False, "text.parse_math": False, "axes.unicode_minus": True,
}  # fmt: skip


def curve(name: str, metric: str, runs: Sequence[Sequence[Mapping[str, Any]]]) -> Series:
    """Returns one metric over the steps, from the records of one run or several (seeds); NaN where a run lacks it."""
    measured = [{record["step"]: record[metric] for record in run if record.get(metric) is not None} for run in runs]
    steps = sorted(set().union(*measured))
    return Series(name, steps, [[float(each.get(step, math.nan)) for step in steps] for each in measured])


def learning_curve(
    path: Path | str,
    series: Sequence[Series],
    *,
    title: str = "",
    subtitle: str = "",
    x_label: str = "step",
    y_label: str = "",
    levels: Mapping[str, float] | None = None,
) -> Path:
    """Draws the series into `path` (.png, .svg or .pdf) and returns it.

    Several seeds become their mean with a band, its 95 % interval; one seed a pale line under its moving average. Lines
    of 80 points and more are moving averages over a twentieth of them. The subtitle defaults to `y_label`.
    `levels` are horizontal lines with a name: the score before training, a baseline, the best possible.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise AssayError(f"{path.name!r} is not a .png, .svg or .pdf file. Use one of these suffixes.")
    require("matplotlib", "plots", "learning curves as files")
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = curve_figure(series, title, subtitle or y_label, x_label, levels or {})
        stream = io.BytesIO()
        figure.savefig(stream, format=kind, metadata=NO_DATES[kind])
    replace_file(path, stream.getvalue())
    return path


NO_DATES: dict[str, dict[str, Any]] = {
    "svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
}  # fmt: skip
"""Metadata that makes equal series equal bytes."""


def curve_figure(series: Sequence[Series], title: str, subtitle: str, x_label: str, levels: Mapping[str, float]) -> Any:
    """Returns the figure of learning curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.05), dpi=160, facecolor="white")
    axes = figure.add_axes((0.085, 0.13, 0.71, 0.70))
    frame(axes, x_label)
    ends = [end for place, each in enumerate(series) if (end := line(axes, each, place)) is not None]
    ends += [level(axes, name, value) for name, value in levels.items()]
    if not ends:
        axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=PALE)
    name_the_ends(axes, ends)
    words(figure, title, subtitle, series)
    return figure


def interval_bars(path: Path, rows: Sequence[tuple[str, float, float, float]], *, title: str, subtitle: str) -> Path:
    """Draws (name, value, low, high) as horizontal bars around 0 with their intervals into `path`; returns it."""
    require("matplotlib", "plots", "figures as files")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 1.5 + 0.42 * len(rows)), dpi=160, facecolor="white")
        axes = figure.add_subplot()
        for place, (_, value, low, high) in enumerate(rows):
            axes.barh(place, value, height=0.55, color=COLOURS[0], alpha=0.85)
            if math.isfinite(low) and math.isfinite(high):
                axes.plot([low, high], [place, place], color=INK, linewidth=1.4)
        axes.axvline(0.0, color=PALE, linewidth=0.8)
        axes.set_yticks(range(len(rows)), [printable(name, 40) for name, *_ in rows])
        axes.invert_yaxis()
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set_title(f"{printable(title, 90)}\n{printable(subtitle, 100)}", loc="left", fontsize=10)
        figure.tight_layout()
        stream = io.BytesIO()
        figure.savefig(stream, format=path.suffix[1:], metadata={"Software": None})
    replace_file(path, stream.getvalue())
    return path


def frame(axes: Any, x_label: str) -> None:
    """Draws horizontal grid lines and no box."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0, pad=6)
    axes.tick_params(axis="x", length=3)
    axes.margins(x=0.01, y=0.06)
    axes.set_xlabel(printable(x_label, 60), labelpad=6)


def line(axes: Any, each: Series, place: int) -> tuple[float, str, str] | None:
    """Draws one series; returns the end of its line, its name and its colour, or None if it has no points."""
    x, mean = each.middle()
    if not x.size:
        return None
    colour, dash = look(place)
    calm = Series(each.name, each.x, [smooth(row) for row in each.values])
    _, shown = calm.middle()
    if len(each.rows) > 1:
        axes.fill_between(*calm.band(), color=colour, alpha=0.17, linewidth=0)
    elif not np.array_equal(shown, mean):
        axes.plot(x, mean, color=colour, alpha=0.28, linewidth=0.8)
    marker = MARKERS[place % len(MARKERS)] if x.size <= 25 else ""
    axes.plot(x, shown, linestyle=dash, color=colour, linewidth=2.0, marker=marker, markersize=4)
    return float(shown[-1]), each.name, colour


def look(place: int) -> tuple[str, Any]:
    """Returns the colour and the dashes of a series; neighbours differ in both."""
    return COLOURS[place % len(COLOURS)], DASHES[(place + place // len(COLOURS)) % len(DASHES)]


def identical(series: Sequence[Series]) -> list[list[str]]:
    """Returns the names of series with equal means at every point, group by group."""
    groups: dict[bytes, list[str]] = {}
    for each in series:
        x, mean = each.middle()
        groups.setdefault(x.tobytes() + mean.tobytes(), []).extend([each.name] if x.size else [])
    return [names for names in groups.values() if len(names) > 1]


def smooth(values: Values) -> Values:
    """Returns a centred moving average over a twentieth of the points, narrower at the ends; few are unchanged."""
    seen = np.isfinite(values)
    half = int(seen.sum()) // 40
    if half < 2:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values[seen])])
    at = np.arange(sums.size - 1)
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, at.size)
    result = np.full_like(values, np.nan)
    result[seen] = (sums[high] - sums[low]) / (high - low)
    return result


def level(axes: Any, name: str, value: float) -> tuple[float, str, str]:
    """Draws a labelled horizontal line."""
    axes.axhline(value, color=PALE, linewidth=1.0, linestyle=(0, (4, 3)))
    return value, name, PALE


def name_the_ends(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Writes names to the right of the lines at the heights of their ends, moved apart if they would overlap."""
    low, high = axes.get_ylim()
    texts = ["\n".join(textwrap.wrap(printable(name, 60), 16, max_lines=3, placeholder="...")) for _, name, _ in ends]
    heights = [0.056 * (text.count("\n") + 1) + 0.015 for text in texts]
    order = sorted(range(len(ends)), key=lambda place: ends[place][0])
    places, below = {}, -0.1
    for place in order:
        middle = max((ends[place][0] - low) / (high - low), below + heights[place] / 2)
        places[place], below = middle, middle + heights[place] / 2
    above = 1.06
    for place in reversed(order):
        places[place] = min(places[place], above - heights[place] / 2)
        above = places[place] - heights[place] / 2
    for place, (_, _, colour) in enumerate(ends):
        look = {"color": colour, "va": "center", "fontsize": 8.8, "linespacing": 1.25}
        axes.text(1.015, places[place], texts[place], transform=axes.transAxes, **look)


def words(figure: Any, title: str, subtitle: str, series: Sequence[Series]) -> None:
    """Writes title and subtitle flush left, and below the meaning of lines and bands."""
    figure.text(0.025, 0.955, printable(title, 90), fontsize=12, fontweight="bold", va="center")
    figure.text(0.025, 0.898, printable(subtitle, 120), fontsize=9.5, color=PALE, va="center")
    seeds = sorted({len(each.rows) for each in series if len(each.rows) > 1})
    if seeds:
        count = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
        note = f"mean and its 95 % interval over {count}"
        figure.text(0.975, 0.035, note, fontsize=8, color=PALE, ha="right", va="center")
    if same := identical(series):
        names = "; ".join(" = ".join(names) for names in same)
        figure.text(0.025, 0.035, printable(f"identical: {names}", 70), fontsize=8, color=PALE, va="center")


def replace_file(path: Path, content: bytes) -> None:
    """Writes to a temporary file, then renames it: a reader never sees half a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
