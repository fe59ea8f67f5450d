"""Policy improvement through the gradient of a critic. Axes: B sequences, T decisions, N critics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from assay.core.errors import AssayError
from assay.core.metrics import Metric
from assay.core.record import Experience, Loss
from assay.core.settings import model_name
from assay.core.slots import Objective, View
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class MaximizeQ(OverTransitions, Objective):
    """loss = -Q_1(s, mu(s)): the deterministic policy gradient (DDPG, TD3, arXiv:1802.09477).

    Degenerate: a critic that ignores the action gives the actor no gradient. Assumes a deterministic, differentiable
    actor.
    """

    actor: str = model_name("actor")
    q: str = model_name("q")
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critic's gradient, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        now = batch.now
        action = view.model(self.actor).decide(now.context)
        value = view.model(self.q).first(now.context, action) * now.weight
        return Loss(-value.sum(), self.count(batch), {"q": (value.detach().sum(), now.num_decisions)})


@dataclass(frozen=True)
class MaximizeSoftQ(OverTransitions, Objective):
    """loss = temperature * log pi(a|s) - min_i Q_i(s, a), a reparameterised: SAC (arXiv:1812.05905).

    With `averaged`, the mean of the critics is in place of their minimum: RLPD (arXiv:2302.02948). Degenerate: with one
    critic, `averaged` changes nothing. Assumes an actor whose samples are differentiable.
    """

    q: str = model_name("q")
    temperature: str = model_name("temperature")
    averaged: bool = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "credit is the critic's gradient, not the column `advantage`"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        now = batch.now
        action, logp = view.sampled
        values = view.model(self.q)(now.context, action)
        value = values.mean(0) if self.averaged else values.amin(0)
        loss = (view.model(self.temperature)().detach() * logp - value) * now.weight
        count = now.num_decisions
        metrics = {
            "q": ((value.detach() * now.weight).sum(), count),
            "entropy": ((-logp.detach() * now.weight).sum(), count),
        }
        return Loss(loss.sum(), self.count(batch), metrics)


MOST_ENTROPY = math.log(2.0)
"""Entropy of one dimension if all actions between the bounds are equally likely."""
ENTROPY_SHORT = Metric(
    name="entropy_short",
    most=3.0,
    guard="temperature settles",
    text="the entropy of the policy is {value:.1f} nats a dimension below its target at step {step}: the temperature "
    "grows and does not reach it. Lower the target (MatchEntropy.target), or scale the rewards (--normalize reward)",
)


@dataclass(frozen=True)
class MatchEntropy(OverTransitions, Objective):
    """loss = -log_temperature * (log pi(a|s) + target * dimensions): tunes SAC's temperature to a target entropy.

    The target entropy is `target` x action dimensions, in half-ranges; the authors use target = -1 (arXiv:1812.05905).
    `entropy_short` is how far the entropy of a dimension is below it. Degenerate: if the mean of -log pi is the target
    entropy, the temperature gets no gradient. Assumes continuous actions.
    """

    target: float = -1.0
    temperature: str = model_name("temperature")
    watches: ClassVar[tuple[Metric, ...]] = (ENTROPY_SHORT,)
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "reads the entropy, not the column `advantage`"}

    def __post_init__(self) -> None:
        if not self.target < MOST_ENTROPY:
            what = f"MatchEntropy.target is {self.target}, and a dimension of bounded actions has less than log 2"
            raise AssayError(f"{what} = 0.693 nats: the temperature would grow without end. Use less, such as -1")

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the loss of the temperature; the policy gets no gradient."""
        now = batch.now
        temperature, (action, logp) = view.model(self.temperature), view.sampled
        gap = (logp.detach() + self.target * action.shape[-1]) * now.weight
        loss = -temperature.log_value * gap.sum()
        count = self.count(batch)
        metrics = {
            "temperature": (temperature().detach() * count, count),
            "entropy_short": (gap.sum() / action.shape[-1], count),
        }
        return Loss(loss, count, metrics)
