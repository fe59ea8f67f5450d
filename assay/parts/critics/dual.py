"""Values learned from what was recorded alone: implicit maxima, one-step targets, mixtures. Axes: B, T, N critics.

Every loss reads a critic `q` (copy `q_target`) and a critic `value`; no action that is not in the record is evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from assay.core.record import Experience, Loss, Origin
from assay.core.slots import CriticLoss, View
from assay.parts.aggregations import OverTransitions
from assay.parts.critics.conjugates import Conjugate, TotalVariation
from assay.parts.critics.q import one_step_target, squared_errors


@dataclass(frozen=True)
class ImplicitMaximum(OverTransitions, CriticLoss):
    """level * F(z) - (1 - level) * z,  z = (min_i Q'_i(s, a) - V(s)) / scale, at most `clip`; gradient into V alone.

    V becomes a maximum over recorded actions that no maximisation was needed for (f-DVL, arXiv:2302.08560). F of total
    variation makes it the quantile of level (2 level - 1) / level; of reverse KL, with level 1/2, it is XQL's
    (arXiv:2301.02328) scale * log E exp(Q / scale), where `clip` cuts the gradient as its authors do. Degenerate: with
    total variation nothing holds V up at level 1/2, where it falls to the lowest value, nor below, where it has no end.
    """

    divergence: Conjugate = TotalVariation()
    level: float = 0.8
    scale: float = 1.0
    clip: float = 1e9

    def __call__(self, batch: Experience, view: View) -> Loss:
        """The implicit maximum's loss."""
        now, value = batch.now, view.model("value")(batch.now.context)
        with torch.no_grad():
            best = view.model("q_target")(now.context, now.action).amin(0)
        z = ((best - value) / self.scale).clamp(max=self.clip)
        loss = (self.level * self.divergence.surrogate(z) - (1.0 - self.level) * z) * now.weight
        return Loss(loss.sum(), self.count(batch), {"v": ((value.detach() * now.weight).sum(), now.num_decisions)})


@dataclass(frozen=True)
class ToNextValue(OverTransitions, CriticLoss):
    """sum_i (Q_i(s, a) - r - discount * V(s'))^2 / 2: the critic's half of IQL, XQL and f-DVL."""

    discount: float = 0.99

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors of all critics."""
        with torch.no_grad():
            value_next = view.model("value")(batch.after.context)
        return squared_errors(batch.now, view, one_step_target(batch.now, value_next, self.discount), self.count(batch))


@dataclass(frozen=True)
class MatchMixture(OverTransitions, CriticLoss):
    """ReCOIL's critic with chi-square (arXiv:2302.08560), rewards ignored, y = discount * V(s') - Q(s, a):

        -share * E_expert[Q(s, a)] + E_mix[y^2] / 4,   mix = share * expert + (1 - share) * others

    Up on expert decisions, consistent everywhere, so that visits match as mixtures and no expert state has to be in the
    other data. Rows whose `source` is TEACHER are the expert's; an update holds as many of them as of others. Without
    any of them consistency alone is left.
    """

    share: float = 0.5
    discount: float = 0.99

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Contrast and consistency, summed over the critics."""
        now = batch.now
        expert = torch.zeros(len(batch), 1) if now.source is None else (now.source == Origin.TEACHER).unsqueeze(1)
        expert = expert.to(now.weight) * now.weight
        with torch.no_grad():
            value_next = view.model("value")(batch.after.context)
        q = view.model("q")(now.context, now.action)
        error = self.discount * value_next * (~now.terminal) - q
        # An expectation over half of the rows is twice their share of the mean over all.
        mixed = 2.0 * (self.share * expert + (1.0 - self.share) * (now.weight - expert))
        loss = (0.25 * mixed * error.square() - 2.0 * self.share * expert * q).sum()
        return Loss(loss, self.count(batch), {"q": ((q.detach().mean(0) * now.weight).sum(), now.num_decisions)})
