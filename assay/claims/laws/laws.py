"""Laws as values: what every part of a slot must obey, run on named inputs, strict about declared breaks.

A law is a generator that takes (part, case) and yields what is wrong, in words; if it yields nothing, the law holds.
A part that breaks a law by design declares it in its class, `breaks = {"law": "reason"}`. The check is strict: an entry
that no longer occurs fails as stale, and a break that is not listed fails.

Tensors have any shape.
"""

from __future__ import annotations

import random as python_random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.faults import at_place
from assay.core.record import Progress
from assay.core.settings import children, is_schedule, replaced, resolved
from assay.core.slots import LimitReader
from assay.ops import random

C = TypeVar("C")
R = TypeVar("R")
TIGHT = 1e-9
"""Largest relative gap between two float64 results that must be equal."""
LIMIT = 8
"""Most decisions of an episode, for parts that read the task's limit."""
LOOSE = 1e-4
"""Largest relative gap between a float32 and a float64 result."""


@dataclass(frozen=True)
class Finding:
    """The result of one law on one part; `input` names the case on which it broke."""

    law: str
    held: bool
    detail: str = ""
    input: str = ""

    def __str__(self) -> str:
        where = f" [input: {self.input}]" if self.input else ""
        return f"{'held' if self.held else 'BROKE'} {self.law}: {self.detail}{where}"


class Named(Protocol):
    """An input with a readable name."""

    @property
    def name(self) -> str:
        """Returns the name of the input."""


@dataclass(frozen=True)
class Unsuited:
    """Replaces the inputs of a part that runs on none of them; the law `runs` reports why, the others are skipped."""

    name: str
    reason: str


def suited(
    cases: Iterable[C],
    attempt: Callable[[C], Any],
    reason: str,
    refusals: tuple[type[Exception], ...] = (AssayError,),
) -> list[C] | list[Unsuited]:
    """Returns the cases in which an attempt is not refused; if none is left, the reason in their place."""
    found = []
    for case in cases:
        try:
            attempt(case)
        except refusals:
            continue
        found.append(case)
    return found or [Unsuited("every task", reason)]


class Memo(Generic[R]):
    """What parts give on one input, by identity, so that laws that need the same result compute it once.

    It lives in the input, and every check has its own copies of inputs: code that changes between two checks is run.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, R]] = {}

    def __call__(self, part: Any, compute: Callable[[], R]) -> R:
        """Returns the result for this part, computed the first time."""
        if id(part) not in self.known:
            self.known[id(part)] = (part, compute())  # with the part: an id belongs to an object that is alive
        return self.known[id(part)][1]


Test = Callable[[Any, Any], Iterator[str]]


def always(part: Any) -> bool:
    """Returns true: the law applies to every part of the slot."""
    return True


@dataclass(frozen=True)
class Law:
    """One law: its key, its statement, its test of (part, case), and the parts that it applies to; `once` if the test
    has inputs of its own, whatever the case.
    """

    name: str
    says: str
    test: Test
    binds: Callable[[Any], bool] = always
    once: bool = False


def law(says: str, binds: Callable[[Any], bool] = always, *, once: bool = False) -> Callable[[Test], Law]:
    """Makes a law from a test; the test's name is its key."""

    def made(test: Test) -> Law:
        return Law(test.__name__, says, test, binds, once)

    return made


def declares(attribute: str) -> Callable[[Any], bool]:
    """Returns a condition: the law applies to parts with the attribute set."""
    return lambda part: bool(getattr(part, attribute, False))


@law("it runs on at least one kind of task")
def runs(part: Any, case: Any) -> Iterator[str]:
    """Some input suits the part."""
    if isinstance(case, Unsuited):
        yield case.reason


@dataclass(frozen=True)
class Contract:
    """The laws of a slot. `cases` gives a part's inputs; `holder` puts a small part into the part that uses it."""

    slot: str
    laws: tuple[Law, ...]
    cases: Callable[[Any], Sequence[Named]]
    holder: Callable[[Any], Any] = lambda part: part

    def binding(self, part: Any) -> list[Law]:
        """Returns the laws that apply to this part."""
        held = settled(self.holder(part))
        return [one for one in self.laws if is_bound(one, held)]

    def check(self, part: Any, cases: Sequence[Named] | None = None, only: str = "") -> list[Finding]:
        """Returns all findings, or that of the law `only`; an unknown law in `breaks` is a finding too."""
        held = settled(self.holder(part))
        inputs = [fresh(case) for case in (self.cases(held) if cases is None else cases)]
        excused = declared_breaks(held)
        laws = (runs,) if any(isinstance(case, Unsuited) for case in inputs) else self.laws
        found: list[Finding] = []
        for one in laws:
            if only in ("", one.name) and is_bound(one, held):
                broke = first_break(one, held, inputs)
                found.append(judged(one, broke, excused))
                if broke is not None and broke.raised and one is laws[0]:
                    break  # the other laws would only report the same
        own = getattr(held, "breaks", {})
        unknown = sorted(set(own if isinstance(own, Mapping) else ()) - {one.name for one in self.laws})
        if unknown and not only:
            known = ", ".join(one.name for one in self.laws)
            found.append(
                Finding("breaks", False, f"`breaks` names no law of this slot: {', '.join(unknown)}; laws: {known}")
            )
        return found


