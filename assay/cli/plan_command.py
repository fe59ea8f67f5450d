"""`assay plan`: where the models of an update live on a number of GPUs, with seconds and memory of each plan."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from rich.table import Table

from assay.report import tables
from assay.runs.placements import Mesh
from assay.runs.planner import BESIDE, Planned, Planner, make_planner, plan_facts


def plan(options: argparse.Namespace) -> int:
    """`assay plan`."""
    planner = make_planner(
        options.name,
        options.model,
        options.gpus,
        gpu_memory=options.gpu_memory,
        rows=options.rows,
        prompt=options.prompt_tokens,
        answer=options.answer_tokens,
        times=options.step_times,
    )
    plans = planner.plans()
    if options.json:
        print(json.dumps(plan_facts(planner, plans), indent=2))
        return 0
    out = tables.console()
    out.print(plan_table(plans, f"{options.name}, {options.model}, {options.gpus} GPUs: one update"))
    for line in sentences(planner, plans, options):
        out.print(line, markup=False, soft_wrap=True)
    return 0


def plan_table(plans: Sequence[Planned], title: str) -> Table:
    """Returns the table of plans: seconds, gain over all together, memory, and the GPUs of each call."""
    table = Table(title=title, title_justify="left")
    for name in ("plan", "seconds", "faster", "GB a GPU", "GPUs of each call"):
        table.add_column(name, justify="left" if name in ("plan", "GPUs of each call") else "right")
    for one in plans:
        where = "; ".join(f"{name}: {describe_mesh(mesh)}" for name, mesh in one.plan.items())
        gain = f"{plans[0].seconds / one.seconds:.2f}x"
        table.add_row(one.name, f"{one.seconds:.3g}", gain, f"{one.memory / 1e9:.0f}", where)
    return table


def describe_mesh(mesh: Mesh) -> str:
    """Returns the devices of a mesh in a few characters: 0-3."""
    return str(min(mesh)) if len(mesh) == 1 else f"{min(mesh)}-{max(mesh)}"


def sentences(planner: Planner, plans: Sequence[Planned], options: argparse.Namespace) -> list[str]:
    """Returns what the numbers rest on, and which of the plans `assay train` runs."""
    guessed = [call.name for call in planner.graph.calls if call.name not in planner.measured]
    lines = [f"measured: {', '.join(planner.measured) or 'nothing'}"]
    if guessed:
        lines.append(f"estimated from the parameters, to rank plans and not to predict a cluster: {', '.join(guessed)}")
    whole = f"--ranks {options.gpus} --shards {options.gpus} --sharded"
    lines.append(f"'assay train {options.name}' runs all together ({whole})")
    if any(one.name == BESIDE for one in plans):
        lines.append("and sampling beside training (--gatherers N --lag 1, which does not choose their GPUs)")
    return [*lines, "a mesh for each model or call is planned, not run: a run keeps all models on all of its ranks"]
