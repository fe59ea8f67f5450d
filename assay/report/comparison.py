"""Prints a comparison: a live table during the runs; tables, pictures and a page at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from assay.core.errors import AssayError
from assay.core.faults import Fault
from assay.report import page
from assay.report.estimates import even_ends, interval_words
from assay.report.results import FEWEST_PAIRS
from assay.runs.answer import answer
from assay.runs.arms import Setup, plain_name
from assay.runs.comparison import Outcome, aggregate, compared_pairs, rows
from assay.runs.folder import METRICS
from assay.runs.jobs import Failure
from assay.runs.plot import curve, learning_curve
from assay.runs.pools import Child
from assay.runs.progress import duration
from assay.statistics.intervals import Estimate, digits, even_decimals, number
from assay.statistics.tuning import Tuned


# ---------------------------------------------------------------------------------------------------- while it runs
class Board:
    """Shows a live table with a row per arm and task on a terminal, elsewhere one line per finished run."""

    def __init__(self, setup: Setup, console: Console, quiet: bool = False) -> None:
        self.setup, self.console, self.quiet = setup, console, quiet
        self.begin, self.told = time.monotonic(), 0
        self.live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self.live and not self.quiet:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live and not self.quiet:
            self.live.stop()

    def __call__(self, outcome: Outcome, running: Sequence[Child]) -> None:
        """Updates the table, or prints a line."""
        if self.quiet:
            return
        if self.live is not None:
            self.live.update(self.table(outcome, running))
            return
        over = len(outcome.results) + len(outcome.failures)
        for one in outcome.results[self.told :] if over > self.told else ():
            job = one.job
            self.console.print(
                f"{over}/{len(outcome.asked)}  {job.arm} on {job.task}, seed {job.seed}: {number(one.score)} after "
                f"{duration(one.seconds)}",
                markup=False,
            )
        self.told = len(outcome.results)

    def table(self, outcome: Outcome, running: Sequence[Child]) -> Table:
        """Returns the table of arms and tasks: seeds done, estimate, interval, running, time left."""
        left = time_left(outcome, running, self.setup)
        title = f"comparing on {', '.join(self.setup.tasks)}   {duration(time.monotonic() - self.begin)} so far"
        title += f", about {duration(left)} left" if left is not None else ""
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2))
        for heading in ("arm", "task", "seeds", "score", "95 % interval", "running"):
            table.add_column(heading, justify="right" if heading == "seeds" else "left")
        for row in rows(outcome):
            asked = sum(job.arm == row["arm"] and job.task == row["task"] for job in outcome.asked)
            now = [child for child in running if child.job.arm == row["arm"] and child.job.task == row["task"]]
            score = Estimate(**row["score"])
            value, low, high = digits(score) if score.count else ("", "", "")
            failed = f" [red]{row['failed']} failed[/]" if row["failed"] else ""
            table.add_row(
                Text(row["arm"]),
                Text(row["task"]),
                f"{row['seeds']}/{asked}{failed}",
                value,
                Text(f"[{low}, {high}]" if score.count > 1 else ""),
                "  ".join(f"seed {child.job.seed} {progress(child):.0%}" for child in now),
            )
        return table


def progress(child: Child) -> float:
    """Returns the share of its steps that a running job has logged."""
    try:
        with open(child.job.folder / METRICS, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 20_000))
            lines = file.read().splitlines()
        steps = json.loads((child.job.folder / "config.json").read_text())["steps"]
        return float(json.loads(lines[-1])["step"]) / steps
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return 0.0


def time_left(outcome: Outcome, running: Sequence[Child], setup: Setup) -> float | None:
    """Estimates the seconds until all runs are done from the runs so far; None while no run has finished."""
    shares = [(progress(child), time.monotonic() - child.started) for child in running]
    known = [one.seconds for one in outcome.results] + [spent / share for share, spent in shares if share > 0.05]
    if not known:
        return None
    open_runs = len(outcome.missing) - len(running) + sum(1 - share for share, _ in shares)
    return float(np.mean(known)) * open_runs / max(1, len(running))


# ---------------------------------------------------------------------------------------------------- at the end
def show(outcome: Outcome, console: Console) -> None:
    """Prints the answer in one line, then tables, failures and missing runs."""
    first = outcome.setup.arms[0].name
    if told := answer(compared_pairs(outcome)):
        console.print(Text(told, style="bold"))
    for task in outcome.setup.tasks:
        mine = [row for row in rows(outcome) if row["task"] == task]
        title = f"{task}: {held_out_at(outcome.levels.get(task))}"
        console.print(fitted(console, partial(task_table, mine, title, first)))
    if is_uneven(rows(outcome)) and not outcome.setup.equal_decisions:
        console.print(
            "[yellow]arms took different numbers of decisions (environment steps, tokens); --equal-decisions reads "
            "scores where all had taken as many[/]"
        )
    if found := aggregate(outcome):
        console.print(fitted(console, partial(aggregate_table, found, first, len(outcome.setup.tasks))))
    if outcome.decision is not None:
        for each in outcome.decision.comparisons:
            words = {
                "larger": "scores higher than",
                "smaller": "scores lower than",
                "equal": "cannot be distinguished from",
            }
            verdict = words.get(each.verdict.value, "is not yet decided against")
            console.print(f"sequential test (total error 5 %): {each.first} {verdict} {each.second}", markup=False)
    show_failures(outcome.failures, console)
    if outcome.missing:
        console.print(
            f"[yellow]{len(outcome.missing)} runs are missing: time budget spent. Run the same command to resume[/]"
        )


def show_failures(found: Sequence[Failure], console: Console) -> None:
    """Prints the runs that failed; equal failures in code once, with the number of those that are like it."""
    told: dict[Fault, Failure] = {}
    for one in found:
        if one.fault is not None and told.setdefault(one.fault, one) is not one:
            continue
        words = f"{one.job.arm} on {one.job.task}, seed {one.job.seed}: {one.reason}  ({one.job.folder})"
        console.print(Text(f"failed  {words}", style="red"))
        alike = [other for other in found if other is not one and one.fault is not None and other.fault == one.fault]
        if alike:
            rest = sum(not other.started for other in alike)
            more = f"{len(alike) - rest} more failed there" + (f", {rest} not started" if rest else "")
            console.print(Text(f"        {more}; after the fix the same command runs them", style="red"))


def is_uneven(found: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether an arm used a fifth more decisions than another on the same task."""
    by_task: dict[str, list[float]] = {}
    for row in found:
        by_task.setdefault(row["task"], []).extend([row["decisions"]] if row["decisions"] else [])
    return any(max(each) > 1.2 * min(each) for each in by_task.values() if each)


