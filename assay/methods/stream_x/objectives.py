"""The actor's loss on a stream, accumulated by an eligibility trace. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import Objective, View
from assay.methods.stream_x.traces import decided_and_seen, td_error, trace_metrics
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class TracePolicy(OverTransitions, Objective):
    """loss = -(log pi(a_t|s_t) + entropy * sign(delta_t) * H(pi(.|s_t))), delta the critic's TD error: AC(lambda).

    arXiv:2410.14606. The optimizer traces this gradient and moves along delta * trace, so that the sign makes the
    entropy of the current decision rise for either sign of delta.
    """

    discount: float = 0.99
    entropy: float = 0.01
    value: str = model_name("value")
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP, Need.ENTROPY})
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {
        "zero_credit": "credit is the metric `td_error`, which the optimizer multiplies by",
        "entropy": "the optimizer multiplies by the TD error, whose sign is in the term already",
    }

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns minus log-probability and signed entropy, and the TD error as a metric."""
        now, critic, scored = decided_and_seen(batch), view.model(self.value), view.scored
        assert scored.entropy is not None
        with torch.no_grad():
            delta = td_error(now, critic(now.context), critic(batch.after.context), self.discount)
        logp, entropy = scored.logp[:, :-1], scored.entropy[:, :-1]
        gained = (logp + self.entropy * delta.sign() * entropy) * now.weight
        spread = {"entropy": ((entropy.detach() * now.weight).sum(), now.num_decisions)}
        return Loss(-gained.sum(), self.count(batch), spread | trace_metrics(now, delta))
