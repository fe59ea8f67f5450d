"""What the command line prints: lists, one method, results, comparisons, laws and claims."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from assay import catalogue
from assay.claims import Finding, Measured
from assay.evidence.intervals import Series, difference_interval, mean_interval
from assay.recipe import describe, settings
from assay.report import folder as run_folder
from assay.report.plot import curve, learning_curve
from assay.report.terminal import Curve, before_after
from assay.types import AssayError
from assay.worlds import EVERY

if TYPE_CHECKING:
    from assay.checks.file import Report


def console() -> Console:
    """Where tables go; wide enough for a file."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=120)


# ---------------------------------------------------------------------------------------------------- methods
def part_names(value: Any) -> list[str]:
    """Class names of the parts of a recipe, each once."""
    found: list[str] = []

    def walk(node: Any) -> None:
        if isinstance(node, Mapping):
            if "part" in node and node["part"] not in ("Recipe", "Stage"):
                found.append(node["part"])
            for item in node.values():
                walk(item)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(describe(value))
    return list(dict.fromkeys(found))


def method_rows() -> list[dict[str, Any]]:
    """One row a method."""
    rows = []
    for name, method in catalogue.methods().items():
        rows.append(
            {
                "name": name,
                "paper": method.paper,
                "world": "both" if method.worlds == EVERY else method.worlds[0].name,
                "worlds": [world.name for world in method.worlds],
                "summary": catalogue.method_text(name).splitlines()[0].partition(": ")[2],
                "task": method.home,
                "parts": part_names(method.recipe(method.worlds[0])),
                "claims": [claim.name for claim in method.claims],
                "verdict": catalogue.verdict(name),
            }
        )
    return rows


def print_methods(rows: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> None:
    """The list of methods and tasks."""
    out = console()
    table = Table(title=f"{len(rows)} methods", title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading in ("method", "world", "what it is", "paper", "exact claims"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["world"], row["summary"], row["paper"], str(len(row["claims"])))
    out.print(table)
    out.print(
        f"\n[bold]tasks[/]  {', '.join(tasks)}, any Gymnasium id (HalfCheetah-v5), any .jsonl file of prompts or pairs"
    )
    out.print("[dim]assay show METHOD explains one; assay train METHOD --task TASK trains it[/]")


def method_facts(name: str) -> dict[str, Any]:
    """Everything about one method as JSON."""
    key, method = catalogue.find_method(name)
    recipe = method.recipe(method.worlds[0])
    return {
        "name": key,
        "paper": method.paper,
        "worlds": [world.name for world in method.worlds],
        "text": catalogue.method_text(key),
        "departs": list(method.departs),
        "parts": part_names(recipe),
        "recipe": describe(recipe),
        "settings": {".".join(path): describe(value) for path, value in settings(recipe).items()},
        "claims": [{"name": claim.name, "kind": type(claim).__name__.lower()} for claim in method.claims],
        "verdict": catalogue.verdict(key),
    }


def print_method(facts: Mapping[str, Any]) -> None:
    """One method for people."""
    out = console()
    out.print(
        Panel(
            facts["text"].strip(), title=f"[bold]{facts['name']}[/]  {facts['paper']}", title_align="left", expand=False
        )
    )
    out.print(f"[bold]worlds[/]  {', '.join(facts['worlds'])}")
    out.print("[bold]parts and settings[/]")
    for path, value in facts["settings"].items():
        out.print(f"  {path} = {json.dumps(value)}", markup=False)
    for title, lines in (
        ("departures from the paper", facts["departs"]),
        ("claims", [f"{c['name']} ({c['kind']})" for c in facts["claims"]]),
    ):
        out.print(f"[bold]{title}[/]" + ("" if lines else "  none"))
        for line in lines:
            out.print(f"  - {line}", markup=False)
    verdict = facts["verdict"]
    out.print("[bold]verdict[/]  " + (f"{verdict['verdict']}" if verdict else "not measured yet"))


# ---------------------------------------------------------------------------------------------------- results
def run_facts(run: Any) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "folder": str(run.folder),
        "method": run.recipe.name,
        "task": run.task.name,
        "before": vars(run.before),
        "after": vars(run.after),
        "alarms": [alarm.message for alarm in run.alarms],
    }


def print_results(runs: Sequence[Any], base: Path) -> None:
    """Before and after with intervals, the learning curve, and where everything is."""
    out = console()
    title = f"{runs[0].recipe.name} on {runs[0].task.name}: held-out score"
    names = [run.folder.name.replace("-", " ") for run in runs] if len(runs) > 1 else ["held-out score"]
    out.print(before_after([replace(run.change, name=name) for run, name in zip(runs, names, strict=True)], title))
    series = [curve(runs[0].recipe.name, "evaluation", [run.curves for run in runs])]
    out.print(Curve(series, title=title, x_label="step"))
    out.print(f"curve       {picture_of(runs, base, series)}\nrun folder  {base}", markup=False)


def picture_of(runs: Sequence[Any], base: Path, series: Sequence[Series]) -> str:
    """Where the picture is; several seeds get one of their own with a band."""
    path = base / "learning_curve.png"
    if len(runs) == 1 and path.is_file():
        return str(path)
    try:
        title = f"{runs[0].recipe.name} on {runs[0].task.name}"
        learning_curve(path, series, title=title, subtitle="held-out score")
    except AssayError as error:
        return f"not drawn: {error}"
    return str(path)


def print_comparison(arms: Mapping[str, Sequence[Any]], base: Path, as_json: bool) -> int:
    """One row an arm: final score over seeds with its interval, and the paired difference to the first arm."""
    rows: list[dict[str, Any]] = []
    finals = {name: np.asarray([run.scores_after.mean() for run in runs]) for name, runs in arms.items()}
    first = next(iter(finals))
    for name, values in finals.items():
        gap = difference_interval(values, finals[first], paired=True) if name != first and len(values) > 1 else None
        rows.append(
            {
                "method": name,
                "seeds": len(values),
                "score": vars(mean_interval(values)),
                "minus_first": vars(gap) if gap else None,
            }
        )
    if as_json:
        print(json.dumps({"folder": str(base), "arms": rows}, indent=2))
        return 0
    table = Table(title=f"compared with {first}, paired seeds", title_justify="left")
    for heading in ("method", "seeds", "final score", f"minus {first}"):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            row["method"],
            str(row["seeds"]),
            shown(row["score"]),
            shown(row["minus_first"]) if row["minus_first"] else "",
        )
    out = console()
    out.print(table)
    out.print(f"[bold]runs[/]  {base}")
    return 0