def held_out_at(level: int | None) -> str:
    """Returns when the scores of a table were taken."""
    return "last held-out score" if level is None else f"held-out score after {level:,} decisions"


NO_LIMIT = 10_000
"""Columns in which any table fits."""


def fitted(console: Console, build: Callable[[str], Table]) -> Table:
    """Returns the table with intervals beside their means, or below them if it is wider than the console."""
    wide = build(" ")
    needed = console.measure(wide, options=console.options.update(max_width=NO_LIMIT)).maximum
    return wide if needed <= console.width else build("\n")


def task_table(found: Sequence[Mapping[str, Any]], title: str, first: str, gap: str = " ") -> Table:
    """Returns a table with one row per arm; `gap` stands between a mean and its interval."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    several, is_narrow = len(found) > 1, gap != " "
    table.add_column("arm", overflow="fold")
    table.add_column("seeds", justify="right", no_wrap=is_narrow)
    for heading in ("score", *((f"minus{gap}{first}", f"P(better{gap}than {first})") if several else ())):
        table.add_column(heading, no_wrap=is_narrow)
    for heading in (f"time{gap}per run", f"decisions{gap}per run"):
        table.add_column(heading, justify="right", no_wrap=is_narrow)
    places = even(row["score"] for row in found)
    minus = even(row["difference"] for row in found)
    for row in found:
        cells: list[str | Text] = [Text(row["arm"], style="bold"), f"{row['seeds']}", cell(row["score"], places, gap)]
        if row["failed"]:
            cells[1] = Text(f"{row['seeds']}{gap}({row['failed']} failed)", style="red")
        if several:
            cells += [coloured(row["difference"], minus, gap), share(row["improvement"], gap)]
        cells += [duration(row["seconds"]) if row["seconds"] is not None else ""]
        cells += [f"{row['decisions']:,.0f}" if row["decisions"] is not None else ""]
        table.add_row(*cells)
    return table


def aggregate_table(found: Sequence[Mapping[str, Any]], first: str, num_tasks: int, gap: str = " ") -> Table:
    """Returns the table over all tasks; `gap` stands between a mean and its interval."""
    table = Table(title=f"over {num_tasks} tasks", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("arm", "seeds", f"interquartile mean{gap}(share of the range)", f"P(better than {first})"):
        table.add_column(heading)
    places = even(row["iqm"] for row in found)
    for row in found:
        middle = cell(row["iqm"], places, gap) if row["iqm"] else Text("scales differ", style="dim")
        table.add_row(Text(row["arm"], style="bold"), str(row["seeds"]), middle, share(row["improvement"], gap))
    return table


def share(estimate: Mapping[str, Any] | None, gap: str = " ") -> Text:
    """Returns a probability of improvement, with its bootstrap interval only if there are enough seeds for one."""
    if estimate is not None and estimate["count"] < FEWEST_PAIRS:
        return Text(number(estimate["value"]), style="bold")
    return cell(estimate, None, gap)


def even(column: Iterable[Mapping[str, Any] | None]) -> int | None:
    """Returns the decimals that all estimates of a column have."""
    return even_decimals(Estimate(**one) for one in column if one is not None and one["count"] > 1)


def cell(
    estimate: Mapping[str, Any] | None, decimals: int | None = None, gap: str = " ", *, signed: bool = False
) -> Text:
    """Returns an estimate as '0.42 [0.37, 0.47]', with the decimals of its column."""
    if estimate is None or not estimate["count"]:
        return Text("")
    value, low, high = digits(Estimate(**estimate), signed=signed, decimals=decimals)
    text = Text(value, style="bold")
    return text.append(f"{gap}[{low}, {high}]", style="dim not bold") if estimate["count"] > 1 else text


def coloured(estimate: Mapping[str, Any] | None, decimals: int | None = None, gap: str = " ") -> Text:
    """Returns a difference, green or red if its interval excludes zero."""
    text = cell(estimate, decimals, gap, signed=True)
    if estimate and estimate["count"] > 1 and (estimate["low"] > 0 or estimate["high"] < 0):
        text.stylize("green" if estimate["low"] > 0 else "red")
    return text


# ---------------------------------------------------------------------------------------------------- files
def save(outcome: Outcome, ablation: Mapping[str, Any] | None = None) -> list[Path]:
    """Writes the learning curves of each task as .png and .svg, and the page; returns their paths."""
    folder, paths = outcome.setup.folder, []
    for task in outcome.setup.tasks:
        series = [
            curve(arm.name, "evaluation", [list(one.curves) for one in outcome.of(arm.name, task)])
            for arm in outcome.setup.arms
            if outcome.of(arm.name, task)
        ]
        for kind in ("png", "svg") if series else ():
            name = "curves" if len(outcome.setup.tasks) == 1 else f"curves-{plain_name(task)}"
            try:
                paths.append(learning_curve(folder / f"{name}.{kind}", series, title=task, subtitle="held-out score"))
            except AssayError:  # without matplotlib the page still has the curves
                break
    if outcome.results:
        folders = {job.folder.resolve() for job in outcome.asked}
        paths.append(page.write(page.gather([folder], only=folders, ablation=ablation), folder / "report.html"))
    return paths


MOST_RUNS = 40
"""Runs from which the terminal shows arms only; the page lists all."""


def print_report(data: Mapping[str, Any], out: Console) -> None:
    """Prints a page's data: the answer, its runs if they are few, a row for each arm and task, failed and missing runs.
    """
    if data["comparison"]["answer"]:
        out.print(Text(data["comparison"]["answer"], style="bold"))
    if len(data["runs"]) <= MOST_RUNS:
        out.print(run_table(data))
        out.print()
    rows = data["comparison"]["rows"]
    for task in data["tasks"]:
        level = data["comparison"]["levels"].get(task)
        unit = data["comparison"]["units"][task] + ("" if level is None else f", after {level:,.0f} decisions")
        mine = [row for row in rows if row["task"] == task]
        out.print(fitted(out, partial(arm_table, mine, f"{task}: {unit}")))
    for row in rows:
        for one in row["failed"]:
            words = f"failed   {row['arm']} on {row['task']}, seed {one['seed']}: {one['reason']}"
            out.print(Text(words, style="red"))
        if row["missing"]:
            seeds = ", ".join(map(str, row["missing"]))
            out.print(Text(f"missing  {row['arm']} on {row['task']}, seed {seeds}: there is no run", style="yellow"))


def run_table(data: Mapping[str, Any]) -> Table:
    """Returns a table with one row per run of a page's data."""
    table = Table(box=None, pad_edge=False)
    for heading in ("arm", "task", "seed", "steps", "held-out score", "state"):
        table.add_column(heading, overflow="fold")
    for run in data["runs"]:
        score = "" if run["score"] is None else number(run["score"])
        cells = (run["arm"], run["task"], run["seed"], f"{run['step']}/{run['steps']}", score, run["state"])
        table.add_row(*(Text(str(cell)) for cell in cells))
    return table


