"""Which parts carry the difference between two recipes.

A factor is a difference of the two that can be swapped by itself. Swapping factors one at a time from each end, and in
all combinations if there are at most four, gives arms that are trained on the same seeds:

    added      score(B with the factor of A) - score(B)
    removed    score(A) - score(A with the factor of B)
    share      mean of both, or over all orders of adding the factors (Shapley value) if all combinations were trained;
               then the shares add up to score(A) - score(B)
    interaction   removed - added: 0 if the factor works alike with and without the others

A factor that needs another (a loss that reads a column which only the other's rollout writes) is added after it: orders
that cannot be built are left out, and `added` is then on top of the fewest factors with which it can be built.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.difference import Change, brief, differences, taken
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.settings import numbered
from assay.runs.arms import Arm, Setup, plain_name
from assay.runs.comparison import Outcome
from assay.runs.notebook import html_table, text_table
from assay.runs.plan import make_plan
from assay.statistics.intervals import Estimate, mean_interval

MOST = 4
"""Number of factors up to which all combinations are trained."""
BUDGET = ("steps", "name")
"""Fields that are not compared: both ends get the same budget."""
Chosen = frozenset[int]
"""Numbers of the factors that are taken from the first recipe."""


@dataclass(frozen=True)
class Factor:
    """A difference that is swapped as one: where it is, and what it is in the first and in the second recipe."""

    paths: tuple[tuple[str, ...], ...]
    first: str
    second: str

    @property
    def name(self) -> str:
        """The places of the factor, as `assay diff` shows them."""
        return " + ".join(dict.fromkeys(".".join(path[-2:] if path[0] == "stages" else path) for path in self.paths))

    @property
    def short(self) -> str:
        """The last word of each place: clip range `high`, `aggregate`, `select`."""
        return "-".join(dict.fromkeys(path[-1] if path[-1][0].islower() else path[-2] for path in self.paths))


# ---------------------------------------------------------------------------------------------------- factors
def factors_of(first: Recipe, second: Recipe) -> list[Factor]:
    """Returns the differences that can be swapped one at a time; AssayError for equal recipes, or if they cannot be
    separated.
    """
    changes = [one for one in differences(second, first) if one.path[0] not in BUDGET]
    if not changes:
        raise AssayError(f"{first.name} and {second.name} differ in no part. Name two different methods.")
    separate = [grouped(some) for some in by_place(changes)]
    if len(separate) <= MOST and orders(buildable(first, second, separate), len(separate)):
        found = separate
    else:
        found = join_factors(separate, first, second)
    if len(found) == 1:
        reason = broken(first, second, separate) or "there is only one"
        raise AssayError(
            f"the differences between {first.name} and {second.name} cannot be swapped one at a time: {reason}. "
            "Use assay compare."
        )
    return found


def by_place(changes: Sequence[Change]) -> list[list[Change]]:
    """Groups changes that only make sense together: parts that are added and removed in one slot. What differs inside a
    part that both have (baseline and scale of an advantage) is a place of its own.
    """
    places: dict[tuple[str, ...], list[Change]] = {}
    listed = ("rewards", "credit", "constraints", "before")
    for change in changes:
        is_listed = change.is_part and change.path[0] in listed and len(change.path) == 2
        place = change.path[:1] if is_listed or change.path[0] == "critics" else change.path
        place = change.path[:3] if change.path[0] == "stages" and len(change.path) == 4 else place
        places.setdefault(place, []).append(change)
    return list(places.values())


def grouped(changes: Sequence[Change]) -> Factor:
    """Returns the factor of some changes; several elements of one tuple are taken as the whole tuple."""
    short = [one.path[:3] if one.path[0] == "stages" else one.path[:1] for one in changes]
    paths = [one.path for one in changes] if len(changes) == 1 else list(dict.fromkeys(short))
    mine, theirs = (", ".join(brief(getattr(one, side)) for one in changes) for side in ("after", "before"))
    return Factor(tuple(paths), mine, theirs)


def buildable(first: Recipe, second: Recipe, found: Sequence[Factor]) -> list[Chosen]:
    """Returns the combinations of factors that make a recipe whose parts fit together."""
    possible = []
    for chosen in designs(len(found)):
        if misfit(second, first, [found[place] for place in sorted(chosen)]) is None:
            possible.append(chosen)
    return possible


def orders(possible: Collection[Chosen], num: int) -> list[tuple[int, ...]]:
    """Returns the orders of adding factors in which every step can be built."""
    every = itertools.permutations(range(num))
    return [one for one in every if all(frozenset(one[:size]) in possible for size in range(num + 1))]


def join_factors(found: list[Factor], first: Recipe, second: Recipe) -> list[Factor]:
    """Joins factors until each can be swapped by itself at both ends."""
    while len(found) > 1:
        stuck = [one for one in found if broken(first, second, [one])]
        if not stuck:
            return found
        one = stuck[0]
        pairs = [(other, join(one, other)) for other in found if other is not one]
        fitting = [pair for pair in pairs if not broken(first, second, [pair[1]])]
        other, both = (fitting or [pair for pair in pairs if pair[0] in stuck] or pairs)[0]
        found = [both if each is one else each for each in found if each is not other]
    return found


def join(one: Factor, other: Factor) -> Factor:
    """Returns two factors as one."""
    return Factor((*one.paths, *other.paths), f"{one.first}, {other.first}", f"{one.second}, {other.second}")


def broken(first: Recipe, second: Recipe, tried: Sequence[Factor]) -> str | None:
    """Returns why a factor cannot be swapped alone at one of the ends; None if all can."""
    for one in tried:
        for node, origin in ((first, second), (second, first)):
            if (reason := misfit(node, origin, [one])) is not None:
                return f"{node.name} with {one.name} of {origin.name}: {reason}"
    return None


def misfit(node: Recipe, origin: Recipe, chosen: Sequence[Factor]) -> str | None:
    """Returns why `node` with these factors of `origin` is no recipe; None if it is one. A part that is put where it
    does not belong may fail in any of these ways.
    """
    try:
        swapped(node, origin, chosen).check()
    except (AssayError, TypeError, AttributeError, ValueError, IndexError) as error:
        return str(error)
    return None


def swapped(node: Recipe, origin: Recipe, chosen: Sequence[Factor]) -> Recipe:
    """Returns `node` with these factors as in `origin`."""
    for one in chosen:
        for path in one.paths:
            node = taken(node, origin, path)
    return node


# ---------------------------------------------------------------------------------------------------- arms
def designs(num: int) -> list[Chosen]:
    """Returns the combinations to train: all, or both ends and one swap from each."""
    everything = frozenset(range(num))
    if num <= MOST:
        return [frozenset(some) for size in range(num + 1) for some in itertools.combinations(range(num), size)]
    singles = [frozenset({place}) for place in range(num)]
    return [frozenset(), *singles, *(everything - one for one in singles), everything]


def arms_of(first: Recipe, second: Recipe, found: Sequence[Factor]) -> dict[Chosen, Arm]:
    """Returns the arm of each combination: the second recipe with factors of the first."""
    short = numbered([one.short for one in found])
    chosen = buildable(first, second, found)
    if len(found) > MOST and (missing := [some for some in designs(len(found)) if some not in chosen]):
        raise AssayError(f"{arm_name(first.name, second.name, short, missing[0])} cannot be built. Use assay compare.")
    arms = {}
    for some in chosen:
        name = arm_name(first.name, second.name, short, some)
        arms[some] = Arm(name, replace(swapped(second, first, [found[place] for place in sorted(some)]), name=name))
    return arms


def arm_name(first: str, second: str, short: Sequence[str], chosen: Chosen) -> str:
    """Returns the nearer end and what is changed in it: 'grpo + select', 'dapo - select'."""
    left = [place for place in range(len(short)) if place not in chosen]
    if len(left) < len(chosen):
        return "".join([first, *(f" - {short[place]}" for place in left)])
    return "".join([second, *(f" + {short[place]}" for place in sorted(chosen))])


@dataclass(frozen=True)
class Planned:
    """An ablation to run: both ends, what is swapped between them, and the comparison of all arms."""

    first: str
    second: str
    factors: list[Factor]
    arms: Mapping[Chosen, Arm]
    setup: Setup


def planned(
    first: str | Recipe,
    second: str | Recipe,
    task: str,
    arguments: Mapping[str, Any],
    seeds: int,
    out: Path | None = None,
    minutes: float | None = None,
    workers: int | None = None,
) -> Planned:
    """Returns the arms between two methods on a task, to be trained with these arguments of a plan for as many steps as
    the second, unless these say otherwise.
    """
    one, other = (make_plan(end, task, **arguments).recipe for end in (first, second))
    found = factors_of(one, other)
    arms = arms_of(one, other, found)
    folder = out or Path("runs") / f"ablate-{one.name}-{other.name}-{plain_name(task)}"
    kept = {name: value for name, value in arguments.items() if name not in ("settings", "preset")}  # arms have them
    if kept.get("steps") is None and kept["options"].environment.decisions is None:
        kept["steps"] = other.steps
    setup = Setup(tuple(arms.values()), (task,), folder, seeds, kept, minutes, workers)
    return Planned(one.name, other.name, found, arms, setup)


@dataclass(frozen=True)
class Ablation:
    """A finished ablation: what was swapped, and what came out."""

    planned: Planned
    outcome: Outcome

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Returns the ablation as JSON: both ends, and `facts` of the factors."""
        ends = {"first": self.planned.first, "second": self.planned.second}
        about = {"task": self.planned.setup.tasks[0], "steps": self.planned.setup.options.get("steps")}
        return ends | about | facts(self.planned.factors, self.planned.arms, self.outcome)

    @property
    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Returns the table of the share of each part in the difference: its headings and its rows."""
        found, first, second = self.facts, self.planned.first, self.planned.second
        names = ("share", "added", "removed", "interaction")
        rows = [[row["short"], *(str(Estimate(**row[name])) for name in names)] for row in found["rows"]]
        rows.append(["all", str(Estimate(**found["total"])), "", "", ""])
        headings = [f"{first} - {second}", "share", f"added to {second}", f"removed from {first}", "interaction"]
        return headings, rows

    def __repr__(self) -> str:
        """Returns the table as text."""
        return text_table(*self.shown)

    def _repr_html_(self) -> str:
        """Returns the share of each part in the difference, for a notebook."""
        return html_table(*self.shown)


# ---------------------------------------------------------------------------------------------------- shares
Scores = Mapping[Chosen, np.ndarray]
"""Scores of each combination, one per seed."""


def facts(found: Sequence[Factor], arms: Mapping[Chosen, Arm], outcome: Outcome) -> dict[str, Any]:
    """Returns the ablation as JSON: shares, both ends and interactions of every factor, with intervals over seeds."""
    seeds = outcome.common_seeds([arm.name for arm in arms.values()])
    if not seeds:
        raise AssayError("no seed was finished by all arms. Run the same command again to resume.")
    scores = {chosen: outcome.table(arm.name, seeds).mean(1) for chosen, arm in arms.items()}
    everything, short = frozenset(range(len(found))), numbered([one.short for one in found])
    rows = []
    for place, factor in enumerate(found):
        under = [some for some in arms if place not in some and some | {place} in arms]
        steps = [scores[some | {place}] - scores[some] for some in (under[0], under[-1])]  # fewest factors, most
        share = shapley(scores, place, len(found)) if len(found) <= MOST else (steps[0] + steps[1]) / 2
        numbers = {"added": steps[0], "removed": steps[1], "share": share, "interaction": steps[1] - steps[0]}
        told = {"factor": factor.name, "short": short[place], "first": factor.first, "second": factor.second}
        needs = {"needs": [short[other] for other in sorted(under[0])]} if under[0] else {}
        rows.append(told | needs | {name: estimated(values) for name, values in numbers.items()})
    total = estimated(scores[everything] - scores[frozenset()])
    means = {arms[chosen].name: estimated(values) for chosen, values in scores.items()}
    return {"rows": rows, "total": total, "scores": means, "seeds": seeds, "complete": len(found) <= MOST}


def shapley(scores: Scores, place: int, num: int) -> np.ndarray:
    """Returns the mean effect of adding a factor over all orders in which factors can be added, per seed."""
    steps = []
    for order in orders(scores.keys(), num):
        earlier = frozenset(order[: order.index(place)])
        steps.append(scores[earlier | {place}] - scores[earlier])
    return np.mean(steps, axis=0)


def estimated(values: np.ndarray) -> dict[str, Any]:
    """Returns the mean with its 95 % interval; an infinite one for a single seed."""
    if len(values) < 2:
        return vars(Estimate(float(values[0]), -math.inf, math.inf, 1))
    return vars(mean_interval(values.tolist(), binary=False))
