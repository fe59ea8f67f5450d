"""Cloning by several policies at once. Axes: N members, B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import Objective, View


@dataclass(frozen=True)
class DiverseLikelihood(Objective):
    """sum_i -log pi_i(a|s) - diversity * (log pi_i(a|s) - max over j != i of log pi_j(a|s)), j without gradient.

    Uni-O4's ensemble of behaviour policies (arXiv:2311.03351). Since the others are constants, its gradient is (1 +
    diversity) times cloning's: members differ by their initial weights. Degenerate: one member is plain cloning.
    """

    diversity: float = 0.1
    actor: str = model_name("actor")
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "likelihood does not read credit"}

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of decisions."""
        return batch.num_decisions

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the negative log-likelihoods of all members, and each one's distance from the best other."""
        logp = view.model(self.actor).all_logp(batch)
        loss = -logp
        if len(logp) > 1:
            loss = loss - self.diversity * (logp - best_other(logp.detach()))
        metrics = {"nll": (-logp.detach().mean(0).sum(), batch.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)


def best_other(logp_NBT: Tensor) -> Tensor:
    """Returns max over j != i, for each i: the best of all, and for the best itself the second."""
    (best, second), first = logp_NBT.topk(2, 0).values, logp_NBT.argmax(0)
    itself = torch.arange(len(logp_NBT), device=first.device).view(-1, 1, 1) == first
    return torch.where(itself, second, best)
