"""Prints methods: the table of assay list, the page of assay show, the differences of assay diff."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from assay.claims import stamps
from assay.claims.headline import abouts, headline_entries
from assay.claims.headline_texts import NO_HEADLINE
from assay.core.difference import ABSENT, Change, brief
from assay.report import claims, sheet
from assay.report.console import console
from assay.report.methods import LETTERS, LETTERS_IN_WORDS, broken_methods, words_of
from assay.report.sheet import Block, bullets, cell, line, note

WIDE = 120
"""Terminal width from which the list is a table; on a narrower one the summary is below the method's name."""


def print_methods(rows: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> None:
    """Prints the methods by family, and the tasks."""
    out = console()
    is_wide = out.width >= WIDE
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("method", "kinds", "verdict", "mutants", "what it is"):
        table.add_column(heading, no_wrap=heading != "what it is")
    for place, row in enumerate(rows):
        is_first = place == 0 or row["family"] != rows[place - 1]["family"]
        letters = "".join(LETTERS[kind] for kind in LETTERS if kind in row["kinds"])
        if is_wide:
            if is_first:
                table.add_row(Text(row["family"], style="cyan"))
            name = Text(f"  {row['name']}", style="bold")
            table.add_row(name, letters, verdict_word(row), mutants_of(row), summary(row))
        else:
            if is_first:
                out.print(Text(row["family"], style="cyan"))
            verdict, mutants = verdict_word(row), Text.assemble("mutants ", mutants_of(row))
            out.print(Text.assemble((f"  {row['name']:<25}", "bold"), f"{letters:<6}", verdict, "  ", mutants))
            out.print(Padding(summary(row), (0, 0, 0, 4)))
    if is_wide:
        out.print(table)
    for key, error in broken_methods().items():
        out.print(Text.assemble((f"  {key}  ", "bold red"), (error, "red")))
    legend(out, rows)
    if tasks:
        more = "any Gymnasium id (HalfCheetah-v5), any .jsonl file of prompts or pairs, reasoning-gym:NAME"
        out.print(Text.assemble(("tasks  ", "bold"), f"{', '.join(families(tasks))}, {more}"))
    words = "assay show METHOD explains a method, assay diff METHOD shows what it changes, assay train METHOD trains it"
    out.print(Text(words, style="dim"))


def mutants_of(row: Mapping[str, Any]) -> Text:
    """Returns how many wrong versions the exact claims reject: 45 of 45."""
    kept = row["mutants"]
    style = "dim" if kept is None else "red" if kept["survived"] else ""
    return Text("-" if kept is None else claims.mutant_words(kept).replace(" of ", "/"), style=style)


def summary(row: Mapping[str, Any]) -> Text:
    """Returns the summary of a method, its variants, and the effect of its first headline claim; without a headline,
    that of its first measured claim, and what this is about.
    """
    variants = f"  variants: {', '.join(row['variants'])}" if row["variants"] else ""
    measured = [one for one in (row["verdict"] or {"claims": []})["claims"] if one["kind"] == "measured"]
    first = [*headline_entries(row["name"], row["verdict"]), *measured][:1]
    subject = abouts(row["name"]).get(first[0]["name"], "former claim") if first else ""
    of = f" of a {subject}" if row["headline"] == NO_HEADLINE or row["studied"] else ""
    effect = f"\neffect{of}: {claims.effect(first[0])}" if first else ""
    return Text.assemble(row["summary"], (variants, "dim"), (effect, "dim"))


def verdict_word(row: Mapping[str, Any]) -> Text:
    """Returns the verdict of the headline, with its state if it does not fit."""
    if row["studied"]:
        return Text(row["headline"], style="dim")
    if not row["verdict"]:
        return Text("no verdict", style="dim")
    return claims.with_state(row["headline"], row["state"])


def legend(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints the meaning of the letters and words that occur in the list."""
    shown = {word for row in rows for word in words_of(row, "verdict")}
    meaning = [f"{word}: {text}" for word, text in claims.MEANINGS.items() if word in shown]
    if any(row["state"] == stamps.UNKNOWN for row in rows):
        meaning.append(f"?: no stamp for {stamps.machine_kind()}, so a change since then would not be noticed")
    out.print(Text.assemble((counted(rows), "bold"), "; kinds of task: ", LETTERS_IN_WORDS))
    out.print(Text("verdicts", style="bold"))
    sheet.draw(out, [bullets(meaning)])
    words = (
        "of the headline's first claim: ours minus theirs with its 95 % interval. points: percentage points of a "
        "share; return, payoff, cost: per episode; decisions: environment steps or tokens; score: its own measure"
    )
    out.print(Text.assemble(("effect  ", "bold"), words))
    words = "wrong versions of the method that its exact claims reject, of those that change a run"
    out.print(Text.assemble(("mutants  ", "bold"), words))


def counted(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns how many methods there are, and how many more papers are studied only: 97 methods, 2 more studied."""
    num = sum(bool(row["studied"]) for row in rows)
    return f"{len(rows) - num} methods" + (f", {num} more studied" if num else "")


def families(tasks: Sequence[str]) -> list[str]:
    """Returns task names with the endings of their levels and variants: sorting, sorting-3, sorting-4 ->
    sorting (-3 to -4); stag-hunt, stag-hunt-tokens -> stag-hunt (-tokens).
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
    """Joins endings: -3, -4, -5 -> -3 to -5; others one by one."""
    levels = [ending for ending in endings if ending[1:].isdigit()]
    others = [ending for ending in endings if not ending[1:].isdigit()]
    span = [f"{levels[0]} to {levels[-1]}"] if len(levels) > 1 else levels
    return ", ".join([*span, *others])


# ---------------------------------------------------------------------------------------------------- one method
def flowing(text: str) -> str:
    """Returns the text with each paragraph in one line, so that it wraps at any width; keeps formulas and lists."""
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    kept = [any(line.startswith((" ", "- ")) for line in block) for block in blocks]
    return "\n\n".join(("\n" if keep else " ").join(block) for block, keep in zip(blocks, kept, strict=True))


def draw_method(out: Console, facts: Mapping[str, Any], changes: Sequence[Change] | None, everything: bool) -> None:
    """Prints one method to a console."""
    sheet.draw(out, method_sheet(facts, changes, everything))


def method_sheet(facts: Mapping[str, Any], changes: Sequence[Change] | None, everything: bool) -> list[Block]:
    """Returns what is printed of a method."""
    title = [[facts["name"], "bold"], [f"  {facts['paper']}", ""]]
    kinds = ", ".join(facts["kinds"])
    words = f"{facts['family']};  kinds of task: {kinds};  default task: {facts['task']}"
    found = [{"kind": "panel", "title": title, "text": flowing(facts["text"])}, line("family", words)]
    found += [line("preset", facts["preset"])] if facts["preset"] else []
    found += [line("studied, not counted", facts["studied"])] if facts["studied"] else []
    found += [line(name, ", ".join(facts[name])) for name in ("aliases", "variants") if facts[name]]
    found.append(changes_block(changes, f"what it changes in {facts['base']}", f"{facts['name']} is a base"))
    if everything or facts["preset"]:
        found += [line("parts", ", ".join(facts["parts"])), line("settings", "")]
        set_ones = [(path, value) for path, value in facts["settings"].items() if value not in (None, [], {})]
        found += [note(f"  {path} = {json.dumps(value)}") for path, value in set_ones]
    found += [line("departures from the paper", "" if facts["departs"] else "none"), bullets(facts["departs"])]
    for name in ("pilots", "results"):
        found += [line(name, ""), bullets(facts[name])] if facts[name] else []
    found += [line("mutants rejected by its exact claims", claims.mutant_words(facts["mutants"])), note("")]
    if facts["verdict"]:
        found.append(claims.verdict_block(facts["verdict"], facts["states"], facts["about"]))
        if new := [name for name, state in facts["states"].items() if state == stamps.NEW]:
            found.append(line("claims", "stated since, not measured yet"))
            found.append(bullets([f"{facts['about'][name]}: {name}" for name in new]))
    else:
        found.append(line("claims", "not measured yet"))
        found.append(bullets([f"{claim['name']} ({claim['kind']})" for claim in facts["claims"]]))
    more = f"assay show {facts['name']} --all lists its {len(facts['settings'])} settings"
    return found if everything else [*found, note(more, "dim")]


def print_difference(before: str, after: str, changes: Sequence[Change] | None) -> None:
    """Prints a table of the differences."""
    sheet.draw(console(), [changes_block(changes, f"from {before} to {after}", f"{after} is a base")])


def changes_block(changes: Sequence[Change] | None, title: str, alone: str) -> Block:
    """Returns a table: the path of a setting, its value before, its value after."""
    if changes is None:
        return line("base", f"{alone}: it is derived from no other recipe")
    rows = []
    for change in changes:
        told = ("" if one in (ABSENT, None) else brief(one) for one in (change.before, change.after))
        rows.append([cell(change.place, "cyan"), *(cell(one) if one else cell("-", "dim") for one in told)])
    headings = ("where", "before", "after")
    return sheet.table(Text(title, style="bold"), headings, rows or [[cell("no difference")]], whole=True)
