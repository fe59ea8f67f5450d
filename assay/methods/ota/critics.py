"""Values of goals, V(s, g), and their expectile regression. Axes: B sequences, T columns, N heads, R numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss
from assay.core.slots import CriticLoss, CriticSpec, View
from assay.core.spaces import Context, Spec
from assay.models.bodies.perceptron import Ensemble, feature_size, features, perceptron
from assay.parts.aggregations import OverTransitions
from assay.parts.critics.q import one_step_target


class RepresentedValue(nn.Module):
    """V_i(s, g) = f_i(s, phi(s, g)), phi of length sqrt(R): N heads that know the goal by its representation alone."""

    def __init__(self, spec: Spec, size: int, num: int, hidden: Sequence[int]) -> None:
        super().__init__()
        num_inputs = feature_size(spec)
        num_seen = num_inputs - (spec.goal.size if spec.goal is not None else 0)
        self.phi = perceptron(num_inputs, size, hidden, activation=nn.ReLU)
        self.heads = Ensemble(num, num_seen + size, 1, hidden)

    def represent(self, context: Context) -> Tensor:
        """phi(s, g) [..., R]."""
        return of_length_root(self.phi(features(context)))

    def forward(self, context: Context) -> Tensor:
        """Values [N, B, T]."""
        rows = torch.cat((context["observation"], self.represent(context)), -1)
        return self.heads(rows.flatten(0, -2)).view(-1, *rows.shape[:-1])


def heads(value: Tensor) -> Tensor:
    """Values [N, B, T]; AssayError where a critic has no heads."""
    if value.dim() != 3:
        raise AssayError("ExpectileTd needs a critic with heads, [N, B, T]; use GoalValue()")
    return value


def of_length_root(vector: Tensor) -> Tensor:
    """The vector with length sqrt(R)."""
    return vector.shape[-1] ** 0.5 * nn.functional.normalize(vector, dim=-1)


@dataclass(frozen=True)
class GoalValue(CriticSpec):
    """`num` values V(s, g) behind a representation of `size` numbers (HIQL, arXiv:2307.11949)."""

    hidden: tuple[int, ...] = (128, 128)
    size: int = 10
    num: int = 2

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if spec.goal is None:
            raise AssayError("GoalValue needs a task with goals, this one has none; take four-rooms or a pointmaze")
        return RepresentedValue(spec, self.size, self.num, self.hidden)


@dataclass(frozen=True)
class ExpectileTd(OverTransitions, CriticLoss):
    """sum_i w (y_i - V_i(s, g))^2,  y_i = r + discount * V'_i(s', g);  w = level where A >= 0, else 1 - level

        A = r + discount * min_i V'_i(s', g) - mean_i V'_i(s, g)

    The implicit value learning of HIQL (arXiv:2307.11949): V' is the copy `<critic>_target`, and each head has targets
    of its own. level 1/2 is half the squared error. What a step is, the rows say: s' may be many steps on.
    """

    critic: str = "value"
    discount: float = 0.99
    level: float = 0.7

    def target(self, batch: Experience, view: View) -> tuple[Tensor, Tensor]:
        """(y [N, B, T], w [B, T]) for the columns of `batch.now`."""
        now, copy = batch.now, view.model(f"{self.critic}_target")
        with torch.no_grad():
            target = one_step_target(now, heads(copy(batch.after.context)), self.discount)
            # The smallest head has the smallest target: where nothing follows, all heads have the same.
            gain = target.amin(0) - heads(copy(now.context)).mean(0)
            return target, (1.0 - self.level) + (2.0 * self.level - 1.0) * (gain >= 0).to(gain)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Weighted squared errors of all heads."""
        now, (target, weight) = batch.now, self.target(batch, view)
        value = heads(view.model(self.critic)(now.context))
        loss = ((value - target).square() * weight * now.weight).sum()
        metrics = {self.critic: ((value.detach().mean(0) * now.weight).sum(), now.num_decisions)}
        return Loss(loss, self.count(batch), metrics)
