"""What claims and verdicts look like: progress while they are measured, then tables, red as plain as green."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from assay.claims.claim import Measured
from assay.evidence.intervals import Estimate, formatted, number
from assay.runs.jobs import Child
from assay.runs.progress import duration

COLOURS = {"holds": "green", "fails": "bold red", "inconclusive": "yellow", "unfinished": "dim"}


class Watch:
    """A line that says how far a measurement is; on a terminal it moves, elsewhere it is said once."""

    def __init__(self, method: str, claim: Measured, console: Console, quiet: bool = False) -> None:
        self.method, self.claim, self.console, self.quiet = method, claim, console, quiet
        self.begin = time.monotonic()
        self.live = None if quiet or not console.is_terminal else Live(console=console, transient=True)

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        elif not self.quiet:
            self.console.print(f"{self.method}: {self.claim.name}, {self.claim.seeds} paired seeds", markup=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, done: int, total: int, running: Sequence[Child]) -> None:
        """Where it stands."""
        if self.live is None:
            return
        spent = time.monotonic() - self.begin
        left = f", about {duration(spent / done * (total - done))} left" if done else ""
        now = "  ".join(f"{child.job.arm} seed {child.job.seed}" for child in running)
        words = f"{self.method}: {self.claim.name}\n{done}/{total} runs, {duration(spent)}{left}   {now}"
        self.live.update(Text(words))


def word(verdict: str) -> Text:
    """The verdict in its colour."""
    return Text(verdict, style=COLOURS.get(verdict, ""))


def verdict_table(verdict: Mapping[str, Any]) -> Table:
    """A method's claims, one row each."""
    title = Text.assemble((f"{verdict['name']}  ", "bold"), word(verdict["verdict"]))
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("verdict", "claim", "found", "expected"):
        table.add_column(heading, overflow="fold")
    for claim in verdict["claims"]:
        table.add_row(word(claim["verdict"]), Text(claim["name"]), Text(found(claim)), Text(expected(claim)))
    if not verdict["claims"]:
        table.add_row("", "no claims yet")
    if verdict.get("file"):
        table.caption, table.caption_justify = Text(f"written to {verdict['file']}", style="dim"), "left"
    return table


def found(claim: Mapping[str, Any]) -> str:
    """The number, or the difference with its interval."""
    if claim["kind"] == "exact":
        return number(claim["value"])
    if "estimate" not in claim:
        return ""
    count = len(claim["seeds"])
    return f"{formatted(Estimate(claim['estimate'], claim['low'], claim['high'], count), signed=True)}, {count} seeds"


def expected(claim: Mapping[str, Any]) -> str:
    """What was promised."""
    if claim["kind"] == "exact":
        return str(claim["expected"])
    return str(claim.get("rule", ""))


def summary_table(verdicts: Sequence[Mapping[str, Any]]) -> Table:
    """One row a method: its verdict, and the first measured claim with its number."""
    table = Table(title="verdicts", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("method", "verdict", "measured claim", "ours - theirs", "made"):
        table.add_column(heading, overflow="fold")
    for verdict in verdicts:
        for claim in [one for one in verdict["claims"] if one["kind"] == "measured"]:
            row = (Text(verdict["name"], style="bold"), word(claim["verdict"]), Text(claim["name"]), Text(found(claim)))
            table.add_row(*row, verdict.get("made", ""))
    return table


def for_page(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A verdict as the page shows it: what is expected in numbers, the machine in one line."""
    claims = []
    for claim in verdict["claims"]:
        if claim["kind"] == "exact":
            claims.append(dict(claim) | {"estimate": claim["value"], "expect": claim["expected"]})
        else:
            claims.append(dict(claim) | {"expect": in_numbers(claim["expect"], claim["margin"])})
    machine = verdict.get("machine", {})
    cores, kind, torch = (machine.get(name, "?") for name in ("cores", "machine", "torch"))
    return dict(verdict) | {"claims": claims, "machine": f"{cores} cores, {kind}, torch {torch}"}


def in_numbers(expect: str, margin: float) -> str:
    """'d > margin' with the margin's number."""
    low, high = number(-margin), number(margin)
    return expect.replace("-margin", low).replace("margin", high).replace("d ", "").replace(" <= <= ", " to ").strip()
