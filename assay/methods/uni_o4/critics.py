"""A learned model of the task, and a policy's worth in it. Axes: N, B, T, F numbers of an observation, H steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, CriticSpec, View
from assay.core.spaces import Box, Context, Spec
from assay.models.bodies.perceptron import Ensemble, feature_size, features
from assay.parts.aggregations import OverTransitions
from assay.parts.critics.q import EnsembleQ


class Clamped(nn.Module):
    """A function of context and action that takes an action beyond the bounds for the bound, as the task does."""

    low: Tensor
    high: Tensor

    def __init__(self, inner: nn.Module, space: Box) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("low", torch.tensor(space.low))
        self.register_buffer("high", torch.tensor(space.high))

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """What the inner function says of the action that is carried out."""
        said: Tensor = self.inner(context, torch.minimum(torch.maximum(action, self.low), self.high))
        return said


@dataclass(frozen=True)
class ClampedQ(CriticSpec):
    """`num` critics Q(s, a) for policies whose samples may lie beyond the bounds of the actions."""

    hidden: tuple[int, ...] = (64, 64)
    num: int = 2

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Box):
            raise AssayError(f"ClampedQ needs continuous actions, the task has {spec.action}; try ActionValue")
        return Clamped(EnsembleQ(self.num, feature_size(spec) + spec.action.size, self.hidden), spec.action)


class NextStep(nn.Module):
    """The change of the observation, and the reward, by N perceptrons."""

    def __init__(self, num: int, num_seen: int, num_actions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.net = Ensemble(num, num_seen + num_actions, num_seen + 1, hidden)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """[N, F + 1, ...]: what every member expects, the reward last."""
        rows = torch.cat((features(context), action), -1)
        said = self.net(rows.flatten(0, -2))
        return said.view(len(said), *rows.shape[:-1], -1).movedim(-1, 1)


@dataclass(frozen=True)
class LearnedDynamics(CriticSpec):
    """A model of the task for observations that are vectors: `num` networks that predict change and reward."""

    hidden: tuple[int, ...] = (64, 64)
    num: int = 3

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Box):
            raise AssayError(f"LearnedDynamics needs continuous actions, the task has {spec.action}")
        return Clamped(NextStep(self.num, feature_size(spec), spec.action.size, self.hidden), spec.action)


@dataclass(frozen=True)
class PredictNext(OverTransitions, CriticLoss):
    """sum over members and numbers of (predicted - seen)^2 / 2, for the change of the observation and the reward."""

    dynamics: str = model_name("dynamics")
    breaks: ClassVar[dict[str, str]] = {"ends": "what was seen after a terminal step was seen: nothing is bootstrapped"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Squared errors."""
        now, here = batch.now, features(batch.now.context)
        with torch.no_grad():
            change = features(batch.after.context) - here
            seen = torch.cat((change, now.reward.unsqueeze(-1)), -1).movedim(-1, 0)
        error = (view.model(self.dynamics)(now.context, now.action) - seen) * now.weight
        metrics = {"model_error": (error.detach().square().mean(0).sum(), now.num_decisions)}
        return Loss(0.5 * error.square().sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class ModelScore(CriticLoss):
    """(standing_i - score_i(s))^2 / 2, score_i(s) = mean over `horizon` steps of min Q(s_t, mu_i(s_t)): Uni-O4's AM-Q
    (arXiv:2311.03351).

    s_0 = s is recorded, then the learned model goes on with member i's means; its members are averaged. Gradient into
    `standing` alone, whose minimiser is the mean score of the batch's states (the optimizer `Descent` at rate 1 sets
    it). A model that never ends an episode: for tasks without terminal states. horizon 1 is E[Q(s, mu(s))].
    """

    horizon: int = 10
    actor: str = model_name("actor")
    q: str = model_name("q")
    dynamics: str = model_name("dynamics")
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Number of decisions."""
        return batch.num_decisions

    @torch.no_grad()
    def scores(self, batch: Experience, view: View) -> Tensor:
        """[N, B, T]."""
        actor, q, dynamics = (view.model(name) for name in (self.actor, self.q, self.dynamics))
        here = features(batch.context)
        member = torch.arange(actor.num_members, device=here.device).view(-1, 1, 1).expand(-1, *batch.mask.shape)
        seen, total = here.expand(actor.num_members, *here.shape), torch.zeros_like(member, dtype=here.dtype)
        for _ in range(self.horizon):
            context: dict[str, Any] = {"observation": seen, "member": member}
            action, _ = actor.act(context, None)
            total = total + q(context, action).amin(0)
            seen = seen + dynamics(context, action).mean(0)[:-1].movedim(0, -1)
        return total / self.horizon

    def __call__(self, batch: Experience, view: View) -> Loss:
        """How far each member's standing is from its score."""
        scores = torch.where(batch.mask, self.scores(batch, view), 0.0)
        gap = (view.model(self.actor).standing.view(-1, 1, 1) - scores) * batch.weight
        metrics = {"score": (scores.mean(0).sum(), batch.num_decisions)}
        return Loss(0.5 * gap.square().sum(), self.count(batch), metrics)
