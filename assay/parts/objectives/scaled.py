"""Policy improvement by a critic in units of its own scale. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import Annotation, Objective, Over, View
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class ValueSize(Annotation):
    """Column `q_size`: the mean of |Q_1(s, a)| over the batch's recorded decisions, the same number in every column.

    Source: TD3+BC, arXiv:2106.06860. Assumes critics of actions. Degenerate: 0 without decisions.
    """

    model: str = model_name("q")
    column: ClassVar[str] = "q_size"
    means: ClassVar[str] = "BT: mean absolute action value of the batch"
    of_decisions: ClassVar[bool] = False

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        """Returns the column [B, T]."""
        size = over(experience, lambda q, part: q.first(part.context, part.action).abs())
        mean = (size * experience.weight).sum() / experience.num_decisions.clamp(min=1)
        return mean.expand_as(experience.mask).clone()


@dataclass(frozen=True)
class MaximizeScaledQ(OverTransitions, Objective):
    """loss = -weight * Q_1(s, mu(s)) / mean |Q_1(s, a)| (TD3+BC, arXiv:2106.06860): the same for Q and 10 Q.

    The mean is over the whole update's recorded decisions and has no gradient. Degenerate: a mean below 1e-6 counts
    as 1e-6. Assumes a deterministic actor.
    """

    weight: float = 2.5
    actor: str = model_name("actor")
    q: str = model_name("q")
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critic's gradient, not the column `advantage`"}

    @property
    def needs(self) -> frozenset[Need | Annotation]:  # type: ignore[override]
        """Returns the annotation of the critic's scale."""
        return frozenset({ValueSize(self.q)})

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns minus the first critic's value of the actor's own action, in units of the critic's scale."""
        now = batch.now
        value = view.model(self.q).first(now.context, view.model(self.actor).decide(now.context)) * now.weight
        loss = -self.weight * value / now.column("q_size").detach().clamp(min=1e-6)
        return Loss(loss.sum(), self.count(batch), {"q": (value.detach().sum(), now.num_decisions)})
