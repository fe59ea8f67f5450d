"""`assay.show` and `assay.claim` from Python: what the commands print, as objects that print themselves."""

from __future__ import annotations

import html
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from assay.claims import measuring, whole
from assay.claims.claim import Measured
from assay.core.errors import AssayError
from assay.report import claims as claim_tables
from assay.report import method_tables, methods
from assay.runs import catalogue

WIDTH = 100


class Shown(dict[str, Any]):
    """Facts by name, as `--json` prints them. Printed, or as the last line of a notebook's cell, it is the table of the
    command.
    """

    def __init__(self, facts: dict[str, Any], draw: Callable[[Console], None]) -> None:
        super().__init__(facts)
        self.draw = draw

    def __repr__(self) -> str:
        text = io.StringIO()
        self.draw(Console(file=text, width=WIDTH, highlight=False))
        return "\n".join(line.rstrip() for line in text.getvalue().rstrip().split("\n"))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return f"<pre style='line-height:1.2'>{html.escape(repr(self))}</pre>"


def checked_name(value: Any, name: str) -> str:
    """Returns the name of a method or task; AssayError for anything else."""
    if not isinstance(value, str):
        raise AssayError(f"{name} is {value!r:.60}. Give a name, or FILE.py:NAME as text.")
    return value


def show(method: str, task: str | None = None, *, everything: bool = False) -> Shown:
    """Returns what a method is, as `assay show`: its text and formula, what it changes in its base, departures, claims
    and verdicts; its settings on a task, or with `everything` those of its first preset.
    """
    facts = methods.method_facts(checked_name(method, "method"), None if task is None else checked_name(task, "task"))
    changes = methods.changes_of(catalogue.find_method(method)[1])
    return Shown(facts, lambda out: method_tables.draw_method(out, facts, changes, everything))


def claim(
    method: str,
    *,
    exact: bool = False,
    again: bool = False,
    budget: float | None = None,
    jobs: int | None = None,
    folder: str | Path | None = None,
    work: str | Path = "runs/claims",
) -> Shown:
    """Runs a method's claims, as `assay claim`, and returns its verdict: `["verdict"]` is holds, fails, inconclusive,
    or unfinished if `budget`, in minutes, was up; the same call then goes on.

    With `exact` the claims that take milliseconds alone. Verdicts are written to `folder`, those of the package unless
    given; runs are kept under `work`.
    """
    if budget is not None and not (isinstance(budget, int | float) and budget > 0):
        raise AssayError(f"budget is {budget!r:.60}. Use a positive number of minutes.")
    key = catalogue.method_key(catalogue.find_method(checked_name(method, "method"))[0])
    deadline = None if budget is None else time.monotonic() + 60 * budget

    def measure(one: Measured) -> dict[str, Any] | None:
        return measuring.measure(key, one, Path(work), deadline=deadline, workers=jobs)

    kept = None if folder is None else Path(folder)
    found = whole.run_claims(key, measure, exact=exact, again=again, folder=kept)
    return Shown(found, lambda out: out.print(claim_tables.verdict_table(found)))
