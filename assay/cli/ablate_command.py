"""`assay ablate`: which parts carry the difference between two methods."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
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
from assay.runs.plot import interval_bars


def ablate(options: argparse.Namespace) -> int:
    """`assay ablate A B --task T`: exit code 1 if a run failed."""
    chosen = plan_arguments(options)
    jobs = parallel_runs(options.jobs, chosen)
    ends = (options.first, options.second)
    planned = ablation.planned(*ends, options.task, chosen, options.seeds, options.out, options.budget, jobs)
    out, found, setup = tables.console(), planned.factors, planned.setup
    if options.dry:
        out.print(factor_table(planned.first, planned.second, found))
        out.print(f"{len(planned.arms)} arms: {', '.join(arm.name for arm in planned.arms.values())}", markup=False)
        return 0
    folder = setup.folder
    with comparison_tables.Board(setup, out, quiet=options.json) as board, opened_pool(options, folder) as pool:
        outcome = comparison.run(replace(setup, pool=pool), board)
    if not options.json:
        comparison_tables.show_failures(outcome.failures, out)
    facts = ablation.Ablation(planned, outcome).facts
    store.write_json(folder / "ablation.json", facts)
    paths = [*figures(facts, folder), *comparison_tables.save(outcome, facts)]
    if options.json:
        print(json.dumps({"folder": str(folder)} | facts, indent=2))
        return int(bool(outcome.failures))
    out.print(factor_table(planned.first, planned.second, found))
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


COLUMNS = ("share", "added", "removed", "interaction")
"""Columns of estimates."""


def show(facts: dict[str, Any], out: Console) -> None:
    """Prints the shares, the total, and how they are to be read."""
    out.print(comparison_tables.fitted(out, partial(share_table, facts)))
    how = "over all orders of adding the parts" if facts["complete"] else "of added and removed"
    out.print(f"share: mean {how}; interaction: removed - added; intervals 95 %", style="dim")


def share_table(facts: dict[str, Any], gap: str = " ") -> Table:
    """Returns a table with one row per part; `gap` stands between a mean and its interval."""
    first, second = facts["first"], facts["second"]
    title = f"{first} - {second} on {facts['task']}: held-out score, {len(facts['seeds'])} paired seeds"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("part", "share", f"added{gap}to {second}", f"removed{gap}from {first}", "interaction"):
        table.add_column(heading, no_wrap=gap != " " and heading != "part")
    columns = {name: [row[name] for row in facts["rows"]] for name in COLUMNS}
    places = {name: comparison_tables.even(found) for name, found in columns.items()}
    for row in facts["rows"]:
        numbers = (comparison_tables.coloured(row[name], places[name], gap) for name in COLUMNS)
        needs = f" (with {', '.join(row['needs'])})" if "needs" in row else ""
        table.add_row(Text(row["short"], style="bold").append(needs, style="not bold dim"), *numbers)
    table.add_row(Text("all", style="bold"), comparison_tables.coloured(facts["total"], places["share"], gap))
    return table
