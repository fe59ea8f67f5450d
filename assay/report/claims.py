"""Prints claims and verdicts: progress while they are measured, then tables."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from assay.claims import stamps, verdicts
from assay.claims.claim import Expect, Measured
from assay.claims.find import find_claims
from assay.claims.mutants import trial
from assay.report import sheet
from assay.report.units import effect_unit, effect_words, scale_of
from assay.runs import catalogue
from assay.runs.progress import duration
from assay.statistics.intervals import number

if TYPE_CHECKING:
    from assay.runs.pools import Child

UNDECIDED = "inconclusive"
MEANINGS = {
    "holds": "every claim about what the paper promises holds: its 95 % interval lies where the claim says",
    "inconclusive": "the interval of such a claim decides neither way; its row says what would",
    "fails": "such a claim is refuted: its interval lies outside of what the claim says",
    "stale": "the method computes other numbers since its claims were measured",
    "no headline": "no claim about what the paper promises is measured; assay show METHOD has those that are",
    "no verdict": "not measured yet",
    "studied": "its formulas hold here, but what the paper promises does not act in a run; not counted as a method",
}
"""Meanings of the words of a verdict."""
COLOURS = {"holds": "green", "fails": "bold red", "inconclusive": "yellow", "unfinished": "dim"}


class Watch:
    """Shows the progress of a measurement: a live line on a terminal, one plain line elsewhere."""

    def __init__(self, method: str, claim: Measured, console: Console, quiet: bool = False) -> None:
        self.method, self.claim, self.console, self.quiet = method, claim, console, quiet
        self.begin = time.monotonic()
        self.live = None if quiet or not console.is_terminal else Live(console=console, transient=True)

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        elif not self.quiet:
            self.console.print(f"{self.method}: {self.claim.name}, {self.claim.seeds} paired seeds", markup=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, done: int, total: int, running: Sequence[Child]) -> None:
        """Updates the live line."""
        if self.live is None:
            return
        spent = time.monotonic() - self.begin
        left = f", about {duration(spent / done * (total - done))} left" if done else ""
        now = "  ".join(f"{child.job.arm} seed {child.job.seed}" for child in running)
        words = f"{self.method}: {self.claim.name}\n{done}/{total} runs, {duration(spent)}{left}   {now}"
        self.live.update(Text(words))


def word(verdict: str) -> Text:
    """Returns the verdict in its colour."""
    return Text(verdict, style=COLOURS.get(verdict, ""))


def with_state(verdict: str, state: str | None) -> Text:
    """Returns the verdict in its colour, marked if it is stale, with a question mark if its state is unknown here."""
    marks = {stamps.STALE: ", stale", stamps.NEW: ", new", stamps.FORMER: ", former", stamps.UNKNOWN: " ?"}
    return Text.assemble(word(verdict), (marks.get(state or "", ""), "dim"))


def verdict_table(
    verdict: Mapping[str, Any], states: Mapping[str, str] | None = None, about: Mapping[str, str] | None = None
) -> Table:
    """Returns a table of a method's claims; `states` by claim are shown if a verdict does not fit, `about` says what
    the measured ones are about.
    """
    return sheet.drawn_table(verdict_block(verdict, states, about), 0)


def verdict_block(
    verdict: Mapping[str, Any], states: Mapping[str, str] | None = None, about: Mapping[str, str] | None = None
) -> sheet.Block:
    """Returns the table as a block."""
    decided = word(verdict["verdict"]) if verdict["claims"] else Text("none")
    title = Text.assemble((f"claims of {verdict['name']}: ", "bold"), decided)
    rows = []
    for claim in verdict["claims"]:
        shown = with_state(claim["verdict"], (states or {}).get(claim["name"]))
        told = (told_name(claim, about or {}), found(claim), expected(claim))
        rows.append([sheet.cell(shown), *map(sheet.cell, told)])
    if not verdict["claims"]:
        rows.append([sheet.cell(""), sheet.cell("it states no claims: add CLAIMS or METHOD.claims to its file")])
    caption = f"written to {verdict['file']}" if verdict.get("file") else ""
    if stamps.UNKNOWN in (states or {}).values():
        mark = f"?  measured on another kind of machine; here: assay claim {verdict['name']} --stamp"
        caption = "\n".join(filter(None, (mark, caption)))
    return sheet.table(title, ("verdict", "claim", "found", "expected"), rows, caption=caption)


def told_name(claim: Mapping[str, Any], about: Mapping[str, str]) -> str:
    """Returns the claim's sentence after what it is about: headline, mechanism or component; exact ones alone."""
    subject = about.get(claim["name"]) or claim.get("about")
    return f"{subject}: {claim['name']}" if subject else str(claim["name"])


