"""Prints offline datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from assay.report.console import console

NUMBERS = ("rows", "episodes", "terminal", "cut", "least", "10%", "median", "90%", "most", "mean", "TQ", "SACo")


def print_datasets(found: Sequence[Mapping[str, Any]]) -> None:
    """Prints a line per dataset: sizes, how episodes end, quantiles of their returns, the hash; then its origin."""
    table = Table(title="offline datasets", title_justify="left", header_style="bold", box=None, pad_edge=False)
    table.add_column("file", no_wrap=True, overflow="ellipsis", max_width=30)
    for heading in NUMBERS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("hash", no_wrap=True)
    for one in found:
        spread = [one["returns"][share] for share in ("0", "0.1", "0.5", "0.9", "1")]
        numbers = [*spread, one["mean_return"]]
        counts = [f"{one[name]:,}" for name in ("rows", "episodes", "terminal", "cut")]
        name = Text(Path(one["file"]).stem, style="bold")
        measures = ["-" if one[name] is None else f"{one[name]:.2f}" for name in ("tq", "saco")]
        table.add_row(name, *counts, *(f"{number:.4g}" for number in numbers), *measures, one["hash"])
    out = console()
    out.print(table)
    for line in meaning(found):
        out.print(line, markup=False)
    for one in found:
        out.print(f"{one['file']}: {who(one)}", style="dim", markup=False)
        if cloned := one.get("imitation"):
            out.print(f"  {imitation_of(cloned)}", markup=False)
        if wrong := ", ".join(f"{name} {share:.2%}" for name, share in one.get("flaws", {}).items()):
            out.print(f"  looks corrupted: {wrong}", markup=False)


def meaning(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what TQ and SACo are relative to here, a line each."""
    ends, reference = found[0]["ends"], found[0]["reference"]
    low, high = f"{ends['worst_is']} ({ends['worst']:.4g})", f"{ends['best_is']} ({ends['best']:.4g})"
    quality = f"TQ    mean return, 0 as {low}, 1 as {high}"
    if found[0]["tq"] is None:
        quality = f"TQ    is not known: {low} scored no less than {high}. Name the task: --task"
    unique = ", ".join(f"{one['unique_pairs']:,.0f} in {Path(one['file']).stem}" for one in found)
    of = f"relative to {reference}" if reference else "relative to the file with the most"
    if found[0]["saco"] is None:
        of = "name a dataset to compare with: --reference FILE"
    return [quality, f"SACo  different pairs of state and action ({unique}), {of}"]


def imitation_of(found: Mapping[str, float]) -> str:
    """Returns what a dataset tells about cloning it, in words."""
    radius, near = f"{found['radius']:.3g}", f"{found['neighbours']:.3g}"
    return (
        f"for cloning: action variance {found['action_variance']:.4g} (low is better), transition entropy "
        f"{found['transition_entropy']:.4g} (high is better), state similarity {found['state_similarity']:.3g}, state "
        f"entropy {found['state_entropy']:.4g}, horizon {found['horizon']:.4g}; of {near} neighbours a row, within "
        f"{radius} deviations"
    )


def who(one: Mapping[str, Any]) -> str:
    """Returns the origin of a dataset, as far as it is known."""
    about, shapes = one["about"], f"observations {one['observation']}, actions {one['action']}"
    words = [str(about[name]) for name in ("kind", "made") if isinstance(about.get(name), str)][:1]
    if "task" in about:
        words.append(f"of {about['task']}")
    if "at" in about:
        at = about["at"]
        words.append(f"by {at['agent']} at step {at['step']}, score {at['score']:.4g} ({at['share']:.0%} of its end)")
    words += [f"altered by {one['rule']}" for one in about.get("altered", [])]
    return ", ".join([*words, shapes])
