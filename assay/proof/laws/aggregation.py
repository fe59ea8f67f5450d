"""Laws of aggregations: the weights that reduce decisions to one number. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience, pad
from assay.engine.batching import whole_units
from assay.proof.laws.bench import columns_of
from assay.proof.laws.cases import Case, experiences, with_dtype
from assay.proof.laws.laws import LOOSE, TIGHT, Contract, Finding, gap, is_finite, law, other_streams, shown
from assay.proof.laws.term import ROW_COLUMNS


def weighed(part: Any, batch: Experience) -> tuple[Tensor, Tensor]:
    """Returns (weights [B, T], count)."""
    return part.weigh(batch.map(torch.clone)), torch.as_tensor(part.count(batch.map(torch.clone)))


def apart(mine: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], limit: float = TIGHT) -> Iterator[str]:
    """Yields what differs between two results that must agree."""
    if gap(mine[0], other[0]) > limit:
        yield f"weights are {shown(mine[0])} instead of {shown(other[0])}"
    if gap(mine[1], other[1]) > limit:
        yield f"the count is {shown(mine[1])} instead of {shown(other[1])}"


@law("weights have the shape [B, T], are finite, not negative, and zero where masked; the count is one number")
def weights(part: Any, case: Case) -> Iterator[str]:
    """What the engine can use."""
    weight, count = weighed(part, case.batch)
    if weight.shape != case.batch.mask.shape or count.dim():
        shapes = f"{tuple(weight.shape)} and {tuple(count.shape)}"
        yield f"weights and count have shapes {shapes} for a batch of {tuple(case.batch.mask.shape)}"
    elif not is_finite(weight) or bool((weight < 0).any()) or float(count) < 0:
        yield f"weights are {shown(weight)}, the count {shown(count)}"
    elif bool((weight[~case.batch.mask] != 0).any()):
        yield f"weights are {shown(weight[~case.batch.mask])} where the mask is false"


@law("it says which rows stay together")
def declared(part: Any, case: Case) -> Iterator[str]:
    """None, or a column of rows."""
    if part.together is not None and part.together not in ROW_COLUMNS:
        yield f"together is {part.together!r}; it is None or one of {', '.join(ROW_COLUMNS)}"


@law("equal inputs give equal outputs")
def repeats(part: Any, case: Case) -> Iterator[str]:
    """Two calls, with the global random streams at different places."""
    with other_streams(1):
        first = weighed(part, case.batch)
    with other_streams(2):
        yield from apart(weighed(part, case.batch), first, 0.0)


@law("inputs are not modified")
def unmodified(part: Any, case: Case) -> Iterator[str]:
    """The batch is as it was."""
    batch = case.batch.map(torch.clone)
    _ = part.weigh(batch), part.count(batch)
    before = dict(columns_of(case.batch))
    yield from (f"column {name} changed" for name, value in columns_of(batch) if not torch.equal(value, before[name]))


@law("float32 and float64 agree")
def dtype(part: Any, case: Case) -> Iterator[str]:
    """The same in single precision, up to rounding, and in the precision of the rewards."""
    weight, count = weighed(part, case.batch)
    if weight.dtype != torch.float64:
        yield f"weights of a float64 batch are {weight.dtype}"
    yield from apart(weighed(part, with_dtype(case.batch, torch.float32)), (weight, count), LOOSE)


@law("extra padding changes nothing")
def padding(part: Any, case: Case) -> Iterator[str]:
    """Three more columns with mask false."""
    num = case.batch.num_columns
    weight, count = weighed(part, pad(case.batch, num + 3))
    yield from apart((weight[:, :num], count), weighed(part, case.batch))


@law("permuting rows permutes the result")
def permutation(part: Any, case: Case) -> Iterator[str]:
    """Rows in reverse order."""
    order = torch.arange(len(case.batch)).flip(0)
    weight, count = weighed(part, case.batch)
    yield from apart(weighed(part, case.batch.rows(order)), (weight[order], count))


@law("in micro-batches weights stay the same and counts add up")
def micro_batches(part: Any, case: Case) -> Iterator[str]:
    """Splits that keep whole what must stay together."""
    weight, count = weighed(part, case.batch)
    splits = list(whole_units(case.batch, frozenset() if part.together is None else frozenset({part.together}), 1))
    parts = [weighed(part, case.batch.rows(rows)) for rows in splits]
    back = torch.argsort(torch.cat(splits))
    whole = torch.cat([one for one, _ in parts])[back], torch.stack([one.double() for _, one in parts]).sum()
    for detail in apart(whole, (weight, count)):
        yield f"in {len(splits)} micro-batches {detail}; it must not divide by what a micro-batch holds"


@law("an empty mask gives weights 0 and count 0")
def empty(part: Any, case: Case) -> Iterator[str]:
    """No decision at all."""
    weight, count = weighed(part, replace(case.batch, mask=torch.zeros_like(case.batch.mask)))
    if bool((weight != 0).any()) or float(count) != 0.0:
        yield f"weights are {shown(weight)}, the count {shown(count)}"


LAWS = (weights, declared, repeats, unmodified, dtype, padding, permutation, micro_batches, empty)
AGGREGATION = Contract("aggregation", LAWS, lambda part: experiences())


def check_aggregation(part: Any) -> list[Finding]:
    """Checks the laws of an aggregation."""
    return AGGREGATION.check(part)
