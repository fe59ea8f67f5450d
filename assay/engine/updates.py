"""The result of one optimizer step, and the origin of a fault."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.core.record import Experience, Sums


@dataclass
class Update:
    """The result of one optimizer step: (sum, count) metrics and faults.

    `fault` says why a step was skipped (its gradient is not finite), `leaks` names terms whose loss has a gradient at
    masked decisions. A step without any decision is skipped and is not a fault. On a GPU a fault becomes known when
    the update is settled; until then it keeps its batch, in which the origin can be found. With shards `norms` are
    those of the parts of each gradient.
    """

    stage: str = ""
    batch: Experience | None = None
    sums: Sums = field(default_factory=dict)
    fault: str = ""
    is_skipped: bool = False
    leaks: list[str] = field(default_factory=list)
    norms: list[Tensor] = field(default_factory=list)

    def settle(self) -> None:
        """Reads the gradient's norm, for which the host waits; a norm that is not finite is a fault, not a metric."""
        batch, name = self.batch, f"gradient_norm/{self.stage}"
        self.batch = None  # settled once; and the batch's memory is free
        if batch is not None and name in self.sums and not bool(torch.isfinite(self.sums[name][0][0])):
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


def leaks(loss: Tensor, logp: Tensor, mask: Tensor) -> bool:
    """Returns whether the loss has a gradient at masked decisions."""
    if not loss.requires_grad or not logp.requires_grad:
        return False
    (slope,) = torch.autograd.grad(loss, logp, retain_graph=True, allow_unused=True, materialize_grads=True)
    return bool((slope[~mask] != 0).any())


def clip_scale(norm: Tensor, limit: float) -> Tensor:
    """Returns the factor for a gradient of this norm: min(1, limit / norm), 1 if the limit is 0; NaN if the norm is
    not finite.

    Computed on the device: checking a norm on the host would wait for the device at every update. In float64, so that
    limit / norm has one rounding when it becomes float32.
    """
    return torch.where(norm.isfinite(), ((limit or torch.inf) / norm.double()).clamp(max=1.0), torch.nan)
