"""Prints runs and laws: results before and after training, curves, and which laws hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.padding import Padding
from rich.text import Text

from assay.core.errors import AssayError
from assay.report.console import console as console
from assay.runs.plot import curve, learning_curve
from assay.runs.ranges import range_of
from assay.runs.terminal import before_after
from assay.runs.terminal_curves import Curve
from assay.statistics.intervals import Change, Series, inside, mean_interval, widths

if TYPE_CHECKING:
    from assay.claims.laws.file import Report


# ---------------------------------------------------------------------------------------------------- results
def run_facts(run: Any) -> dict[str, Any]:
    """Returns a run as JSON."""
    return {
        "folder": str(run.folder),
        "method": run.recipe.name,
        "task": run.task.name,
        "before": vars(run.before),
        "after": vars(run.after),
        "alarms": [alarm.message for alarm in run.alarms],
        "ended": run.ended or None,
        "certificate": None if run.certificate is None else vars(run.certificate),
    }


def print_results(runs: Sequence[Any], base: Path) -> None:
    """Prints scores before and after training with intervals (of several seeds also over seeds), the learning curve,
    and the paths of the files.
    """
    out = console()
    title = f"{runs[0].recipe.name} on {runs[0].task.name}: held-out score"
    names = [run.folder.name.replace("-", " ") for run in runs] if len(runs) > 1 else ["held-out score"]
    rows = [replace(run.change, name=name) for run, name in zip(runs, names, strict=True)]
    table = before_after([*rows, *([over_seeds(runs)] if len(runs) > 1 else [])], title)
    if len(runs) > 1:
        words = (
            "below each mean its 95 % confidence interval: of a seed over held-out starts, of the last row over seeds"
        )
        table.caption = Text(words, style="dim")
    out.print(table)
    for run, name in zip(runs, names, strict=True):
        if run.ended:
            out.print(f"{name} ended at step {run.curves[-1]['step']}: {run.ended}", markup=False)
    series = [curve(runs[0].recipe.name, "evaluation", [run.curves for run in runs])]
    out.print(Curve(series, x_label="step"))
    for run, name in zip(runs, names, strict=True):
        if run.certificate is not None:
            verdict = ("certified", "bold green") if run.certificate.holds else ("NO SOLUTION", "bold red")
            whose = f" ({name})" if len(runs) > 1 else ""
            out.print(Text.assemble(verdict, f"{whose}: {run.certificate.statement}"))
    out.print(f"curve       {picture_of(runs, base, series)}\nrun folder  {base}", markup=False)


def over_seeds(runs: Sequence[Any]) -> Change:
    """Returns the row over seeds: each seed's mean score is one value, and its change is paired."""
    before, after = (np.array([getattr(run, name).value for run in runs]) for name in ("before", "after"))
    limits = range_of(runs[0].task)
    first, last = (inside(mean_interval(values, binary=False), limits) for values in (before, after))
    change = inside(mean_interval(after - before, binary=False), widths(limits))
    return Change(f"over {len(runs)} seeds", first, last, change)


def picture_of(runs: Sequence[Any], base: Path, series: Sequence[Series]) -> str:
    """Returns the path of the picture; draws one with a band if there are several seeds."""
    path = base / "learning_curve.png"
    if len(runs) == 1 and path.is_file():
        return str(path)
    try:
        title = f"{runs[0].recipe.name} on {runs[0].task.name}"
        learning_curve(path, series, title=title, subtitle="held-out score")
    except AssayError as error:
        return f"not drawn: {error}"
    return str(path)


# ---------------------------------------------------------------------------------------------------- laws
def print_checks(reports: Sequence[Report], as_json: bool) -> int:
    """Prints for each object of a file which laws broke, on what input, and which held; returns 1 if one broke."""
    if as_json:
        rows = [
            {"name": report.name, "kind": report.kind, "held": report.held, "laws": list(map(vars, report.findings))}
            for report in reports
        ]
        print(json.dumps(rows, indent=2))
        return int(not all(report.held for report in reports))
    out = console()
    for report in reports:
        head, *lines = report.lines()
        out.print(Text.assemble(("holds  ", "green") if report.held else ("breaks ", "bold red"), (head, "bold")))
        for line in lines:
            indent, words = len(line) - len(line.lstrip()), line.lstrip()
            out.print(Padding(Text(words, style="red" if words.startswith("broke") else "dim"), (0, 0, 0, indent)))
    broken = sum(len(report.broken) for report in reports)
    total = sum(len(report.findings) for report in reports)
    out.print(f"{total - broken} of {total} laws held" + (f", [bold red]{broken} broke[/]" if broken else ""))
    return int(broken > 0)