def replication_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table of claims with what is recorded and what other seeds give."""
    table = Table(title="with other seeds", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("method", "claim", "recorded", "", "with other seeds", ""):
        table.add_column(heading, overflow="fold", no_wrap=heading == "method")
    for row in rows:
        new, old = row["other_seeds"], row["recorded"]
        before = (word(old["verdict"]), Text(found(old))) if old else (Text("not measured", style="dim"), Text())
        claim = (Text(row["method"], style="bold"), Text(new["name"]))
        table.add_row(*claim, *before, word(new["verdict"]), Text(found(new)))
    return table


def found(claim: Mapping[str, Any]) -> str:
    """Returns the measured number, or the difference with its interval and unit."""
    if claim["kind"] == "exact":
        return number(claim["value"])
    effect = effect_words(claim)
    decided = f"; {would_decide(claim)}" if claim.get("verdict") == UNDECIDED and effect else ""
    return f"{effect}, {len(claim['seeds'])} seeds{decided}" if effect else ""


def would_decide(claim: Mapping[str, Any]) -> str:
    """Returns what would decide an inconclusive claim."""
    seeds = len(claim["seeds"])
    value, low, high, margin = (float(claim[name]) for name in ("estimate", "low", "high", "margin"))
    needed = Expect(claim["expect"]).seeds_to_decide(value, low, high, margin, seeds)
    if needed > MOST_SEEDS:
        return f"so near the limit that {MOST_SEEDS:,} seeds would not decide it: it needs a task with a larger effect"
    # The ratio is of two rounded widths; more seeds than there were are needed in any case.
    return f"about {max(seeds + 1, math.ceil(needed))} seeds would decide it if the difference stays"


MOST_SEEDS = 200
"""With more seeds than these a claim is not decided by seeds."""


def effect(claim: Mapping[str, Any]) -> str:
    """Returns the difference of a measured claim with interval and unit, its metric and task."""
    rule = claim.get("decided_by") or {}
    what = f", {metric_words(rule['metric'])} on {rule['task']}" if rule.get("task") else ""
    return (effect_words(claim) or "not measured") + what


def expected(claim: Mapping[str, Any]) -> str:
    """Returns what a claim expects; of a measured one, the metric of the difference and where its interval must lie."""
    if claim["kind"] == "exact":
        return str(claim["expected"])
    rule = claim.get("decided_by")
    if rule is None:
        return str(claim.get("rule", ""))
    what = f"{metric_words(rule['metric'])}: " if rule["task"] else ""
    unit = effect_unit(rule["metric"], rule["task"] or "")
    return f"{what}ours - theirs {in_numbers(claim['expect'], scale_of(unit) * claim['margin'])} {unit}".rstrip()


def metric_words(metric: Any) -> str:
    """Returns a metric of runs in words, from its description."""
    if not isinstance(metric, Mapping):
        return str(metric)
    # A metric without one of curves is of a policy: its class is its name (WithinBudget: within budget).
    found = str(metric.get("metric") or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", metric["part"]).lower())
    name = {"evaluation": "held-out score"}.get(found, found)
    if metric["part"] == "Average":
        share = metric.get("share", 1.0)
        return f"mean {name}" if share == 1.0 else f"mean {name} of the last {100 * share:g} %"
    if metric["part"] == "DecisionsTo":
        return f"decisions to {name} {metric['level']:g}"
    if metric["part"] == "AtEqual":
        reached = {"decisions_total": "generated tokens", "pass_rate": "pass rate"}
        return f"{name} at equal {reached.get(metric['reached'], metric['reached'])}"
    of_policies = {"PassAt": "pass@{k}", "DistinctAt": "distinct@{k}", "AnswerProbability": "pi(answer)"}
    if metric["part"] in of_policies:
        return of_policies[metric["part"]].format(k=metric.get("k"))
    words = {"Gain": "gain in ", "Dip": "dip of ", "Area": "mean over the run of ", "Largest": "largest "}
    return words.get(metric["part"], "") + name


OUTCOMES = {
    trial.CAUGHT: "green",
    trial.SURVIVED: "bold red",
    trial.STOPPED: "yellow",
    trial.NO_EFFECT: "dim",
    trial.EQUIVALENT: "dim",
    trial.NOT_REACHED: "dim",
}
"""Colours of what becomes of a mutant."""


def mutant_table(key: str, results: Sequence[trial.Result], shows_caught: bool) -> Table:
    """Returns a table of a method's mutants and the claim that catches each; without `shows_caught` only the others."""
    counts = {outcome: sum(one.outcome == outcome for one in results) for outcome in OUTCOMES}
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    title = Text.assemble((f"mutants of {key}: ", "bold"), f"{trial.summary(results)['made']} made, {words}")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("outcome", "rule", "mutant", "caught by"):
        table.add_column(heading, overflow="fold")
    for one in results:
        if shows_caught or one.outcome == trial.SURVIVED:
            table.add_row(Text(one.outcome, style=OUTCOMES[one.outcome]), one.rule, Text(one.name), Text(one.claim))
    return table


