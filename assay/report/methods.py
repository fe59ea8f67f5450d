"""Prints methods: the list, one method, and the difference of two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from assay.claims import stamps, verdicts
from assay.claims.find import broken_claims, find_claims
from assay.claims.headline import abouts, headline_entries, headline_state, headline_word
from assay.claims.headline_texts import NO_HEADLINE
from assay.claims.mutants import trial
from assay.claims.records import read_verdict
from assay.core.difference import ABSENT, Change, brief, differences
from assay.core.errors import AssayError
from assay.core.settings import describe, settings
from assay.recipes.method import FAMILIES, Method
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, PREFERENCES, TABLE, Preset, why_preset
from assay.report import claims
from assay.report.console import console
from assay.runs import catalogue, method_index

LETTERS = {LANGUAGE.name: "L", CONTROL.name: "D", CONTINUOUS.name: "C", TABLE.name: "T", PREFERENCES.name: "P"}
LETTERS_IN_WORDS = "L language, D control with discrete actions, C continuous control, T tabular, P preference pairs"


# ---------------------------------------------------------------------------------------------------- facts
def part_names(value: Any) -> list[str]:
    """Returns the class names of the parts of a recipe, each once."""
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


def changes_of(method: Method, world: Preset | None = None) -> list[Change] | None:
    """Returns what a method changes in its base, in its first world; None for a base."""
    place = method.presets[0] if world is None else world
    return None if method.base is None else differences(method.base(place), method.recipe(place))


def told(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """Returns changes as JSON."""
    return [
        {"path": ".".join(one.path), "slots": list(one.slots), "before": brief(one.before), "after": brief(one.after)}
        for one in changes
    ]


def method_rows() -> list[dict[str, Any]]:
    """Returns one row per method whose file and claims can be imported, by family and then by name."""
    rows, broken = [], broken_methods()
    for name, method in catalogue.methods().items():
        if name in broken:
            continue
        verdict = read_verdict(name)
        changes = changes_of(method)
        rows.append(
            {
                "name": name,
                "family": method.family,
                "paper": method.paper,
                "worlds": [world.name for world in method.presets],
                "summary": catalogue.method_text(name).splitlines()[0].partition(": ")[2],
                "task": method.default_task,
                "base": None if method.base is None else method.base(method.presets[0]).name,
                "studied": method.studied,
                "aliases": list(method.aliases),
                "variants": list(method.variants),
                "changes": sorted({slot for change in changes or () for slot in change.slots}),
                "parts": part_names(method.recipe(method.presets[0])),
                "claims": [claim.name for claim in find_claims(name).claims],
                "mutants": trial.read(name),
                "verdict": verdict,
                "headline": headline_word(name, verdict),
                "state": headline_state(name, verdict),
            }
        )
    return sorted(rows, key=lambda row: (FAMILIES.index(row["family"]), row["name"]))


def broken_methods() -> dict[str, str]:
    """Returns the methods whose file or claims cannot be imported, and why."""
    return {**method_index.broken_methods(), **broken_claims()}


def method_facts(name: str, task: str | None = None) -> dict[str, Any]:
    """Returns everything about one method or variant as JSON, with the settings of its default world or of a task."""
    key, method = catalogue.find_method(name)
    place = None if task is None else catalogue.find_task(task)
    recipe = method.recipe(method.presets[0]) if place is None else catalogue.recipe_for(key, place, {})
    changes, verdict = changes_of(method), read_verdict(key)
    return {
        "name": key,
        "family": method.family,
        "paper": method.paper,
        "worlds": [world.name for world in method.presets],
        "task": method.default_task,
        "preset": None if place is None else why_preset(place),
        "studied": method.studied,
        "aliases": list(method.aliases),
        "variants": list(method.variants),
        "text": catalogue.method_text(key),
        "base": None if method.base is None else method.base(method.presets[0]).name,
        "changes": told(changes or ()),
        "departs": list(method.departures),
        "pilots": list(method.pilots),
        "results": list(method.results),
        "parts": part_names(recipe),
        "recipe": describe(recipe),
        "settings": {".".join(path): describe(value) for path, value in settings(recipe).items()},
        "claims": [{"name": claim.name, "kind": type(claim).__name__.lower()} for claim in find_claims(name).claims],
        "about": abouts(catalogue.method_key(key)),
        "mutants": trial.read(catalogue.method_key(key)),
        "verdict": verdict,
        "states": {} if verdict is None else verdicts.states(catalogue.method_key(key), verdict),
    }


# ---------------------------------------------------------------------------------------------------- list
@dataclass(frozen=True)
class Filter:
    """Selects rows of the list; None selects all. AssayError for a word that no row has."""

    family: str | None = None
    world: str | None = None
    changes: str | None = None
    verdict: str | None = None

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Returns the selected rows."""
        kept = list(rows)
        for name, wanted in vars(self).items():
            if wanted is None:
                continue
            known = sorted({word for row in rows for word in words_of(row, name)})
            found = [word for word in known if alike(word, wanted)]
            if not found and not (name == "verdict" and wanted in claims.MEANINGS):
                raise AssayError(f"--{name} is '{wanted}'. Choose one of: {', '.join(known)}")
            kept = [row for row in kept if set(found) & set(words_of(row, name))]
        return kept


def alike(known: str, wanted: str) -> bool:
    """Returns whether two words are equal but for case, '-' for a space, and a plural s."""
    one, other = (word.lower().replace("-", " ").removesuffix("s") for word in (known, wanted))
    return one == other


