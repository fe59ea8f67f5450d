"""Laws of annotations: columns that a model computes without gradient. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.bench import term_cases
from assay.claims.laws.trials import leaf
from assay.claims.laws.benches import STANDARD, Bench
from assay.claims.laws.invariance import Measured, changed_columns, invariances
from assay.claims.laws.laws import TIGHT, Contract, Unsuited, gap, is_finite, law, runs, shown
from assay.claims.laws.term import littered
from assay.core.record import Experience, Origin
from assay.core.slots import Over

OWN = frozenset(field.name for field in fields(Experience))
"""Names that an annotation cannot take: the record's own columns."""
STANDS_FOR = ("value", "q", "actor")
"""Models that are tried in place of one that a bench does not have."""


@dataclass(frozen=True, eq=False)
class AnnotationCase:
    """A batch, and the bench whose models compute the column."""

    name: str
    batch: Experience
    bench: Bench
    model: str

    def over(self, rows_at_once: int = 0) -> Over:
        """Returns the function that the annotation calls: on all rows at once, or on this many."""

        def on_rows(experience: Experience, function: Any) -> Tensor:
            with torch.no_grad():
                parts = torch.arange(len(experience)).split(rows_at_once or max(1, len(experience)))
                return torch.cat([function(self.bench.model(self.model), experience.rows(rows)) for rows in parts])

        return on_rows

    def column(self, part: Any, batch: Experience | None = None, rows_at_once: int = 0) -> Tensor:
        """Returns the annotation's column on the case's batch, or on another."""
        given = (self.batch if batch is None else batch).map(torch.clone)
        found: Tensor = part(given, self.over(rows_at_once))
        return found


def annotation_cases(part: Any) -> list[AnnotationCase] | list[Unsuited]:
    """Returns the benches on which it can be computed; every second row is a demonstration."""
    found: list[AnnotationCase] = []
    refused = ""
    for bench in STANDARD:
        known = part.model in bench.models or bench.source_of(part.model) is not None
        for model in (part.model,) if known else STANDS_FOR:
            cases = [AnnotationCase(one.name, mixed(one.batch), bench, model) for one in term_cases(None, bench)]
            try:
                cases[0].column(part)
            except Exception as error:
                refused = f"{bench.name}: {type(error).__name__}: {error}"
                continue
            found += cases
            break
    return found or [Unsuited("every bench", f"no model can compute it; last {refused}")]


def mixed(batch: Experience) -> Experience:
    """Returns the batch with demonstrations between the policy's own rows, and rewards of which some are a success."""
    shown_rows = torch.arange(len(batch)) % 2 == 1
    origin = torch.where(shown_rows, int(Origin.TEACHER), int(Origin.POLICY))
    last = batch.mask & (batch.mask.flip(1).cumsum(1).flip(1) == 1)
    return replace(batch, source=origin, reward=batch.reward + 2.0 * last)


@law("it names its column and its model, and takes no name of the record")
def declared(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Both are words."""
    for name in ("column", "model"):
        value = getattr(part, name)
        if not isinstance(value, str) or not value:
            yield f"{name} is {value!r}"
    if part.column in OWN:
        yield f"the record has a column '{part.column}' of its own"


@law("it gives a finite column [B, T, ...]")
def shape(part: Any, case: AnnotationCase) -> Iterator[str]:
    """One entry, or one vector, for each place."""
    column = case.column(part)
    if column.shape[:2] != case.batch.mask.shape:
        yield f"its shape is {tuple(column.shape)} for a batch of {tuple(case.batch.mask.shape)}"
    elif not is_finite(column):
        yield f"it is {shown(column[~torch.isfinite(column)])}"


@law("inputs are not modified")
def unmodified(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Neither the batch nor the model."""
    model = case.bench.model(case.model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    batch = case.batch.map(torch.clone)
    part(batch, case.over())
    yield from changed_columns(case.batch, batch)
    yield from (
        f"{name} changed" for name, value in model.state_dict().items() if not torch.equal(value, weights[name])
    )


@law("it carries no gradient")
def no_gradient(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Even where the record does; models are called without."""
    extra = {name: leaf(value) if value.is_floating_point() else value for name, value in case.batch.extra.items()}
    batch = replace(case.batch, reward=leaf(case.batch.reward), logp=leaf(case.batch.logp), extra=extra)
    if part(batch, case.over()).requires_grad:
        yield f"column {part.column} requires gradient"


@law("a column that speaks of decisions is zero where the mask is false", attrgetter("of_decisions"))
def masked(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Values there do not change the column either."""
    column, hole = case.column(part), ~case.batch.mask
    if bool((column[hole] != 0).any()):
        yield f"it is {shown(column[hole][column[hole] != 0])} where the mask is false"
    if gap(case.column(part, littered(case.batch)), column) > TIGHT:
        yield "it depends on what stands where the mask is false"


@law("permuting rows permutes the column, and micro-batches do not change it")
def rows(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Rows in reverse order; a model that sees two rows at once."""
    plain, reverse = case.column(part), torch.arange(len(case.batch)).flip(0)
    if gap(case.column(part, case.batch.rows(reverse)), plain[reverse]) > TIGHT:
        yield "rows in another order get other numbers"
    if gap(case.column(part, rows_at_once=2), plain) > TIGHT:
        yield "a model that sees two rows at once gives other numbers"


SAME = invariances(lambda part, case, batch: Measured({f"column {part.column}": case.column(part, batch)}))
LAWS = (runs, declared, shape, SAME.repeats, unmodified, no_gradient, masked, SAME.padding, rows)
ANNOTATION = Contract("annotation", LAWS, annotation_cases)
check_annotation = ANNOTATION.check
"""Checks the laws of an annotation."""
