"""Runs the exact claims of a method against its mutants.

A mutant is caught if an exact claim fails or raises. One that passes all claims survives if it changes the weights of
a short training run; if that run stops with an error, the mutant is stopped; otherwise it has no effect there (a
metric, a message, a branch that the run does not take).
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from assay.claims import stamps
from assay.claims.claim import Exact
from assay.claims.find import find_claims
from assay.claims.records import MUTANTS, read_record, record_path, update_record
from assay.claims.mutants.find import mutants
from assay.claims.mutants.mutant import Mutant
from assay.claims.mutants.settings import SETTING
from assay.claims.probes.walked import shrunk
from assay.claims.shipped import home
from assay.claims.wiring import is_record
from assay.core.errors import AssayError
from assay.recipes.method import Method
from assay.runs import catalogue

CAUGHT, SURVIVED, STOPPED, NO_EFFECT, EQUIVALENT = "caught", "survived", "stopped", "no effect", "equivalent"
NOT_REACHED = "not reached"
"""The outcome of a mutant that passes the claims, of code that the short training run does not call."""
WRITTEN = "written"
BASE = "base"
"""The kind of mutants in which something of the base is put back."""
SECONDS = 20
"""A mutant whose claim takes longer is caught: it does not end."""
LONGER = 5
"""So is one whose claim takes this many times as long as without a mutant, and two seconds more."""
LONG = 30
"""Seconds of the training run without a mutant, traced, above which runs are made at small sizes."""
HOURS = 12
"""How long all mutants of a method may take together."""
QUICK = 4
"""Seconds of a claim in a sample, where no claim is timed without a mutant; the slowest takes one."""


class Overtime(Exception):
    """Raised if the claims of a mutant do not end in time."""


@dataclass(frozen=True)
class Result:
    """What became of a mutant, and the claim that caught it."""

    rule: str
    name: str
    outcome: str
    claim: str = ""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises Overtime in the block after this many seconds of computing; without effect outside the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Overtime

    try:
        before = signal.signal(signal.SIGPROF, stop)
    except ValueError:
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def broken_claim(claims: Sequence[Exact], seconds: Mapping[str, float] | None = None) -> str | None:
    """Returns the name of the first claim that does not hold, None if all hold; `seconds` are the limits by name."""
    for claim in claims:
        try:
            with limited((seconds or {}).get(claim.name, SECONDS)):
                holds = claim.run().holds
        except (Exception, Overtime):
            return claim.name
        if not holds:
            return claim.name
    return None


def trials(key: str, chosen: Callable[[list[Mutant]], list[Mutant]] = list, runs: bool = True) -> Iterator[Result]:
    """Yields the result of every chosen mutant of a method; AssayError if a claim fails without any mutant.

    A mutant is caught by the first claim that rejects it: those of the file, illustrations after the others, then those
    on the wiring, then the record of settings (see `judges_of`). One that passes all
    claims and changes code that the short training run does not call is not trained. Without `runs` it counts as
    survived, as does every mutant that passes, whether it has an effect or not, and claims are not run without a
    mutant, which a test of them does: much cheaper.
    """
    method, stated = catalogue.find_method(key)[1], find_claims(key)
    limits = {claim.name: limit_of(key, claim) if runs else QUICK for claim in stated.exact}
    claims = sorted(stated.exact, key=lambda claim: (is_record(claim), claim.illustrates))
    found = mutants(key, method)
    if runs:
        reached, plain, spent = rehearsed(method)
        is_long = spent > LONG
        if is_long:
            reached, plain, spent = rehearsed(method, is_small=True)
        patience = 3 * SECONDS + spent
        if plain is None:
            raise AssayError(f"{key} does not train on its default task {method.default_task}. Fix it first")
    for mutant in chosen(found):
        if mutant.name in stated.equivalent:
            yield Result(mutant.rule, mutant.name, EQUIVALENT, stated.equivalent[mutant.name])
            continue
        with mutant.install():
            broken = broken_claim(judges_of(mutant, claims, runs), limits)
        if broken is not None:
            yield Result(mutant.rule, mutant.name, CAUGHT, broken)
            continue
        if not runs:
            yield Result(mutant.rule, mutant.name, SURVIVED)
            continue
        if mutant.code is not None and mutant.code not in reached:
            yield Result(mutant.rule, mutant.name, NOT_REACHED)
            continue
        with mutant.install():
            changed = trained(method, patience, is_small=is_long)
        outcome = STOPPED if changed is None else NO_EFFECT if changed == plain else SURVIVED
        yield Result(mutant.rule, mutant.name, outcome)


def judges_of(mutant: Mutant, claims: Sequence[Exact], runs: bool) -> list[Exact]:
    """Returns the claims that a mutant is tried against, in order. The record of settings, which rejects every other
    recipe, judges mutants of settings only, and last: its cover counts those that no other claim rejects. In a quick
    check without `runs` it comes first.
    """
    if mutant.rule != SETTING:
        return [claim for claim in claims if not is_record(claim)]
    return list(claims) if runs else sorted(claims, key=lambda claim: not is_record(claim))


def all_trials(key: str, jobs: int) -> Iterator[Result]:
    """Yields the result of every mutant of a method, tried in `jobs` processes; ordered by process, then by mutant."""
    if jobs == 1:
        yield from trials(key)
        return
    # Not a fork: the threads of this process's libraries do not survive one.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for results in pool.map(partial(trials_of_part, key, jobs), range(jobs), timeout=HOURS * 3600):
            yield from results


def trials_of_part(key: str, parts: int, part: int) -> list[Result]:
    """Returns the results of every `parts`-th mutant, beginning with that at place `part`."""
    return list(trials(key, lambda found: found[part::parts]))


def limit_of(key: str, claim: Exact) -> float:
    """Returns the seconds of computing that a claim may take with a mutant; AssayError if it fails without one."""
    begin = time.process_time()
    if broken_claim([claim]) is not None:
        raise AssayError(
            f"the exact claim '{claim.name}' of {key} fails without a mutant. Fix it first: assay claim {key}"
        )
    return min(SECONDS, 2 + LONGER * (time.process_time() - begin))


def quick_trials(key: str, most: int) -> list[Result]:
    """Returns the results of a sample of mutants. The training run, which takes longer than all claims together, is
    made only if a mutant passes the claims.
    """
    found = list(trials(key, sample(key, most), runs=False))
    passed = {one.name for one in found if one.outcome == SURVIVED}
    again = trials(key, lambda made: [one for one in made if one.name in passed]) if passed else ()
    return [*(one for one in found if one.name not in passed), *again]


@contextmanager
def traced() -> Iterator[set[CodeType]]:
    """Collects the code of all Python functions that are called in the block, in threads that it starts too."""
    reached: set[CodeType] = set()

    def collect(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            reached.add(frame.f_code)

    threading.setprofile(collect)  # a user's function is called in a thread of its own
    sys.setprofile(collect)
    try:
        yield reached
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def rehearsed(method: Method, is_small: bool = False) -> tuple[set[CodeType], list[float] | None, float]:
    """Returns the code that the training run without a mutant calls, its numbers and its seconds."""
    begin = time.process_time()
    with traced() as reached:
        plain = trained(method, 20 * SECONDS, is_small=is_small)
    return reached, plain, time.process_time() - begin


def trained(method: Method, seconds: float, is_small: bool = False) -> list[float] | None:
    """Returns numbers of a short training run of the method on its default task; None if it stops with an error, or
    takes more than these seconds of computing. A small one has the sizes of gathered steps (`probes.walked.SMALL`).
    """
    recipe = method.recipe(home(method))
    if is_small:
        phases = tuple(replace(phase, recipe=shrunk(phase.recipe)) for phase in recipe.before)
        recipe = replace(shrunk(recipe), before=phases)
    try:
        with limited(seconds):
            return stamps.behaviour(recipe, catalogue.find_task(method.default_task))
    except (Exception, Overtime):
        return None


# ---------------------------------------------------------------------------------------------------- files
def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Returns what is kept of a trial: how many were made and caught, the names of those that were not, the edits
    by hand that change nothing, and the cover: how many each claim is the first to reject.
    """
    counts = Counter(result.outcome for result in results)
    passed = {one.name: one.outcome for one in results if one.outcome != CAUGHT}
    made = len(results) - counts[NOT_REACHED]
    cover = dict(Counter(one.claim for one in results if one.outcome == CAUGHT))
    idle = [one.name for one in results if one.rule == WRITTEN and one.outcome in (NO_EFFECT, NOT_REACHED)]
    return {
        "made": made, "caught": counts[CAUGHT], "survived": counts[SURVIVED], "written_without_effect": idle,
        "not_caught": passed, "cover": cover,
    }  # fmt: skip


