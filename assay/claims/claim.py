"""Claims of methods: exact ones (identities, every commit) and measured ones (paired seeds against a rival).

Tensors have any shape.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Task


@dataclass(frozen=True)
class Finding:
    """The result of an exact claim."""

    claim: str
    value: float
    expected: str
    holds: bool


@dataclass(frozen=True)
class Exact:
    """A number that must equal, or be at most or at least, another: true for every seed, computed in milliseconds.

    Exactly one of `equals`, `at_most`, `at_least` is given; `tolerance` belongs to `equals`. Every exact claim rejects
    a mutant that no earlier one of its method does, except those that only illustrate (`illustrates`), at most two, and
    those about what mutants are not made of: `of` names it (a variant, a preset, target networks, sources, phases,
    schedules, theory, refusals).
    """

    name: str
    function: Callable[[], Any]
    equals: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    tolerance: float = 1e-6
    illustrates: bool = False
    of: str = ""

    def __post_init__(self) -> None:
        given = [bound for bound in (self.equals, self.at_most, self.at_least) if bound is not None]
        if len(given) != 1:
            raise AssayError(f"exact claim '{self.name}' needs exactly one of equals, at_most, at_least")
        if not takes(self.function, 0):
            what = f"has function={self.function!r}; give a function without arguments"
            raise AssayError(f"exact claim '{self.name}' {what} that returns a number")
        for name, number in (("the bound", given[0]), ("tolerance", self.tolerance)):
            if not isinstance(number, int | float) or math.isnan(number):
                raise AssayError(f"exact claim '{self.name}' has {number!r} as {name}; give a number")

    def run(self) -> Finding:
        """Computes the number and compares it; a note of an exception names the claim."""
        try:
            value = self.function()
        except Exception as error:
            error.add_note(f"It was raised by the exact claim '{self.name}'")
            raise
        number = float(value.detach()) if isinstance(value, torch.Tensor) else float(value)
        if self.equals is not None:
            return Finding(
                self.name,
                number,
                f"= {self.equals:g} (within {self.tolerance:g})",
                abs(number - self.equals) <= self.tolerance,
            )
        if self.at_most is not None:
            return Finding(self.name, number, f"<= {self.at_most:g}", number <= self.at_most)
        assert self.at_least is not None
        return Finding(self.name, number, f">= {self.at_least:g}", number >= self.at_least)


def takes(function: Any, num: int) -> bool:
    """Returns whether a function can be called with so many arguments; True where Python does not know them."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(num))
    except TypeError:
        return False
    except ValueError:  # written in C
        return True
    return True


# ---------------------------------------------------------------------------------------------------- measured
class Expect(Enum):
    """The relation that a measured claim states for d = ours - theirs, on the mean over seeds."""

    ABOVE = "d > margin"
    BELOW = "d < -margin"
    WITHIN = "-margin <= d <= margin"

    def verdict(self, low: float, high: float, margin: float) -> str:
        """Returns holds or fails if the interval [low, high] of d decides it, else inconclusive."""
        if self is Expect.BELOW:
            low, high = -high, -low
        if self is Expect.WITHIN:
            inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
        else:
            inside, outside = low > margin, high < margin
        return "holds" if inside else "fails" if outside else "inconclusive"

    def seeds_to_decide(self, value: float, low: float, high: float, margin: float, seeds: int) -> float:
        """Returns with about how many seeds the interval would decide it, if d stays `value`: its ends approach d as
        1 / sqrt(seeds); infinity where d is on the limit.
        """
        limits = {Expect.ABOVE: (margin,), Expect.BELOW: (-margin,), Expect.WITHIN: (-margin, margin)}[self]
        reach = [(value - low if limit <= value else high - value, abs(value - limit)) for limit in limits]
        return seeds * max(half / gap if gap else math.inf for half, gap in reach) ** 2


class About(Enum):
    """What a measured claim is about. `assay list` shows the verdict of the headline alone."""

    HEADLINE = "headline"
    """What the paper's abstract promises: its own quantity, of the whole method, against a rival that it names."""
    MECHANISM = "mechanism"
    """The effect by which the promise should come true: entropy kept, clipped shares, better credit, or no loss."""
    COMPONENT = "component"
    """One part of the method, or a control."""


Curves = Sequence[Mapping[str, Any]]
"""The lines of metrics.jsonl."""


