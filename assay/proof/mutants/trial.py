"""Runs the exact claims of a method against its mutants.

A mutant is caught if an exact claim fails or raises. One that passes all claims survives if it changes the weights of
a short training run; if that run stops with an error, the mutant is stopped; otherwise it has no effect there (a
metric, a message, a branch that the run does not take).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from assay.claims.claim import Exact, Method
from assay.core.errors import AssayError
from assay.proof import stamps
from assay.proof.mutants.find import Mutant, mutants
from assay.runs import catalogue

CAUGHT, SURVIVED, STOPPED, NO_EFFECT, EQUIVALENT = "caught", "survived", "stopped", "no effect", "equivalent"
SECONDS = 20
"""A mutant whose claims take longer is caught: it does not end."""


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
def limited(seconds: int) -> Iterator[None]:
    """Raises Overtime in the block after this many seconds; without effect outside the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Overtime

    try:
        before = signal.signal(signal.SIGALRM, stop)
    except ValueError:
        yield
        return
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def broken_claim(claims: Sequence[Exact]) -> str | None:
    """Returns the name of the first claim that does not hold, None if all hold."""
    for claim in claims:
        try:
            with limited(SECONDS):
                holds = claim.run().holds
        except (Exception, Overtime):
            return claim.name
        if not holds:
            return claim.name
    return None


def trials(key: str, chosen: Callable[[list[Mutant]], list[Mutant]] = list, runs: bool = True) -> Iterator[Result]:
    """Yields the result of every chosen mutant of a method; AssayError if a claim fails without any mutant.

    Without `runs` a mutant that passes the claims counts as survived, whether it has an effect or not: a thousand times
    cheaper.
    """
    _, method = catalogue.find_method(key)
    broken = broken_claim(method.exact)
    if broken is not None:
        raise AssayError(f"the exact claim '{broken}' of {key} fails without a mutant. Fix it first: assay claim {key}")
    claims, plain = list(method.exact), None
    for mutant in chosen(mutants(key, method)):
        if mutant.name in method.equivalent:
            yield Result(mutant.rule, mutant.name, EQUIVALENT, method.equivalent[mutant.name])
            continue
        with mutant.install():
            found = broken_claim(claims)
        if found is not None:
            # The claim that caught one mutant often catches the next: it goes first.
            claims.sort(key=lambda claim: claim.name != found)
            yield Result(mutant.rule, mutant.name, CAUGHT, found)
            continue
        if not runs:
            yield Result(mutant.rule, mutant.name, SURVIVED)
            continue
        plain = plain if plain is not None else trained(method)
        with mutant.install():
            changed = trained(method)
        outcome = STOPPED if changed is None else NO_EFFECT if changed == plain else SURVIVED
        yield Result(mutant.rule, mutant.name, outcome)


def trained(method: Method) -> list[float] | None:
    """Returns numbers of a short training run of the method on its default task; None if it stops with an error."""
    try:
        with limited(3 * SECONDS):
            return stamps.behaviour(method.recipe(method.worlds[0]), catalogue.find_task(method.default_task))
    except (Exception, Overtime):
        return None