def write(key: str, results: Sequence[Result]) -> Path:
    """Writes the summary of a trial into the method's record."""
    path = record_path(key)
    return update_record(path, {**read_record(path), MUTANTS: summary(results)}, keep=())


def read(key: str) -> dict[str, Any] | None:
    """Returns the kept summary of a method; None without one."""
    return read_record(record_path(key)).get(MUTANTS)


def sample(key: str, most: int) -> Callable[[list[Mutant]], list[Mutant]]:
    """Returns a choice of mutants for a quick check, of those that were caught before: at most `2 * most` of the base,
    the narrowest ones, `2 * most` written ones, and `most` of the others, each spread evenly over the code.
    """
    known = set((read(key) or {}).get("not_caught", ()))

    def chosen(found: list[Mutant]) -> list[Mutant]:
        caught = [one for one in found if one.name not in known]
        written = [one for one in caught if one.rule == WRITTEN]
        rest = [one for one in caught if one.rule not in (BASE, WRITTEN)]
        return [*spread(narrowest(caught), 2 * most), *spread(written, 2 * most), *spread(rest, most)]

    return chosen


def narrowest(found: Sequence[Mutant]) -> list[Mutant]:
    """Returns the mutants of the base that put back least: a claim that rejects one rejects what holds it."""
    base = [one for one in found if one.rule == BASE]
    paths = [one.name.partition(" as in ")[0] for one in base]
    held = [any(other.startswith(f"{path}.") for other in paths) for path in paths]
    return [one for one, path, holds in zip(base, paths, held, strict=True) if not holds and " " not in path] or base


def spread(found: Sequence[Mutant], most: int) -> Sequence[Mutant]:
    """Returns at most this many, spread evenly."""
    return found[:: max(1, -(-len(found) // most))]
