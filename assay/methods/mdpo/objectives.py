"""Mirror descent: a KL to the behaviour policy instead of a clip, or to an older policy. Axes: B, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import Objective, Schedule, TrustRegion, View, number
from assay.parts.aggregations import OverTransitions
from assay.parts.objectives.trust import LARGEST_LOG_RATIO


@dataclass(frozen=True)
class MirrorDescent(TrustRegion):
    """-A * ratio + (ratio * log ratio - ratio + 1) / step_size: MDPO, on-policy (arXiv:2005.09814).

    The second term, averaged over the behaviour policy, is KL(pi || pi_old), with the KL's gradient: an estimate from
    the recorded decisions alone, not negative and 0 at ratio 1, for discrete and continuous actions. The averaged
    loss is smallest at pi_old * exp(step_size * A) / Z. Nothing is clipped. Degenerate: at ratio 1 it is REINFORCE.
    """

    step_size: float | Schedule = 1.0
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "without credit it pulls towards the behaviour policy"}

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, whether the ratio was bounded to stay finite)."""
        bounded = log_ratio.clamp(max=LARGEST_LOG_RATIO)
        ratio = bounded.exp()
        proximity = ratio * bounded - ratio + 1.0
        return -advantage * ratio + proximity / number(self.step_size), log_ratio > LARGEST_LOG_RATIO


@dataclass(frozen=True)
class MirrorDescentQ(OverTransitions, Objective):
    """loss = (log pi(a|s) - log pi_old(a|s)) / step_size - min_i Q_i(s, a), a reparameterised: MDPO, off-policy.

    Averaged over the policy's own actions at states of the replay, the first term is KL(pi || pi_old)
    (arXiv:2005.09814): pi_old is the copy `old`, which gets no gradient. The loss is smallest at pi_old exp(step_size
    Q) / Z.
    Degenerate: at pi = pi_old only the critics move the policy.
    """

    step_size: float | Schedule = 1.0
    q: str = model_name("q")
    old: str = model_name("old")
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critic's gradient, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the KL to the old policy minus the value of the actor's own action."""
        now = batch.now
        action, logp = view.sampled
        old = view.model(self.old).score(replace(now, action=action), frozenset({Need.LOGP})).logp
        value = view.model(self.q)(now.context, action).amin(0)
        loss = ((logp - old) / number(self.step_size) - value) * now.weight
        metrics = {"kl_old": (((logp - old).detach() * now.weight).sum(), now.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)
