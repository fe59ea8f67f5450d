"""Losses of cloning by several policies, of a learned dynamics model, and of the policies' scores in it.

Axes: N members, B sequences, T decisions, H steps, F observed.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.method import CriticLoss, Experience, Loss, Objective, Target, View, model_name
from assay.models import features
from assay.parts import OverDecisions, OverTransitions


@dataclass(frozen=True)
class DiverseLikelihood(OverDecisions, Objective):
    """sum_i -log pi_i(a|s) - diversity * (log pi_i(a|s) - max over j != i of log pi_j(a|s)), j without gradient.

    Uni-O4's ensemble of behaviour policies (arXiv:2311.03351). Since the others are constants, its gradient is (1 +
    diversity) times cloning's: members differ by their initial weights. Degenerate: one member is plain cloning.
    """

    diversity: float = 0.1
    actor: str = model_name("actor")
    first_order: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {"zero_credit": "likelihood does not read credit"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the negative log-likelihoods of all members, and each one's distance from the best other."""
        logp = view.model(self.actor).all_logp(batch)
        loss = -logp
        if len(logp) > 1:
            loss = loss - self.diversity * (logp - best_other(logp.detach()))
        metrics = {"nll": (-logp.detach().mean(0).sum(), batch.num_decisions)}
        return Loss(loss.sum(), self.count(batch), metrics)


def best_other(logp_NBT: Tensor) -> Tensor:
    """Returns max over j != i, for each i: the best of all, and for the best itself the second."""
    (best, second), first = logp_NBT.topk(2, 0).values, logp_NBT.argmax(0)
    itself = torch.arange(len(logp_NBT), device=first.device).view(-1, 1, 1) == first
    return torch.where(itself, second, best)


@dataclass(frozen=True)
class PredictNext(OverTransitions, CriticLoss):
    """Sums (predicted - observed)^2 / 2 over members and numbers, for the change of the observation and the reward."""

    dynamics: str = model_name("dynamics")
    breaks: ClassVar[dict[str, str]] = {"ends": "observations after a terminal step are real; nothing bootstraps"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared errors."""
        now, change = batch.now, features(batch.after.context) - features(batch.now.context)
        seen = torch.cat((change, now.reward.unsqueeze(-1)), -1).movedim(-1, 0).detach()
        error = (view.model(self.dynamics)(now.context, now.action) - seen) * now.weight
        metrics = {"model_error": (error.detach().square().mean(0).sum(), now.num_decisions)}
        return Loss(0.5 * error.square().sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class Ended(Target):
    """y = 1 where the task ended the episode with the decision, else 0: the target of a model of ends.

    A time limit is no end. Degenerate: data without ends give a model that never ends an episode.
    """

    def __call__(self, batch: Experience, view: View) -> Tensor:
        return batch.now.terminal.to(batch.reward.dtype)


@dataclass(frozen=True)
class ModelScore(OverDecisions, CriticLoss):
    """(standing_i - score_i(s))^2 / 2, score_i(s) = mean of min Q(s_t, mu_i(s_t)) over the steps until the model ends
    the episode, at most `horizon`: Uni-O4's AM-Q (arXiv:2311.03351).

    s_0 = s is recorded; then the learned model is rolled out with member i's means, averaging the model's members. It
    ends after the first decision that the model `end` finds more likely to be the last than not. Only `standing` gets a
    gradient; its minimiser is the mean score of the batch's states (the optimizer `Descent` at rate 1 sets it).
    horizon 1 is E[Q(s, mu(s))].
    """

    horizon: int = 10
    actor: str = model_name("actor")
    q: str = model_name("q")
    dynamics: str = model_name("dynamics")
    end: str = model_name("end")

    @torch.no_grad()
    def scores(self, batch: Experience, view: View) -> Tensor:
        """Returns the scores [N, B, T]."""
        actor, q, dynamics, end = (view.model(name) for name in (self.actor, self.q, self.dynamics, self.end))
        here = features(batch.context)
        member = torch.arange(actor.num_members, device=here.device).view(-1, 1, 1).expand(-1, *batch.mask.shape)
        seen, total = here.expand(actor.num_members, *here.shape), torch.zeros_like(member, dtype=here.dtype)
        goes_on, steps = torch.ones_like(member, dtype=torch.bool), torch.zeros_like(total)
        for _ in range(self.horizon):
            context: dict[str, Any] = {"observation": seen, "member": member}
            action, _ = actor.act(context, None)
            total, steps = total + torch.where(goes_on, q(context, action).amin(0), 0.0), steps + goes_on
            goes_on = goes_on & (end(context, action).mean(0) <= 0.0)
            seen = seen + dynamics(context, action).mean(0)[:-1].movedim(0, -1)
        return total / steps

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared distance of each member's standing from its score."""
        scores = torch.where(batch.mask, self.scores(batch, view), 0.0)
        gap = (view.model(self.actor).standing.view(-1, 1, 1) - scores) * batch.weight
        metrics = {"score": (scores.mean(0).sum(), batch.num_decisions)}
        return Loss(0.5 * gap.square().sum(), self.count(batch), metrics)
