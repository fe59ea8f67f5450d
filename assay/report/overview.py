"""What `assay list` shows first: how many methods there are, the few to start with, and the families.

It is made from the texts of methods, claims and records; nothing of it needs torch.
"""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from assay.claims.headline_texts import STUDIED, WORST, headline_verdict
from assay.recipes.families import FAMILIES
from assay.report.console import console
from assay.runs import method_index
from assay.runs.method_index import Entry, stem_of

TASKS = ("countdown", "addition", "sorting", "bandit", "cartpole", "pendulum")
"""Some of the built-in tasks."""
MORE_TASKS = "any Gymnasium id (HalfCheetah-v5), files of prompts or pairs (.jsonl, .parquet), your own (FILE.py:NAME)"
WORDS = {"holds": "hold", "fails": "fail", "inconclusive": "open"}
"""Verdicts of several methods."""
COLOURS = {"holds": "green", "fails": "red", "inconclusive": "yellow"}


def starts() -> list[Entry]:
    """Returns the methods to start with by family, first those that most others are derived from."""
    entries = method_index.entries().values()
    derived = Counter(entry.base for entry in entries)
    found = [entry for entry in entries if entry.start_for]
    return sorted(found, key=lambda one: (FAMILIES.index(one.family), -derived[stem_of(one.key)], one.key))


def print_overview() -> None:
    """Prints the overview: on 80 columns and more it fits one screen."""
    out, entries = console(), list(method_index.entries().values())
    known = [entry for entry in entries if entry.family in FAMILIES]
    families = [family for family in FAMILIES if any(entry.family == family for entry in known)]
    num = sum(not entry.studied for entry in entries)
    title = Text.assemble((f"{num} methods in {len(families)} families.", "bold"), " Start with one of these:")
    out.print(title)
    table = grid()
    for entry in starts():
        table.add_row(Text(f"  {entry.key}", style="bold cyan"), Text(entry.start_for))
    out.print(table)
    out.print()
    words = " shows a family. hold, fail, open: what papers promise, measured here (95 % intervals)"
    out.print(Text.assemble(("assay list FAMILY", "bold"), words))
    out.print(families_table(out, {family: [one for one in known if one.family == family] for family in families}))
    for entry in entries:
        if entry not in known:
            out.print(Text(f"  {entry.key}: {entry.file.name} has no METHOD that can be read", style="red"))
    out.print()
    out.print(Text.assemble(("tasks  ", "bold"), f"{', '.join(TASKS)}, ...; {MORE_TASKS}"))
    further = ("assay show grpo", " explains a method, "), ("assay list --all", " has every method and task")
    out.print(Text.assemble(*(one for word, text in further for one in ((word, "bold"), text))))


def grid() -> Table:
    """Returns a table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)


def families_table(out: Console, families: dict[str, list[Entry]]) -> Table:
    """Returns a table of families: their name, how many methods, what became of their papers' promises."""
    table = grid()
    for family, entries in families.items():
        counts = Counter(headline_verdict(entry.key) for entry in entries)
        words = [(f"{counts[word]} {WORDS[word]}", COLOURS[word]) for word in reversed(WORST) if counts[word]]
        words += [(f"{counts[STUDIED]} more {STUDIED}", "dim")] if counts[STUDIED] else []
        told = Text(", ").join(Text(text, style=style) for text, style in words)
        examples = Text(", ".join(entry.key for entry in entries), style="dim", no_wrap=True, overflow="ellipsis")
        num = sum(not entry.studied for entry in entries)
        row = [Text(f"  {family}"), Text(f"{num:>3}"), told]
        table.add_row(*row, *([examples] if out.width >= 100 else []))
    return table
