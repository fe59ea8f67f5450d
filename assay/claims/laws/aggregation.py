"""Laws of aggregations: the weights that reduce decisions to one number. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.cases import Case, experiences
from assay.claims.laws.invariance import Measured, differing, invariances, keeps_inputs
from assay.claims.laws.laws import Contract, is_finite, law, shown
from assay.claims.laws.term import ROW_COLUMNS
from assay.core.record import Experience
from assay.engine.batching import whole_units


def weighed(part: Any, batch: Experience) -> tuple[Tensor, Tensor]:
    """Returns (weights [B, T], count)."""
    return part.weigh(batch.map(torch.clone)), torch.as_tensor(part.count(batch.map(torch.clone)))


def measured(part: Any, case: Case, batch: Experience) -> Measured:
    """Returns weights and count by name."""
    weight, count = weighed(part, batch)
    return Measured({"weights": weight}, {"the count": count.double()})


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


@law("in micro-batches weights stay the same and counts add up")
def micro_batches(part: Any, case: Case) -> Iterator[str]:
    """Splits that keep whole what must stay together."""
    splits = list(whole_units(case.batch, frozenset() if part.together is None else frozenset({part.together}), 1))
    parts = [weighed(part, case.batch.rows(rows)) for rows in splits]
    weight = torch.cat([one for one, _ in parts])[torch.argsort(torch.cat(splits))]
    whole = Measured({"weights": weight}, {"the count": torch.stack([one.double() for _, one in parts]).sum()})
    for detail in differing(whole, measured(part, case, case.batch)):
        yield f"in {len(splits)} micro-batches {detail}; it must not divide by what a micro-batch holds"


@law("an empty mask gives weights 0 and count 0")
def empty(part: Any, case: Case) -> Iterator[str]:
    """No decision at all."""
    weight, count = weighed(part, replace(case.batch, mask=torch.zeros_like(case.batch.mask)))
    if bool((weight != 0).any()) or float(count) != 0.0:
        yield f"weights are {shown(weight)}, the count {shown(count)}"


LAWS = (
    weights,
    declared,
    *invariances(measured),
    keeps_inputs(lambda part, case, batch: (part.weigh(batch), part.count(batch))),
    micro_batches,
    empty,
)
AGGREGATION = Contract("aggregation", LAWS, lambda part: experiences())
check_aggregation = AGGREGATION.check
"""Checks the laws of an aggregation."""