def arm_table(found: Sequence[Mapping[str, Any]], title: str, gap: str = " ") -> Table:
    """Returns a table with one row per arm of a task, from the rows of a page's data; `gap` stands before intervals."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    several = len(found) > 1
    first = found[0]["over"] if found else ""
    headings = ["arm", "finished", "score", *([f"minus {first}"] if several else []), "steps", "decisions per run"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("arm", "score") or "minus" in heading else "right")
    scores = [{"value": row["estimate"], "low": row["low"], "high": row["high"]} for row in found]
    places, apart = even_ends(scores), even_ends([row["difference"] or {} for row in found])
    for row, one in zip(found, scores, strict=True):
        score = Text(interval_words(one, places).replace(" [", f"{gap}[") or "no evaluation yet")
        score.append(" so far" if row["so_far"] else "", style="yellow")
        cells: list[str | Text] = [Text(row["arm"], style="bold"), f"{row['finished']} of {row['seeds']}", score]
        if several:
            cells.append(Text(interval_words(row["difference"] or {}, apart, signed=True).replace(" [", f"{gap}[")))
        cells += ["" if row[name] is None else f"{row[name]:,.0f}" for name in ("steps", "decisions")]
        table.add_row(*cells)
    return table


def show_search(found: Tuned, console: Console) -> None:
    """Prints the trials, best first, then the score of the chosen settings on fresh seeds."""
    names = list(found.settings)
    table = Table(
        title="trials on the tuning seeds", title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    for heading in ("trial", "score", "share of budget", *names):
        table.add_column(heading, justify="right")
    for one in sorted(found.trials, key=lambda one: (one.fraction, one.score), reverse=True):
        cells = (number(one.score), f"{one.fraction:.0%}", *(shown_setting(one.settings[name]) for name in names))
        table.add_row(str(one.number), *cells, style="bold" if one.settings == found.settings else "")
    console.print(table)
    chosen = ", ".join(f"{name}={shown_setting(value)}" for name, value in found.settings.items())
    console.print(f"chosen    {chosen}", markup=False)
    console.print(f"reported  {found.reported} on {found.reported.count} fresh seeds", markup=False)
    console.print(f"optimism  {found.optimism}: tuning score minus reported score", markup=False)
    console.print(f"budget    {found.tuning_runs} tuning runs, {found.tuning_steps:,} steps", markup=False)


def shown_setting(value: Any) -> str:
    """Returns a setting as text for a table."""
    return number(value) if isinstance(value, float) else str(value)
