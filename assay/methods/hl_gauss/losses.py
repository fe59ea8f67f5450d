"""Values learned by classification: a target becomes a label over the critic's bins, fitted by cross-entropy.

    loss = -sum_i label_i(y) * log softmax(outputs)_i          y: whatever the method would have regressed on

What the target is (a return, a TD target) and how it is fitted are apart: each loss here takes the squared loss whose
target it fits. The gradient in the outputs is softmax - label, at most 2 in sum, however wrong the value is. Targets
beyond the bins are moved to the nearer end and counted in `beyond_bins`. Axes: B, T, N critics, M bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.slots import Aggregation, CriticLoss, View
from assay.methods.hl_gauss.bins import gaussian_labels, two_hot_labels
from assay.models.heads.bins import Bins, decoded
from assay.parts.aggregations import OverTransitions, TokenMean, Weighed
from assay.parts.critics.q import DoubleQLearning, SoftTwinLoss


class Label(Protocol):
    """A number as a distribution over bins."""

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """[..., M], sums to one."""


class Target(Protocol):
    """What a temporal-difference loss regresses on."""

    def target(self, batch: Experience, view: View) -> Tensor:
        """y [B, T] for the columns of `batch.now`, without gradient."""


@dataclass(frozen=True)
class HlGauss:
    """A Gaussian of `spread` bin widths around the target, cut into the bins (arXiv:2403.03950)."""

    spread: float = 0.75
    not_a_part: ClassVar[str] = "a setting of the losses below"

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Sums to one."""
        return gaussian_labels(number, bins, self.spread)


@dataclass(frozen=True)
class TwoHot:
    """The target between its two nearest bins."""

    not_a_part: ClassVar[str] = "a setting of the losses below"

    def __call__(self, number: Tensor, bins: Bins) -> Tensor:
        """Sums to one."""
        return two_hot_labels(number, bins)


def cross_entropy(outputs_M: Tensor, target: Tensor, bins: Bins, label: Label) -> Tensor:
    """-sum_i label_i(target) * log softmax(outputs)_i, [...]; no gradient in the target."""
    return -(label(target.detach(), bins) * outputs_M.log_softmax(-1)).sum(-1)


def is_beyond(target: Tensor, bins: Bins) -> Tensor:
    """Whether the bins cannot express the target."""
    return (target < bins.low) | (target > bins.high)


@dataclass(frozen=True)
class ClassifyReturns(Weighed, CriticLoss):
    """Cross-entropy of the critic `value` to the column `return`, weighed as the aggregation says."""

    label: Label = HlGauss()
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """The weighed sum over decisions."""
        critic, target = view.model("value"), batch.column("return").detach()
        loss = cross_entropy(critic.outputs(batch.context), target, critic.bins, self.label)
        beyond = (is_beyond(target, critic.bins) & batch.mask).sum()
        metrics = {"beyond_bins": (beyond, batch.num_decisions)}
        return Loss((loss * self.aggregate.weigh(batch)).sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class ClassifyActionValues(OverTransitions, CriticLoss):
    """Cross-entropy of the actor's own action values to a TD target (double DQN's unless told)."""

    td: Target = DoubleQLearning()
    label: Label = HlGauss()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Of the bins of the action that was taken."""
        now, actor = batch.now, view.model("actor")
        outputs = actor.outputs(now.context)
        place = now.action[..., None, None].expand(*now.action.shape, 1, outputs.shape[-1])
        chosen, target = outputs.gather(-2, place).squeeze(-2), self.td.target(batch, view)
        loss = cross_entropy(chosen, target, actor.bins, self.label) * now.weight
        value = decoded(chosen.detach(), actor.bins) * now.weight
        beyond = (is_beyond(target, actor.bins) & now.mask).sum()
        metrics = {"q": (value.sum(), now.num_decisions), "beyond_bins": (beyond, now.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class ClassifyTwins(OverTransitions, CriticLoss):
    """Cross-entropy of every member of the critic `q` to one TD target (SAC's unless told), summed over members."""

    td: Target = SoftTwinLoss()
    label: Label = HlGauss()

    def __call__(self, batch: Experience, view: View) -> Loss:
        """The target is encoded once, from decoded values."""
        now, critic = batch.now, view.model("q")
        target = self.td.target(batch, view)
        loss = cross_entropy(critic.outputs(now.context, now.action), target, critic.bins, self.label) * now.weight
        beyond = (is_beyond(target, critic.bins) & now.mask).sum()
        return Loss(loss.sum(), self.count(batch), {"beyond_bins": (beyond, now.num_decisions)})