def fresh(case: Named) -> Named:
    """Returns a copy of an input that remembers nothing."""
    return replace(case) if is_dataclass(case) and not isinstance(case, type) else case


def settled(part: Any) -> Any:
    """Returns the part with its schedules at their start and a task's limit, as the loop resolves it; a schedule itself
    is unchanged.
    """
    if is_schedule(part) or not is_dataclass(part):
        return part
    return replaced(resolved(part, Progress()), LimitReader, lambda reader: reader.with_limit(LIMIT))


def is_bound(one: Law, part: Any) -> bool:
    """Returns whether the law applies to the part; true if the condition raises, so that the law reports why."""
    try:
        return one.binds(part)
    except (Exception, SystemExit) as error:
        return bool(raised(error))


def declared_breaks(part: Any) -> dict[str, str]:
    """Returns the breaks that a part, or a part inside it, declares."""
    found: dict[str, str] = {}
    for _, below in children(part):
        found |= declared_breaks(below)
    own = getattr(part, "breaks", {})
    return found | dict(own) if isinstance(own, Mapping) else found


class Broke(NamedTuple):
    """A break: what was wrong, on which input, and whether the part raised it."""

    detail: str
    input: str
    raised: bool


def judged(one: Law, broke: Broke | None, excused: Mapping[str, str]) -> Finding:
    """Returns the finding of one law: held, broken on a case, broken as declared, or declared and stale."""
    reason = excused.get(one.name)
    if broke is None and reason is None:
        return Finding(one.name, True, one.says)
    if broke is None:
        return Finding(one.name, False, f"stale: `breaks` lists it ({reason}), but it holds; remove the entry")
    if reason is not None:
        return Finding(one.name, True, f"broken as declared: {reason}", broke.input)
    return Finding(one.name, False, f"{one.says}; here {broke.detail}", broke.input)


def first_break(one: Law, part: Any, cases: Iterable[Named]) -> Broke | None:
    """Returns the first break, or None; an exception of the part is a break, SystemExit too."""
    for case in islice(cases, 1 if one.once else None):
        try:
            for detail in one.test(part, case):
                return Broke(detail, case.name, raised=False)
        except (Exception, SystemExit) as error:
            return Broke(str(error) if isinstance(error, AssayError) else f"it {raised(error)}", case.name, raised=True)
    return None


def raised(error: BaseException) -> str:
    """Returns an exception, and its place in a user's code, in one line."""
    text = str(error).strip().splitlines()
    return f"raises {type(error).__name__}" + (f": {text[0][:200]}" if text else "") + at_place(error)


def assert_laws(findings: Iterable[Finding]) -> None:
    """Raises AssertionError that names each broken law and its input."""
    broken = [finding for finding in findings if not finding.held]
    if broken:
        raise AssertionError("\n".join(str(finding) for finding in broken))


# ---------------------------------------------------------------------------------------------------- comparing
def gap(mine: Tensor, other: Tensor) -> float:
    """Computes the largest difference relative to 1 + the largest value; infinite if shapes differ. Equal infinities
    and NaN at the same places do not count as a difference: the law `finite` is about them."""
    if mine.shape != other.shape:
        return float("inf")
    first, second = mine.detach().double(), other.detach().double()
    apart = ~((first == second) | (first.isnan() & second.isnan()))
    if not bool(apart.any()):
        return 0.0
    size = second[torch.isfinite(second)].abs()
    difference = (first - second)[apart].abs().max() / (1.0 + (size.max() if len(size) else 0.0))
    return float(difference) if bool(torch.isfinite(difference)) else float("inf")


def shown(value: Tensor) -> str:
    """Formats a tensor in a few characters."""
    flat = value.detach().reshape(-1)
    numbers = ", ".join(f"{float(number):.6g}" for number in flat[:6])
    return numbers if value.dim() == 0 else f"[{numbers}{', ...' if len(flat) > 6 else ''}]"


def is_finite(value: Tensor) -> bool:
    """Returns whether all numbers are finite."""
    return bool(torch.isfinite(value).all())


@contextmanager
def other_streams(seed: int) -> Iterator[None]:
    """Sets the global random streams of torch, numpy and Python to another state; restores them afterwards."""
    states = np.random.get_state(), python_random.getstate()  # noqa: NPY002 - a careless part would use this stream
    with random.seeded(seed):
        np.random.seed(seed)  # noqa: NPY002
        python_random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(states[0])  # noqa: NPY002
            python_random.setstate(states[1])