@dataclass(frozen=True)
class Final:
    """The last value of a metric; `evaluation` is the held-out score."""

    metric: str = "evaluation"

    def __call__(self, curves: Curves) -> float:
        """Returns the last value."""
        return values_of(curves, self.metric)[-1]


@dataclass(frozen=True)
class Gain:
    """The last value of a metric minus the first."""

    metric: str = "evaluation"

    def __call__(self, curves: Curves) -> float:
        """Returns last minus first."""
        values = values_of(curves, self.metric)
        return values[-1] - values[0]


@dataclass(frozen=True)
class Dip:
    """The lowest value of a metric minus the first: the largest loss during training, or 0."""

    metric: str = "evaluation"

    def __call__(self, curves: Curves) -> float:
        """Returns lowest minus first, never above 0."""
        values = values_of(curves, self.metric)
        return min(values) - values[0]


@dataclass(frozen=True)
class Average:
    """The mean of a metric over the last `share` of the steps."""

    metric: str
    share: float = 1.0

    def __call__(self, curves: Curves) -> float:
        """Returns the mean over the lines that have the metric."""
        begin = (1.0 - self.share) * curves[-1]["step"]
        late = values_of([row for row in curves if row["step"] >= begin], self.metric)
        return sum(late) / len(late)


@dataclass(frozen=True)
class DecisionsTo:
    """Decisions until a metric first reaches `level`; a run that never does counts its whole budget."""

    level: float
    metric: str = "evaluation"

    def __call__(self, curves: Curves) -> float:
        """Returns the decisions at the first line that reaches it."""
        reached = [row for row in curves if row.get(self.metric) is not None and row[self.metric] >= self.level]
        return float((reached[0] if reached else curves[-1]).get("decisions_total", 0))


def values_of(curves: Curves, metric: str) -> list[float]:
    """Returns the metric's values; raises AssayError naming the known metrics if it is missing."""
    values = [float(row[metric]) for row in curves if row.get(metric) is not None]
    if not values:
        known = ", ".join(sorted({name for row in curves for name in row} - {"step", "time"}))
        raise AssayError(f"no step has the metric '{metric}'; there are {known}")
    return values


@runtime_checkable
class OfPolicy(Protocol):
    """A metric of a trained policy on its task, for `Measured.metric` in place of a metric of curves."""

    def of(self, policy: Any, task: Task) -> float:
        """Returns the number."""


@runtime_checkable
class OfBoth(Protocol):
    """A metric of the curves of both sides with one seed, for `Measured.metric`: where one is read depends on the
    other.
    """

    def of_both(self, ours: Curves, theirs: Curves) -> tuple[float, float]:
        """Returns the numbers of ours and theirs."""


@dataclass(frozen=True)
class Computed:
    """A side that is computed by a function of the seed, and a small version of it, which is its stamp.

        Computed(lambda seed: error(seed), small=lambda seed: error(seed, steps=5))

    `small` runs the same code for at most a second, and returns a number that any change of that code changes: a mean,
    not a share that is 0 or 1. It takes no clock.
    """

    function: Callable[[int], float]
    small: Callable[[int], float]

    def __call__(self, seed: int) -> float:
        """Returns the measured number."""
        return self.function(seed)