def words_of(row: Mapping[str, Any], name: str) -> list[str]:
    """Returns the words of a row that a filter compares."""
    if name == "verdict":
        stale = ["stale"] if row["state"] == stamps.STALE else []
        return [row["headline"] if row["verdict"] or row["studied"] else "no verdict", *stale]
    many: list[str] = [row["family"]] if name == "family" else row["worlds"] if name == "world" else row["changes"]
    return many


WIDE = 120
"""Terminal width from which the list is a table; on a narrower one the summary is below the method's name."""


def print_methods(rows: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> None:
    """Prints the methods by family, and the tasks."""
    out = console()
    is_wide = out.width >= WIDE
    table = Table(header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("method", "worlds", "verdict", "mutants", "what it is"):
        table.add_column(heading, no_wrap=heading != "what it is")
    for place, row in enumerate(rows):
        is_first = place == 0 or row["family"] != rows[place - 1]["family"]
        letters = "".join(LETTERS[world] for world in LETTERS if world in row["worlds"])
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
    out.print(Text.assemble((counted(rows), "bold"), "; worlds: ", LETTERS_IN_WORDS))
    out.print(Text("verdicts", style="bold"))
    bullets(out, meaning)
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


def print_method(facts: Mapping[str, Any], changes: Sequence[Change] | None, everything: bool) -> None:
    """Prints one method; its settings only if `everything`."""
    out = console()
    title = Text.assemble((facts["name"], "bold"), f"  {facts['paper']}")
    out.print(Panel(Text(flowing(facts["text"])), title=title, title_align="left", expand=False))
    line(out, "family", f"{facts['family']};  worlds: {', '.join(facts['worlds'])};  default task: {facts['task']}")
    if facts["preset"]:
        line(out, "preset", facts["preset"])
    if facts["studied"]:
        line(out, "studied, not counted", facts["studied"])
    for name in ("aliases", "variants"):
        if facts[name]:
            line(out, name, ", ".join(facts[name]))
    print_changes(out, changes, f"what it changes in {facts['base']}", f"{facts['name']} is a base")
    if everything or facts["preset"]:
        line(out, "parts", ", ".join(facts["parts"]))
        line(out, "settings", "")
        for path, value in facts["settings"].items():
            if value not in (None, [], {}):
                out.print(f"  {path} = {json.dumps(value)}", markup=False)
    line(out, "departures from the paper", "" if facts["departs"] else "none")
    bullets(out, facts["departs"])
    for name in ("pilots", "results"):
        if facts[name]:
            line(out, name, "")
            bullets(out, facts[name])
    line(out, "mutants rejected by its exact claims", claims.mutant_words(facts["mutants"]))
    out.print()
    if facts["verdict"]:
        out.print(claims.verdict_table(facts["verdict"], facts["states"], facts["about"]))
        if new := [name for name, state in facts["states"].items() if state == stamps.NEW]:
            line(out, "claims", "stated since, not measured yet")
            bullets(out, [f"{facts['about'][name]}: {name}" for name in new])
    else:
        line(out, "claims", "not measured yet")
        bullets(out, [f"{claim['name']} ({claim['kind']})" for claim in facts["claims"]])
    if not everything:
        out.print(f"[dim]assay show {facts['name']} --all lists its {len(facts['settings'])} settings[/]")


def line(out: Console, heading: str, text: str) -> None:
    """Prints a heading and its text."""
    out.print(Text.assemble((f"{heading}  ", "bold"), text))


def bullets(out: Console, lines: Sequence[str]) -> None:
    """Prints a list whose long lines are indented."""
    table = Table.grid(padding=(0, 1))
    for text in lines:
        table.add_row("  -", Text(text))
    if lines:
        out.print(table)


# ---------------------------------------------------------------------------------------------------- difference
def compared(name: str, other: str | None, world: str | None) -> tuple[str, str, list[Change] | None]:
    """Returns the names of two recipes and their difference: a method and its base, or two methods; None for a base.

    They are compared in `world`, by default the first that both work in.
    """
    key, method = catalogue.find_method(name)
    second = None if other is None else catalogue.find_method(other)
    both = [one for one in method.presets if second is None or one in second[1].presets]
    chosen = [one for one in both if world is None or alike(one.name, world)]
    if not chosen:
        known = ", ".join(one.name for one in both) or "none in common"
        raise AssayError(f"there is no world '{world}' to compare in. Worlds: {known}" if world is not None else
                         f"'{name}' and '{other}' have no world in common. Compare methods of one world")  # fmt: skip
    if second is not None:
        return key, second[0], differences(method.recipe(chosen[0]), second[1].recipe(chosen[0]))
    changes = changes_of(method, chosen[0])
    return ("" if method.base is None else method.base(chosen[0]).name), key, changes


def print_difference(before: str, after: str, changes: Sequence[Change] | None) -> None:
    """Prints a table of the differences."""
    print_changes(console(), changes, f"from {before} to {after}", f"{after} is a base")


def print_changes(out: Console, changes: Sequence[Change] | None, title: str, alone: str) -> None:
    """Prints a table: the path of a setting, its value before, its value after."""
    if changes is None:
        line(out, "base", f"{alone}: it is derived from no other recipe")
        return
    table = Table(title=Text(title, style="bold"), title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("where", "before", "after"):
        table.add_column(heading, overflow="fold", header_style="dim", no_wrap=heading == "where" and out.width >= 80)
    for change in changes:
        cells = ("" if one in (ABSENT, None) else brief(one) for one in (change.before, change.after))
        table.add_row(
            Text(change.place, style="cyan"), *(Text(cell) if cell else Text("-", style="dim") for cell in cells)
        )
    if not changes:
        table.add_row("no difference")
    out.print(table)
