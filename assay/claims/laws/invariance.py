"""Laws that many slots share, stated once: what a part computes from a batch depends on its decisions alone.

A slot gives a `Measure`, the results of a part on a batch by name, and gets the laws. Axes: B rows, T decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.claims.laws.trials import columns_of
from assay.claims.laws.cases import with_dtype
from assay.claims.laws.laws import LOOSE, TIGHT, Law, always, gap, law, other_streams, shown
from assay.core.record import Experience, pad


@dataclass(frozen=True)
class Measured:
    """Results by name: those of rows, [B] or [B, T, ...], and those of the whole batch."""

    columns: Mapping[str, Tensor]
    whole: Mapping[str, Tensor] = field(default_factory=dict)

    def rows(self, order: Tensor) -> Measured:
        """Returns the results of these rows."""
        return replace(self, columns={name: value[order] for name, value in self.columns.items()})


Measure = Callable[[Any, Any, Experience], Measured]
"""(part, case, batch) -> results; the batch is not the case's own memory."""


def apart(mine: Mapping[str, Tensor], other: Mapping[str, Tensor], limit: float = TIGHT) -> Iterator[str]:
    """Yields results that differ, or that are there once only."""
    for name in {**mine, **other}:
        if name not in mine or name not in other:
            yield f"{name} is written once and not the other time"
        elif gap(mine[name], other[name]) > limit:
            yield f"{name} is {shown(mine[name])} instead of {shown(other[name])}"


def differing(mine: Measured, other: Measured, limit: float = TIGHT) -> Iterator[str]:
    """Yields all results that differ."""
    yield from apart({**mine.whole, **mine.columns}, {**other.whole, **other.columns}, limit)


class Invariances(NamedTuple):
    """The laws of one measure."""

    repeats: Law
    dtype: Law
    padding: Law
    permutation: Law


def invariances(
    measure: Measure,
    limit: float = TIGHT,
    binds: Callable[[Any], bool] = always,
    plain: Callable[[Any, Any], Measured] | None = None,
) -> Invariances:
    """Returns the laws of a measure, up to a relative gap of `limit`; `plain` gives the results on a case itself."""

    def measured(part: Any, case: Any, batch: Experience | None = None) -> Measured:
        if batch is None and plain is not None:
            return plain(part, case)
        return measure(part, case, (case.batch if batch is None else batch).map(torch.clone))

    return Invariances(*laws_of_numbers(measured, binds), *laws_of_rows(measured, limit, binds))


def laws_of_numbers(measured: Callable[..., Measured], binds: Callable[[Any], bool]) -> tuple[Law, Law]:
    """Returns the laws that a measure repeats itself, and agrees with itself in single precision."""

    @law("equal inputs give equal outputs", binds)
    def repeats(part: Any, case: Any) -> Iterator[str]:
        """Two calls, with the global random streams at different places."""
        with other_streams(1):
            first = measured(part, case)
        with other_streams(2):
            yield from differing(measured(part, case, case.batch), first, 0.0)

    @law("float32 and float64 agree", binds)
    def dtype(part: Any, case: Any) -> Iterator[str]:
        """The same in single precision, up to rounding; float64 stays float64."""
        double = measured(part, case)
        for name, value in {**double.whole, **double.columns}.items():
            if value.is_floating_point() and value.dtype != torch.float64:
                yield f"{name} of a float64 batch is {value.dtype}"
        yield from differing(measured(part, case, with_dtype(case.batch, torch.float32)), double, LOOSE)

    return repeats, dtype


def laws_of_rows(measured: Callable[..., Measured], limit: float, binds: Callable[[Any], bool]) -> tuple[Law, Law]:
    """Returns the laws that padding and the order of rows change no result, up to a relative gap of `limit`."""

    @law("extra padding changes nothing", binds)
    def padding(part: Any, case: Any) -> Iterator[str]:
        """Three more columns with mask false."""
        num = case.batch.num_columns
        longer = measured(part, case, pad(case.batch, num + 3))
        short = {name: value if value.dim() < 2 else value[:, :num] for name, value in longer.columns.items()}
        yield from differing(replace(longer, columns=short), measured(part, case), limit)

    @law("permuting rows permutes the result", binds)
    def permutation(part: Any, case: Any) -> Iterator[str]:
        """Rows in reverse order, and rotated."""
        plain, num = measured(part, case), len(case.batch)
        for order in (torch.arange(num).flip(0), torch.arange(num).roll(2)):
            yield from differing(measured(part, case, case.batch.rows(order)), plain.rows(order), limit)

    return padding, permutation


def changed_columns(before: Experience, after: Experience) -> Iterator[str]:
    """Yields columns that were added, removed or changed."""
    then, now = dict(columns_of(before)), dict(columns_of(after))
    if then.keys() != now.keys():
        yield f"columns were added or removed: {sorted(then.keys() ^ now.keys())}"
    same = then.keys() & now.keys()
    yield from (f"column {name} changed" for name in sorted(same) if not torch.equal(then[name], now[name]))


def keeps_inputs(call: Callable[[Any, Any, Experience], Any], says: str = "inputs are not modified") -> Law:
    """Returns the law that a call leaves its batch as it was."""

    @law(says)
    def unmodified(part: Any, case: Any) -> Iterator[str]:
        """Every column before and after."""
        batch = case.batch.map(torch.clone)
        call(part, case, batch)
        yield from changed_columns(case.batch, batch)

    return unmodified