def shown(estimate: Mapping[str, float]) -> str:
    """'0.42 [0.37, 0.47]' without square brackets being read as markup."""
    return f"{estimate['value']:.3g} \\[{estimate['low']:.3g}, {estimate['high']:.3g}]"


def print_report(folders: Iterable[Path], as_json: bool) -> int:
    """One row a run folder: last evaluation, steps, alarms."""
    rows = []
    for path in folders:
        metrics = run_folder.read_metrics(path)
        evaluations = [row["evaluation"] for row in metrics if row.get("evaluation") is not None]
        if not evaluations:
            raise AssayError(f"{path} has no evaluation yet; give a run folder that 'assay train' wrote")
        alarms = sum(len(row.get("alarms", ())) for row in metrics)
        rows.append(
            {
                "folder": str(path),
                "steps": metrics[-1]["step"],
                "first": evaluations[0],
                "last": evaluations[-1],
                "alarms": alarms,
            }
        )
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    table = Table()
    for heading in ("folder", "steps", "first score", "last score", "alarms"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(
            str(row["folder"]), str(row["steps"]), f"{row['first']:.3g}", f"{row['last']:.3g}", str(row["alarms"])
        )
    console().print(table)
    return 0


# ---------------------------------------------------------------------------------------------------- laws and claims
def print_claims(name: str, findings: Sequence[Finding], measured: Sequence[Measured]) -> None:
    """Exact claims as they came out, measured ones as planned."""
    out = console()
    if not findings and not measured:
        out.print(f"{name} states no claims yet")
    for finding in findings:
        mark = "[green]holds[/]" if finding.holds else "[red]fails[/]"
        out.print(f"{mark}  {finding.claim}: {finding.value:.3g}, expected {finding.expected}")
    for claim in measured:
        out.print(
            f"[yellow]not run[/]  {claim.name} (measured: {claim.seeds} paired seeds on {claim.task}, about "
            f"{claim.minutes:g} minutes)"
        )


def print_checks(reports: Sequence[Report], as_json: bool) -> int:
    """What the laws found on each object of a file: which broke, on what input, and which held; 1 where one broke."""
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
