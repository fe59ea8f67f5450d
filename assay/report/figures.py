"""Figures of a report as one PDF, a page each: learning curves, performance profiles, aggregate scores.

Fonts are embedded as TrueType. \\includegraphics[page=2]{figures.pdf} includes one of them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.report.results import ALL_TASKS, Results
from assay.runs.plot import GRID, INK, NO_DATES, PALE, STYLE, curve_figure, frame, look, replace_file
from assay.runs.terminal_curves import printable
from assay.statistics.intervals import Series

AGGREGATES = {
    "mean": "mean",
    "median": "median",
    "iqm": "interquartile mean",
    "gap": "optimality gap \N{DOWNWARDS ARROW}",
}
"""Titles of the panels; the arrow: lower is better."""
MOST_BANDS = 5


def save_figures(path: Path, results: Results, comparison: Mapping[str, Any]) -> Path:
    """Writes the figures of a report into a PDF file and returns its path; AssayError if nothing was evaluated."""
    if path.suffix.lower() != ".pdf":
        raise AssayError(f"--pdf {path.name} is not a .pdf file. Use this suffix.")
    require("matplotlib", "plots", "figures as files")
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages

    if not any(row["scores"] for row in comparison["rows"]):
        raise AssayError("no run has a held-out score yet, so there is no figure. Report without --pdf, or wait.")
    stream = io.BytesIO()
    with rc_context(STYLE), PdfPages(stream, metadata=NO_DATES["pdf"]) as pages:
        for figure in figures(results, comparison):
            pages.savefig(figure)
    replace_file(path, stream.getvalue())
    return path


def figures(results: Results, comparison: Mapping[str, Any]) -> Iterator[Any]:
    """Yields all figures in order."""
    units = comparison["units"]
    for task in results.tasks:
        series = [curve_of(results, arm, task) for arm in results.arms]
        shown = [each for each in series if each is not None]
        if shown:
            yield curve_figure(shown, f"{task}: learning curves", units[task], "training steps", {})
    for profile in comparison["profiles"]:
        yield profile_figure(profile, results.arms, units)
    for task in dict.fromkeys(one["task"] for one in comparison["aggregates"]):
        rows = [one for one in comparison["aggregates"] if one["task"] == task]
        yield aggregate_figure(rows, results.arms, task, units)


def curve_of(results: Results, arm: str, task: str) -> Series | None:
    """Returns the held-out scores of an arm's runs over steps; None without any."""
    found = []
    for run in results.scored(arm, task):
        points = run.journal.metrics["evaluation"].points(10**9)
        found.append({run.journal.steps[place]: value for place, value in points.items()})
    steps = sorted(set().union(*found))
    rows = [[each.get(step, np.nan) for step in steps] for each in found]
    return Series(arm, steps, rows) if steps else None


def titled(figure: Any, title: str, subtitle: str) -> None:
    """Writes title and subtitle flush left."""
    inches = figure.get_figheight()
    figure.text(0.025, 1 - 0.18 / inches, printable(title, 90), fontsize=12, fontweight="bold", va="center")
    figure.text(0.025, 1 - 0.41 / inches, printable(subtitle, 120), fontsize=9.5, color=PALE, va="center")


def scale_words(task: str, units: Mapping[str, str]) -> str:
    """Returns the unit of a task's scores, or that they are normalised."""
    return "normalised score (0 to 1)" if task == ALL_TASKS else units[task]


def profile_figure(profile: Mapping[str, Any], arms: Sequence[str], units: Mapping[str, str]) -> Any:
    """Returns the figure of one performance profile."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.05), dpi=160, facecolor="white")
    axes = figure.add_axes((0.085, 0.14, 0.71, 0.69))
    frame(axes, f"threshold: {scale_words(profile['task'], units)}")
    x = profile["thresholds"]
    for arm, (value, low, high) in profile["arms"].items():
        colour, dash = look(arms.index(arm))
        axes.step(x, value, where="pre", color=colour, linestyle=dash, linewidth=2.0, label=printable(arm, 22))
        if len(profile["arms"]) <= MOST_BANDS:
            axes.fill_between(x, low, high, step="pre", color=colour, alpha=0.13, linewidth=0)
    axes.set_ylim(-0.02, 1.02)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=8.8, handlelength=2.4)
    where = profile["task"] or "all tasks"
    bands = ", with 95 % intervals" if len(profile["arms"]) <= MOST_BANDS else ""
    titled(figure, f"{where}: performance profile", f"share of runs that score at least the threshold{bands}")
    return figure


def aggregate_figure(
    rows: Sequence[Mapping[str, Any]], arms: Sequence[str], task: str, units: Mapping[str, str]
) -> Any:
    """Returns a figure with a panel for each aggregate: a point and its interval for each arm."""
    from matplotlib.figure import Figure

    names = [name for name in AGGREGATES if any(row[name] for row in rows)]
    figure = Figure(figsize=(7.2, 1.25 + 0.3 * len(rows)), dpi=160, facecolor="white")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        for place, row in enumerate(rows):
            if row[name]:
                dot(axes, place, row[name], look(arms.index(row["arm"]))[0])
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelsize=8)
        axes.locator_params(axis="x", nbins=4)
        axes.set_title(AGGREGATES[name], loc="left", fontsize=8.5, color=INK)
        axes.set_ylim(len(rows) - 0.4, -0.6)
    panels[0].set_yticks(range(len(rows)), [printable(row["arm"], 24) for row in rows], color=INK)
    inches = figure.get_figheight()
    figure.tight_layout(rect=(0.01, 0.0, 0.99, 1 - 0.55 / inches), w_pad=1.2)
    many = (
        "95 % bootstrap intervals"
        if any(row["mean"]["low"] is not None for row in rows)
        else "too few seeds for intervals"
    )
    titled(figure, f"{task or 'all tasks'}: aggregate scores", f"{scale_words(task, units)}; {many}")
    return figure


def dot(axes: Any, place: int, estimate: Mapping[str, Any], colour: str) -> None:
    """Draws one estimate with its interval, if it has one."""
    if estimate["low"] is not None:
        ends = [estimate["low"], estimate["high"]]
        axes.plot(ends, [place, place], color=colour, alpha=0.35, linewidth=7, solid_capstyle="butt")
    axes.plot([estimate["value"]], [place], marker="|", markersize=11, markeredgewidth=2.2, color=colour)