def cover_table(key: str, results: Sequence[trial.Result]) -> Table:
    """Returns how many mutants each exact claim is the first of its file to reject."""
    cover = trial.summary(results)["cover"]
    title = Text("cover: mutants that each claim is the first to reject", style="bold")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for claim in find_claims(key).exact:
        count = cover.get(claim.name, 0)
        needless = "  needless: drop it, or mark it illustrates=True"
        note = "  illustrates" if claim.illustrates else f"  of {claim.of}" if claim.of else "" if count else needless
        table.add_row(Text(str(count)), Text.assemble(claim.name, (note, "yellow" if note == needless else "dim")))
    return table


def mutant_words(kept: Mapping[str, Any] | None) -> str:
    """Returns the kept summary of a method's mutants in a few words: caught of those with an effect."""
    if kept is None:
        return "not tried"
    return f"{kept['caught']} of {kept['caught'] + kept['survived']}"


def print_states(out: Console, states: Mapping[str, Mapping[str, str]]) -> None:
    """Prints how many claims are in each state, and which do not fit."""
    found = [(method, claim, state) for method, some in states.items() for claim, state in some.items()]
    for state, meaning in stamps.STATES.items():
        those = [(method, claim) for method, claim, one in found if one == state]
        if not those:
            continue
        out.print(Text.assemble((f"{len(those)} claims: {state}", "bold"), f"  {meaning}"))
        for method, claim in those if stamps.worst([state]) == stamps.STALE else ():
            out.print(Text(f"  {method}: {claim}"))


def with_states(verdict: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Returns a verdict with the recorded state of each of its measured claims."""
    states = verdicts.states(method, verdict) if method in catalogue.methods() else {}
    claims = [
        dict(one) | ({"state": states[one["name"]]} if one["name"] in states else {}) for one in verdict["claims"]
    ]
    return dict(verdict) | {"claims": claims}


def summary_table(found_verdicts: Sequence[Mapping[str, Any]]) -> Table:
    """Returns a table with one row per method: its verdict, and the first measured claim with its number."""
    table = Table(title="verdicts", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("method", "verdict", "measured claim", "ours - theirs", "date"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("method", "verdict", "date"))
    for verdict in found_verdicts:
        for claim in [one for one in verdict["claims"] if one["kind"] == "measured"]:
            shown = with_state(claim["verdict"], claim.get("state"))
            row = (Text(verdict["name"], style="bold"), shown, Text(claim["name"]), Text(found(claim)))
            table.add_row(*row, verdict.get("made", ""))
    return table


def print_meanings(out: Console, words: Collection[str] = tuple(MEANINGS)) -> None:
    """Prints the meaning of each of these words of a verdict, one on a line."""
    table = Table.grid(padding=(0, 2))
    for name, meaning in MEANINGS.items():
        if name in words:
            table.add_row(word(name), Text(meaning, style="dim"))
    out.print(table)


def for_page(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a verdict for the page: the expectation in numbers, the machine in one line."""
    claims = []
    for claim in verdict["claims"]:
        if claim["kind"] == "exact":
            claims.append(dict(claim) | {"estimate": claim["value"], "expect": claim["expected"]})
        else:
            claims.append(dict(claim) | in_units(claim))
    machine = verdict.get("machine", {})
    cores, kind, torch = (machine.get(name, "?") for name in ("cores", "machine", "torch"))
    return dict(verdict) | {"claims": claims, "machine": f"{cores} cores, {kind}, torch {torch}"}


def in_units(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers of a measured claim in their unit, and the expectation in numbers."""
    rule = claim.get("decided_by") or {}
    unit = effect_unit(rule.get("metric"), str(rule.get("task") or ""))
    numbers = {
        name: scale_of(unit) * claim[name] for name in ("estimate", "low", "high") if claim.get(name) is not None
    }
    return numbers | {"unit": unit, "expect": in_numbers(claim["expect"], scale_of(unit) * claim["margin"])}


def in_numbers(expect: str, margin: float) -> str:
    """Returns 'd > margin' with the number of the margin."""
    low, high = number(-margin), number(margin)
    return expect.replace("-margin", low).replace("margin", high).replace("d ", "").replace(" <= <= ", " to ").strip()
