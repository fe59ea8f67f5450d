"""ReCOIL's critic: matches mixtures of expert and other data. Axes: B sequences, T decisions, N critics."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from assay.core.record import Experience, Loss, Origin
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, View
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class MatchMixture(OverTransitions, CriticLoss):
    """ReCOIL's critic with chi-square (arXiv:2302.08560), rewards ignored, y = discount * V(s') - Q(s, a):

        -share * E_expert[Q(s, a)] + E_mix[y^2] / 4,   mix = share * expert + (1 - share) * others

    Raises Q on expert decisions and asks for consistency everywhere, so that visitations match as mixtures and the
    other data need not contain expert states. Rows whose `source` is TEACHER are the expert's; an update holds
    equally many of both kinds. Degenerate: without expert rows only the consistency term is left.
    """

    share: float = 0.5
    discount: float = 0.99
    q: str = model_name("q")
    value: str = model_name("value")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns contrast and consistency, summed over the critics."""
        now = batch.now
        expert = torch.zeros(len(batch), 1) if now.source is None else (now.source == Origin.TEACHER).unsqueeze(1)
        expert = expert.to(now.weight) * now.weight
        with torch.no_grad():
            value_next = view.model(self.value)(batch.after.context)
        q = view.model(self.q)(now.context, now.action)
        error = self.discount * value_next * (~now.terminal) - q
        # An expectation over half of the rows is twice their share of the mean over all rows.
        mixed = 2.0 * (self.share * expert + (1.0 - self.share) * (now.weight - expert))
        loss = (0.25 * mixed * error.square() - 2.0 * self.share * expert * q).sum()
        return Loss(loss, self.count(batch), {"q": ((q.detach().mean(0) * now.weight).sum(), now.num_decisions)})
