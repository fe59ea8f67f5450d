"""`assay ablate`: which parts carry the difference between two methods."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.cli.options import opened_pool, parallel_runs, plan_arguments
from assay.core import store
from assay.core.errors import AssayError
from assay.report import comparison as comparison_tables
from assay.report import tables
from assay.runs import ablation, comparison
from assay.runs.plan import make_plan
from assay.runs.plot import interval_bars


def ablate(options: argparse.Namespace) -> int:
    """`assay ablate A B --task T`: exit code 1 if a run failed."""
    chosen = plan_arguments(options)
    first, second = (make_plan(name, options.task, **chosen).recipe for name in (options.first, options.second))
    found = ablation.factors_of(first, second)
    arms = ablation.arms_of(first, second, found)
    out = tables.console()
    if options.dry:
        out.print(factor_table(first.name, second.name, found))
        out.print(f"{len(arms)} arms: {', '.join(arm.name for arm in arms.values())}", markup=False)
        return 0
    name = f"ablate-{first.name}-{second.name}-{comparison.plain_name(options.task)}"
    folder = options.out or Path("runs") / name
    kept = {name: value for name, value in chosen.items() if name not in ("settings", "preset")}  # the arms have them
    steps = second.steps if options.steps is None and options.decisions is None else options.steps
    setup = comparison.Setup(
        tuple(arms.values()),
        (options.task,),
        folder,
        options.seeds,
        kept | {"steps": steps},
        options.budget,
        parallel_runs(options.jobs, chosen),
    )
    with comparison_tables.Board(setup, out, quiet=options.json) as board, opened_pool(options, folder) as pool:
        outcome = comparison.run(replace(setup, pool=pool), board)
    facts = {"first": first.name, "second": second.name, "task": options.task, "steps": steps}
    facts |= ablation.facts(found, arms, outcome)
    store.write_json(folder / "ablation.json", facts)
    paths = [*figures(facts, folder), *comparison_tables.save(outcome, facts)]
    if options.json:
        print(json.dumps({"folder": str(folder)} | facts, indent=2))
        return int(bool(outcome.failures))
    out.print(factor_table(first.name, second.name, found))
    show(facts, out)
    for path in [*paths, folder]:
        out.print(f"{'folder' if path == folder else path.suffix[1:]:7} {path}", markup=False)
    return int(bool(outcome.failures))


def figures(facts: dict[str, Any], folder: Path) -> list[Path]:
    """Draws the shares into the folder; nothing without matplotlib."""
    named = [(row["short"], row["share"]) for row in facts["rows"]] + [("all", facts["total"])]
    rows = [(name, one["value"], one["low"], one["high"]) for name, one in named]
    title = f"{facts['first']} - {facts['second']} on {facts['task']}"
    try:
        return [interval_bars(folder / "shares.png", rows, title=title, subtitle="share of the difference in score")]
    except AssayError:
        return []


def factor_table(first: str, second: str, found: list[ablation.Factor]) -> Table:
    """Returns a table of what is swapped."""
    table = Table(title=f"{first} against {second}", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("part", first, second):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(Text(one.short, style="bold"), Text(one.first), Text(one.second))
    return table


def show(facts: dict[str, Any], out: Console) -> None:
    """Prints the shares, the total, and how they are to be read."""
    first, second = facts["first"], facts["second"]
    title = f"{first} - {second} on {facts['task']}: held-out score, {len(facts['seeds'])} paired seeds"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("part", "share", f"added to {second}", f"removed from {first}", "interaction"):
        table.add_column(heading)
    for row in facts["rows"]:
        numbers = (comparison_tables.coloured(row[name]) for name in ("share", "added", "removed", "interaction"))
        needs = f" (with {', '.join(row['needs'])})" if "needs" in row else ""
        table.add_row(Text(row["short"], style="bold").append(needs, style="not bold dim"), *numbers)
    table.add_row(Text("all", style="bold"), comparison_tables.coloured(facts["total"]))
    out.print(table)
    how = "over all orders of adding the parts" if facts["complete"] else "of added and removed"
    out.print(f"share: mean {how}; interaction: removed - added; intervals 95 %", style="dim")
