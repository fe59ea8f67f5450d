"""What the command line prints: lists, one method, results, comparisons, laws and claims."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from assay.app.report import claims
from assay.core.errors import AssayError
from assay.core.settings import describe, settings
from assay.evidence.intervals import Series
from assay.recipes.defaults import CONTROL, LANGUAGE
from assay.runs import catalogue
from assay.runs.plot import curve, learning_curve
from assay.runs.terminal import Curve, before_after

if TYPE_CHECKING:
    from assay.proof.laws.file import Report


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
                "world": "both" if {LANGUAGE, CONTROL} <= set(method.worlds) else method.worlds[0].name,
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
    table = Table(
        title=f"{len(rows)} methods", title_justify="left", header_style="bold", box=None, pad_edge=False, expand=True
    )
    for heading, ratio in (("method", None), ("world", None), ("what it is", 3), ("verdict", None), ("measured", 2)):
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=ratio)
    for row in rows:
        verdict = row["verdict"]
        measured = [claim for claim in verdict["claims"] if claim["kind"] == "measured"] if verdict else []
        table.add_row(
            Text(row["name"], style="bold"),
            row["world"],
            Text(row["summary"]),
            claims.word(verdict["verdict"]) if verdict else Text("not measured", style="dim"),
            Text("; ".join(f"{claims.found(claim)}: {claim['name']}" for claim in measured), style="dim"),
        )
    out.print(table)
    more = "any Gymnasium id (HalfCheetah-v5), any .jsonl file of prompts or pairs, reasoning-gym:NAME"
    out.print(f"\n[bold]tasks[/]  {', '.join(families(tasks))}, {more}")
    out.print("[dim]assay show METHOD explains one; assay train METHOD --task TASK trains it[/]")


def families(tasks: Sequence[str]) -> list[str]:
    """Task names, levels and variants with their stem: sorting, sorting-3, sorting-4 -> sorting (-3 to -4); stag-hunt,
    stag-hunt-tokens -> stag-hunt (-tokens).
    """
    endings: dict[str, list[str]] = {}
    for task in tasks:
        stem = next((name for name in endings if task.startswith(f"{name}-")), None)
        if stem is None:
            endings[task] = []
        else:
            endings[stem].append(task[len(stem) :])
    return [f"{name} ({together(found)})" if found else name for name, found in endings.items()]


def together(endings: Sequence[str]) -> str:
    """-3, -4, -5 -> -3 to -5; the others one by one."""
    levels = [ending for ending in endings if ending[1:].isdigit()]
    others = [ending for ending in endings if not ending[1:].isdigit()]
    span = [f"{levels[0]} to {levels[-1]}"] if len(levels) > 1 else levels
    return ", ".join([*span, *others])


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


def flowing(text: str) -> str:
    """The text with each paragraph in one line, for a screen of any width; formulas and lists stay as they are."""
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    kept = [any(line.startswith((" ", "- ")) for line in block) for block in blocks]
    return "\n\n".join(("\n" if keep else " ").join(block) for block, keep in zip(blocks, kept, strict=True))


def print_method(facts: Mapping[str, Any]) -> None:
    """One method for people."""
    out = console()
    title = f"[bold]{facts['name']}[/]  {facts['paper']}"
    out.print(Panel(Text(flowing(facts["text"])), title=title, title_align="left", expand=False))
    out.print(f"[bold]worlds[/]  {', '.join(facts['worlds'])}")
    out.print(f"[bold]parts[/]  {', '.join(facts['parts'])}")
    out.print("[bold]settings[/]")
    for path, value in facts["settings"].items():
        if value not in (None, [], {}):
            out.print(f"  {path} = {json.dumps(value)}", markup=False)
    out.print("[bold]departures from the paper[/]" + ("" if facts["departs"] else "  none"))
    for line in facts["departs"]:
        out.print(f"  - {line}", markup=False)
    if facts["verdict"]:
        out.print(claims.verdict_table(facts["verdict"]))
        return
    out.print("[bold]claims[/]  not measured yet")
    for claim in facts["claims"]:
        out.print(f"  - {claim['name']} ({claim['kind']})", markup=False)


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
        "certificate": None if run.certificate is None else vars(run.certificate),
    }


def print_results(runs: Sequence[Any], base: Path) -> None:
    """Before and after with intervals, the learning curve, and where everything is."""
    out = console()
    title = f"{runs[0].recipe.name} on {runs[0].task.name}: held-out score"
    names = [run.folder.name.replace("-", " ") for run in runs] if len(runs) > 1 else ["held-out score"]
    out.print(before_after([replace(run.change, name=name) for run, name in zip(runs, names, strict=True)], title))
    series = [curve(runs[0].recipe.name, "evaluation", [run.curves for run in runs])]
    out.print(Curve(series, x_label="step"))
    for run, name in zip(runs, names, strict=True):
        if run.certificate is not None:
            verdict = ("certified", "bold green") if run.certificate.holds else ("NO SOLUTION", "bold red")
            whose = f" ({name})" if len(runs) > 1 else ""
            out.print(Text.assemble(verdict, f"{whose}: {run.certificate.statement}"))
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


# ---------------------------------------------------------------------------------------------------- laws
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
