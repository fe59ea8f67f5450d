"""Laws of annotations: columns that a model computes without gradient. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience, Origin, pad
from assay.core.slots import Over
from assay.proof.laws.bench import STANDARD, Bench, columns_of, leaf, term_cases
from assay.proof.laws.laws import TIGHT, Contract, Finding, Unsuited, gap, is_finite, law, other_streams, runs, shown
from assay.proof.laws.term import littered

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


def of_decisions(part: Any) -> bool:
    """Returns whether the column is about decisions."""
    return bool(part.of_decisions)


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


@law("equal inputs give equal outputs")
def repeats(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Two calls, with the global random streams at different places."""
    with other_streams(1):
        first = case.column(part)
    with other_streams(2):
        if not torch.equal(case.column(part), first):
            yield "two calls gave different columns"


@law("inputs are not modified")
def unmodified(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Neither the batch nor the model."""
    model = case.bench.model(case.model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    batch = case.batch.map(torch.clone)
    part(batch, case.over())
    before = dict(columns_of(case.batch))
    yield from (f"column {name} changed" for name, value in columns_of(batch) if not torch.equal(value, before[name]))
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


@law("a column that speaks of decisions is zero where the mask is false", of_decisions)
def masked(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Values there do not change the column either."""
    column, hole = case.column(part), ~case.batch.mask
    if bool((column[hole] != 0).any()):
        yield f"it is {shown(column[hole][column[hole] != 0])} where the mask is false"
    if gap(case.column(part, littered(case.batch)), column) > TIGHT:
        yield "it depends on what stands where the mask is false"


@law("extra padding changes nothing")
def padding(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Three more columns with mask false."""
    num = case.batch.num_columns
    if gap(case.column(part, pad(case.batch, num + 3))[:, :num], case.column(part)) > TIGHT:
        yield f"column {part.column} differs with three more columns"


@law("permuting rows permutes the column, and micro-batches do not change it")
def rows(part: Any, case: AnnotationCase) -> Iterator[str]:
    """Rows in reverse order; a model that sees two rows at once."""
    plain, reverse = case.column(part), torch.arange(len(case.batch)).flip(0)
    if gap(case.column(part, case.batch.rows(reverse)), plain[reverse]) > TIGHT:
        yield "rows in another order get other numbers"
    if gap(case.column(part, rows_at_once=2), plain) > TIGHT:
        yield "a model that sees two rows at once gives other numbers"


ANNOTATION = Contract(
    "annotation",
    (runs, declared, shape, repeats, unmodified, no_gradient, masked, padding, rows),
    annotation_cases,
)


def check_annotation(part: Any) -> list[Finding]:
    """Checks the laws of an annotation."""
    return ANNOTATION.check(part)
