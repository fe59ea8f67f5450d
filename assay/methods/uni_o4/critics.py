"""Losses of a learned dynamics model, and a policy's score in it. Axes: N, B, T, H steps, F observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need
from assay.core.settings import model_name
from assay.core.slots import CriticLoss, View
from assay.models.bodies.perceptron import features
from assay.parts.aggregations import OverTransitions


@dataclass(frozen=True)
class PredictNext(OverTransitions, CriticLoss):
    """Sums (predicted - observed)^2 / 2 over members and numbers, for the change of the observation and the reward."""

    dynamics: str = model_name("dynamics")
    breaks: ClassVar[dict[str, str]] = {"ends": "observations after a terminal step are real; nothing bootstraps"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared errors."""
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

    s_0 = s is recorded; then the learned model is rolled out with member i's means, averaging the model's members.
    Only `standing` gets a gradient; its minimiser is the mean score of the batch's states (the optimizer `Descent` at
    rate 1 sets it). Assumes a task without terminal states, since the model never ends an episode. horizon 1 is
    E[Q(s, mu(s))].
    """

    horizon: int = 10
    actor: str = model_name("actor")
    q: str = model_name("q")
    dynamics: str = model_name("dynamics")
    needs: ClassVar[frozenset[Need]] = frozenset()
    together: ClassVar[str | None] = None

    def count(self, batch: Experience) -> Tensor:
        """Returns the number of decisions."""
        return batch.num_decisions

    @torch.no_grad()
    def scores(self, batch: Experience, view: View) -> Tensor:
        """Returns the scores [N, B, T]."""
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
        """Returns the squared distance of each member's standing from its score."""
        scores = torch.where(batch.mask, self.scores(batch, view), 0.0)
        gap = (view.model(self.actor).standing.view(-1, 1, 1) - scores) * batch.weight
        metrics = {"score": (scores.mean(0).sum(), batch.num_decisions)}
        return Loss(0.5 * gap.square().sum(), self.count(batch), metrics)
