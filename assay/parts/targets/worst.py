"""The worst that is to come: a target for what must never happen. Axes: B sequences, T columns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.settings import model_name
from assay.core.slots import Target, View


@dataclass(frozen=True)
class WorstToCome(Target):
    """y = (1 - discount) h + discount * max(h, V(s')): h if terminal, not a sum of costs.

    h is `harm` if the decision cost something, else -1. A violation that cannot be avoided k decisions ahead has y =
    discount^k (harm + 1) - 1: it is visible up to ln(harm + 1) / -ln(discount) decisions ahead, which is the purpose
    of a large `harm`. V is the critic `value`. Source: arXiv:2401.10700. Assumes costs of
    violations alone. Degenerate: where nothing costs it is -1 everywhere.
    """

    discount: float = 0.99
    harm: float = 25.0
    value: str = model_name("harm")

    def harm_of(self, now: Experience) -> Tensor:
        """Returns h [B, T]."""
        safe = torch.full_like(now.reward, -1.0)
        return safe if now.cost is None else torch.where((now.cost > 0).any(-1), self.harm, safe)

    def backed_up(self, now: Experience, value_next: Tensor) -> Tensor:
        """Returns y for decisions with these next values, [B, T]; no gradient."""
        harm = self.harm_of(now)
        later = (1.0 - self.discount) * harm + self.discount * torch.maximum(harm, value_next)
        return torch.where(now.terminal, harm, later).detach()

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        """Returns targets [B, T]."""
        return self.backed_up(batch.now, view.model(self.value)(batch.after.context))
