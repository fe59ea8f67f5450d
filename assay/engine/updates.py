"""The result of one optimizer step, the origin of a fault, and what is wrong with a loss.

Losses, norms and slopes are single numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, Sums
from assay.core.slots import Term
from assay.engine.batching import units


class Flaw(Enum):
    """What can be wrong with a loss, whatever the data are."""

    MASKED = "it has a gradient at masked decisions"
    ENTROPY = "it grows with the entropy"
    COUNT = "its counts do not add up"


@dataclass(frozen=True)
class Slip:
    """A flaw of a term, which is named."""

    flaw: Flaw
    term: str


@dataclass
class Update:
    """The result of one optimizer step: (sum, count) metrics and faults.

    `fault` says why a step was skipped (its gradient is not finite), `slips` are flaws of its
    losses. A step without any decision is skipped and is not a fault. On a GPU a fault becomes known when
    the update is settled; until then it keeps its batch, in which the origin can be found. With shards `norms` are
    those of the parts of each gradient.
    """

    stage: str = ""
    batch: Experience | None = None
    sums: Sums = field(default_factory=dict)
    fault: str = ""
    is_skipped: bool = False
    slips: list[Slip] = field(default_factory=list)
    norms: list[Tensor] = field(default_factory=list)

    def settle(self) -> None:
        """Reads the gradient's norm, for which the host waits; a norm that is not finite is a fault, not a metric."""
        batch, name = self.batch, f"gradient_norm/{self.stage}"
        self.batch = None  # settled once; and the batch's memory is free
        if batch is not None and name in self.sums and not bool(torch.isfinite(self.sums[name][0][0])):
            # A mean over a step with NaN in it would hide the other updates.
            del self.sums[name]
            self.is_skipped = True
            if bool(batch.mask.any()):
                where = origin_of_fault(batch, self.sums)
                self.fault = f"the gradient of stage '{self.stage}' is not finite{where}"


def origin_of_fault(batch: Experience, sums: Sums) -> str:
    """Returns where numbers that are not finite occur: columns of the batch and losses."""
    columns = [
        f"column {name} has {int((~torch.isfinite(column[batch.mask])).sum())}"
        for name, column in batch.per_decision()
        if column.is_floating_point() and not bool(torch.isfinite(column[batch.mask]).all())
    ]
    losses = [
        f"{name} is {float(value)}"
        for name, entries in sums.items()
        for value, _ in entries
        if not bool(torch.isfinite(value))
    ]
    found = [*columns, *losses]
    return f" ({'; '.join(found)})" if found else " (losses and columns are finite: it overflowed in the backward pass)"


def slips_of(term: Term, value: Loss, view: Any) -> list[Slip]:
    """Returns the flaws of a term's loss on one micro-batch. A term whose entry in `breaks` says why may grow with the
    entropy.
    """
    mask, found = view.batch.mask, list[Flaw]()
    if Need.LOGP in term.needs and bool((slope_at(value.sum, view.scored.logp)[~mask] != 0).any()):
        found.append(Flaw.MASKED)
    if Need.ENTROPY in term.needs and "entropy" not in getattr(term, "breaks", {}):
        entropy = view.scored.entropy
        if entropy is not None and float(slope_at(value.sum, entropy)[mask].sum()) > 0.0:
            found.append(Flaw.ENTROPY)
    if not counts_add_up(term, view.batch):
        found.append(Flaw.COUNT)
    return [Slip(flaw, term.title) for flaw in found]


def slope_at(loss: Tensor, values: Tensor) -> Tensor:
    """Returns the gradient of a loss at some values, zeros without one."""
    if not loss.requires_grad or not values.requires_grad:
        return torch.zeros_like(values)
    return torch.autograd.grad(loss, values, retain_graph=True, allow_unused=True, materialize_grads=True)[0]


def counts_add_up(term: Term, batch: Experience) -> bool:
    """Returns whether the counts of two halves of a batch add up to that of the batch; rows that the term keeps
    together stay so. True for a batch that cannot be split.
    """
    rows = torch.arange(len(batch), device=batch.mask.device)
    labels = units(batch, frozenset() if term.together is None else frozenset({term.together})).to(rows.device)
    names = labels.unique()
    # Halves of units, not of rows: a group that is cut has another count by right.
    is_first = torch.isin(labels, names[: len(names) // 2])
    halves = [batch.rows(rows[is_first]), batch.rows(rows[~is_first])]
    if not all(bool(half.mask.any()) for half in halves):
        return True
    counts = [float(term.count(one)) for one in (batch, *halves)]
    return abs(counts[0] - counts[1] - counts[2]) <= 1e-4 * abs(counts[0])


def clip_scale(norm: Tensor, limit: float) -> Tensor:
    """Returns the factor for a gradient of this norm: min(1, limit / norm), 1 if the limit is 0; NaN if the norm is
    not finite.

    Computed on the device: checking a norm on the host would wait for the device at every update. In float64, so that
    limit / norm has one rounding when it becomes float32.
    """
    return torch.where(norm.isfinite(), ((limit or torch.inf) / norm.double()).clamp(max=1.0), torch.nan)