@dataclass(frozen=True)
class Measured:
    """A comparison on paired seeds whose decision rule is stated in advance.

        d = mean over seeds of metric(ours) - metric(theirs)

    Holds if the 95 % interval of d lies inside what `expect` and `margin` allow, fails if it lies outside, else
    inconclusive. A negative margin makes ABOVE a claim of non-inferiority. A side is a recipe, trained on `task`, or
    a function from seed to score, a `Computed` where that takes seconds; `theirs` may be a number. `steps` and `warmup`
    are the budget of both sides, None each recipe's own; `minutes` is the planned cost. `about` says whether it decides
    what the paper promises.

    With several `looks`, an undecided claim gets `seeds` further seeds, up to `looks` times as many in all; the
    interval at every look has level 1 - 0.05 / looks, so that the chance of a wrong verdict stays 5 %. No look begins
    after `minutes` of compute.
    """

    name: str
    task: str
    ours: Recipe | Callable[[int], float]
    theirs: Recipe | Callable[[int], float] | float
    metric: Callable[[Curves], float] | OfPolicy | OfBoth = Final()
    expect: Expect = Expect.ABOVE
    margin: float = 0.0
    seeds: int = 10
    minutes: float = 5.0
    steps: int | None = None
    warmup: int | None = None
    looks: int = 1
    about: About = About.MECHANISM

    def __post_init__(self) -> None:
        if wrong := next(self._problems(), None):
            raise AssayError(f"measured claim '{self.name}' {wrong}")

    def _problems(self) -> Iterator[str]:
        """Yields what is wrong with the arguments, each with the fix."""
        for name, value, kind in (("expect", self.expect, Expect), ("about", self.about, About)):
            if not isinstance(value, kind):
                words = ", ".join(f"{kind.__name__}.{one.name}" for one in kind)
                yield f"has {name}={value!r}; give one of {words}"
        if not isinstance(self.ours, Recipe) and not takes(self.ours, 1):
            yield f"has ours={self.ours!r}; give a recipe, or a function from seed to score"
        if not isinstance(self.theirs, Recipe | int | float) and not takes(self.theirs, 1):
            yield f"has theirs={self.theirs!r}; give a recipe, a function from seed to score, or a number"
        if self.ours is self.theirs or (isinstance(self.ours, Recipe) and self.ours == self.theirs):
            yield "compares a side with itself; give a rival that differs"
        if not isinstance(self.metric, OfPolicy | OfBoth) and not callable(self.metric):
            yield f"has metric={self.metric!r}; give one such as Final('pass_rate') or PassAt(8)"
        if isinstance(self.metric, OfBoth) and not all(isinstance(side, Recipe) for side in (self.ours, self.theirs)):
            yield f"has metric={self.metric!r}, which compares two curves; give two recipes"
        if not self.task and any(isinstance(side, Recipe) for side in (self.ours, self.theirs)):
            yield "trains a recipe without a task; name one"
        for name, number, least in (("looks", self.looks, 1), ("steps", self.steps, 1), ("warmup", self.warmup, 0)):
            if number is not None and (not isinstance(number, int) or number < least):
                yield f"has {name}={number}; give {least} or more"
        if not isinstance(self.seeds, int) or self.seeds < 2:
            yield f"has {self.seeds} seeds; an interval needs at least 2"
        if not self.minutes > 0:
            yield f"has minutes={self.minutes}; give the planned cost, above 0"
        if not math.isfinite(self.margin) or (self.expect is Expect.WITHIN and self.margin < 0):
            yield f"has margin {self.margin}; give 0 or more"

    @property
    def rule(self) -> str:
        """Returns the decision rule in words."""
        where = {
            Expect.ABOVE: f"above {self.margin:g}",
            Expect.BELOW: f"below {-self.margin:g}",
            Expect.WITHIN: f"between {-self.margin:g} and {self.margin:g}",
        }[self.expect]
        several = f", up to {self.looks} times until decided" if self.looks > 1 else ""
        level = f"{100 * self.level:g} %"
        return f"holds if the {level} interval of ours - theirs ({self.seeds} paired seeds{several}) lies {where}"

    @property
    def level(self) -> float:
        """The level of the interval at each look: 0.95 for one look."""
        return 1.0 - 0.05 / self.looks


@dataclass(frozen=True)
class Edit:
    """A mutant written by hand: `function` with the source text `old`, which occurs once in it, replaced by `new`.

    For mistakes that no rule of `assay.claims.mutants.rules` makes. The exact claims must reject it.
    """

    name: str
    function: Any
    old: str
    new: str


@dataclass(frozen=True)
class Claims:
    """What a method promises, and the wrong versions of it that the exact claims must reject.

    `mutants` are written by hand, beside those that rules make; `equivalent` maps the description of a mutant that no
    claim can reject to the reason.
    """

    claims: tuple[Exact | Measured, ...] = ()
    mutants: tuple[Edit, ...] = ()
    equivalent: Mapping[str, str] = field(default_factory=dict)

    @property
    def exact(self) -> tuple[Exact, ...]:
        """Returns the exact claims."""
        return tuple(claim for claim in self.claims if isinstance(claim, Exact))

    @property
    def measured(self) -> tuple[Measured, ...]:
        """Returns the measured claims."""
        return tuple(claim for claim in self.claims if isinstance(claim, Measured))
