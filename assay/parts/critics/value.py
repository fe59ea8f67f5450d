"""The loss of state-value critics. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, CriticLoss, View
from assay.parts.aggregations import TokenMean, Weighed


@dataclass(frozen=True)
class ValueLoss(Weighed, CriticLoss):
    """coefficient * (V(s_t) - return_t)^2 / 2, decisions weighed as the aggregation says.

    `return` is the column that the credit wrote (advantage + value for GAE); it carries no gradient. A critic of costs
    is another `critic` with another `target`.
    """

    coefficient: float = 1.0
    aggregate: Aggregation = TokenMean()
    critic: str = "value"
    target: str = "return"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared error of the critic."""
        error = view.model(self.critic)(batch.context) - batch.column(self.target).detach()
        weight = self.aggregate.weigh(batch)
        half_square = 0.5 * error.square()
        metrics = {f"{self.critic}_error": ((error.detach().square() * batch.weight).sum(), batch.num_decisions)}
        return Loss(self.coefficient * (half_square * weight).sum(), self.count(batch), metrics)
