"""Laws of targets and of fits: what a critic's loss is composed of. Axes: B sequences, T columns, N critics."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.claims.laws.trials import BenchView, TermCase, seen_by, watched_columns
from assay.claims.laws.benches import STANDARD, Bench
from assay.claims.laws.critic import ends, targets
from assay.claims.laws.laws import TIGHT, Contract, Unsuited, gap, law, shown
from assay.claims.laws.term import COMMON, cases_on
from assay.core.record import Experience, Loss, Need, Scored
from assay.core.slots import Regression, Target, View
from assay.core.slots.terms import Prediction
from assay.parts.critics.td import Td, over_members
from assay.parts.fits.squared import Squared
from assay.parts.predictions import OfState
from assay.parts.targets.one_step import NextValue


@dataclass(frozen=True)
class Summed:
    """A target as a term that sums it over its decisions, so that the laws of terms apply to it."""

    target: Target
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Returns number of decisions that have a target."""
        return self.target.rows(batch).num_decisions

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns targets of ensembles are averaged."""
        rows = self.target.rows(batch)
        return Loss((over_members(self.target(batch, view)) * rows.weight).sum(), self.count(batch))


def cases_with_targets(part: Summed | Td, benches: Sequence[Bench] = STANDARD) -> list[TermCase] | list[Unsuited]:
    """Returns inputs in which every decision has a target: none in the last column if the next step is needed."""
    cases = cases_on(part, benches)

    def is_whole(batch: Experience) -> bool:
        return part.target.rows(batch).num_columns == batch.num_columns or not bool(batch.mask[:, -1].any())

    kept = [case for case in cases if isinstance(case, TermCase) and is_whole(case.batch)]
    return kept or [case for case in cases if isinstance(case, Unsuited)]


def viewed(part: Any, case: TermCase) -> tuple[Experience, BenchView]:
    """Returns the case's batch, whose columns take gradient, and a view of it."""
    record, outputs = seen_by(part, case.batch)
    record = watched_columns(record)
    return record, BenchView(case.bench, record, Scored(**outputs))


# ---------------------------------------------------------------------------------------------------- targets
@law("a target carries no gradient")
def still(part: Summed, case: TermCase) -> Iterator[str]:
    """Neither from recorded columns nor from models that are trained."""
    if part.target(*viewed(part, case)).requires_grad:
        yield "the target requires gradient: compute it under torch.no_grad() and detach recorded columns"


@law("a target has the axes [..., B, T] of its decisions")
def axes(part: Summed, case: TermCase) -> Iterator[str]:
    """One for each decision, members of an ensemble in front."""
    record, view = viewed(part, case)
    shape, wanted = part.target(record, view).shape, part.target.rows(record).mask.shape
    if shape[-2:] != wanted:
        yield f"the shape is {tuple(shape)}, its decisions are {tuple(wanted)}"


TARGET = Contract("target", (*COMMON, still, axes, ends), cases_with_targets, Summed)


# ---------------------------------------------------------------------------------------------------- fits
@law("a decision's loss depends on its own target alone")
def alone(part: Td, case: TermCase) -> Iterator[str]:
    """The first decision's target moves."""
    record, view = viewed(part, case)
    rows, target = part.target.rows(record), part.target(record, view)
    first = rows.mask & (rows.mask.flatten().cumsum(0).view_as(rows.mask) == 1)
    before, after = (part.fit(part.of, rows, aim, view).loss.detach() for aim in (target, target + 0.1 * first))
    if gap(torch.where(first, 0.0, after), torch.where(first, 0.0, before)) > TIGHT:
        yield f"the losses of other decisions are {shown(after)} instead of {shown(before)}"


@law("the gradient moves the prediction towards the target, from either side")
def pulls(part: Td, case: TermCase) -> Iterator[str]:
    """Up to 200 steps, since wide bins are slow, on the loss of the first decision of a row, for a constant target."""
    alone = replace(case, batch=case.batch.rows(case.batch.mask.any(1).nonzero()[0]))
    for side in (-0.5, 0.5):
        record, view = viewed(part, alone)
        name, rows = part.of.model, part.target.rows(record)
        model = view.asked[name] = copy.deepcopy(view.model(name))
        first = rows.mask & (rows.mask.flatten().cumsum(0).view_as(rows.mask) == 1)
        aim = (part.of(model, rows) + side).detach()
        step = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], 0.03)
        left = abs(side)
        for _ in range(200):
            step.zero_grad()
            (over_members(part.fit(part.of, rows, aim, view).loss) * first).sum().backward()
            step.step()
            left = float((over_members((part.of(model, rows) - aim).abs()) * first).sum().detach())
            if left < 0.7 * abs(side):
                break
        else:
            yield f"the target was {abs(side)} from the prediction, and after 200 steps it is {left:.3g} from it"


def held(fit: Regression) -> Td:
    """Returns a fit in the loss of a state value."""
    return Td(NextValue(value="value"), fit, OfState("value"))


FIT = Contract("fit", (*COMMON, targets, alone, pulls), cases_with_targets, held)


# ---------------------------------------------------------------------------------------------------- predictions
def fitted(prediction: Prediction) -> Td:
    """Returns the prediction inside the loss of a critic, fitted to what follows."""
    return Td(NextValue(value="value"), Squared(), prediction)


PREDICTION = Contract("prediction", (*COMMON, targets, alone, pulls), cases_with_targets, fitted)
