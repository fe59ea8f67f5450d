"""h2o: sac on a simulator that is not quite right and a log of the real system, told apart by two classifiers.

    critic loss = sum_i w (Q_i(s, a) - y)^2 / 2 + weight / 2 * (log sum over simulated of omega exp Q_i - mean real Q_i)
    w = 1 for real rows, clip(P_real / P_sim, 1e-5, 1) for simulated ones,   y = r + discount * min_k Q'_k(s', b)
    p(domain|s, a, s') = softmax(d(s, a, s') + d(s, a)),   log P_real / P_sim = difference of the two logits d(s, a, s')
    omega = u / sum u,   u = clip(mean over s' + noise of log P_sim / P_real, 1e-30, 10)

Niu et al. 2022. A simulator covers what the log does not, but lies where its dynamics differ: values there are pushed
down by how much they differ, and what happened there counts by how likely it is really.

Axes: B sequences, T decisions, J copies, F numbers of an observation.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, Context, CriticLoss, CriticSpec, Experience, Loss, Method, Origin, Preset, Recipe
from assay.method import Spec, Stage, Target, View, logged, model_name, normal_sample, recipes
from assay.models import ActionUnits, feature_size, features, need_box, perceptron
from assay.parts import Log, NEVER, OverTransitions, OwnAction, Retained

LEAST, MOST = 1e-30, 10.0
EPSILON = 1e-3


class DomainLogits(nn.Module):
    """d(s, a) and d(s, a, s'), two logits each (real, simulated), 2 tanh of perceptrons on standardised states."""

    mean: Tensor
    scale: Tensor

    def __init__(
        self, spec: Spec, hidden: tuple[int, ...], mean: tuple[float, ...], deviation: tuple[float, ...]
    ) -> None:
        super().__init__()
        size, space = feature_size(spec), need_box(spec, "a classifier of dynamics")
        self.units, self.size = ActionUnits(space), size
        self.here = perceptron(size + space.size, 2, hidden, activation=nn.ReLU)
        self.there = perceptron(2 * size + space.size, 2, hidden, activation=nn.ReLU)
        self.register_buffer("mean", torch.tensor(mean or (0.0,) * size))
        self.register_buffer("scale", torch.tensor(deviation) + EPSILON if deviation else torch.ones(size))

    def seen(self, context: Context) -> Tensor:
        """Returns standardised states, without gradient."""
        return (features(context).detach() - self.mean) / self.scale

    def logits(self, state: Tensor, action: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        """Returns both pairs of logits [..., 2] of standardised states and actions in half-ranges."""
        here = 2.0 * self.here(torch.cat((state, action), -1)).tanh()
        return here, 2.0 * self.there(torch.cat((state, action, after), -1)).tanh()

    def log_ratio(self, state: Tensor, action: Tensor, after: Tensor) -> Tensor:
        """Returns log P_real / P_sim of s' given s and a, [...]: d(s, a) cancels."""
        real, simulated = self.logits(state, action, after)[1].unbind(-1)
        return real - simulated

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns the log odds that a decision is real, [...]."""
        real, simulated = (2.0 * self.here(torch.cat((self.seen(context), self.units(action)), -1)).tanh()).unbind(-1)
        return real - simulated


@dataclass(frozen=True)
class Domains(CriticSpec):
    """Two classifiers of what is real and what simulated; mean and deviation of the data's states are filled in by a
    plan. Assumes vector observations and bounded actions.
    """

    hidden: tuple[int, ...] = (64, 64)
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    def needs_data(self, spec: Spec) -> bool:
        """Returns whether the moments are missing."""
        return not self.mean

    def of_data(self, observation: Tensor, achieved: Tensor | None) -> "Domains":
        """Returns the classifiers with the moments of these states, [N, F]."""
        deviation, mean = torch.std_mean(observation.double(), 0, correction=0)
        return replace(self, mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()))

    def build(self, spec: Spec) -> nn.Module:
        """Returns the module."""
        return DomainLogits(spec, self.hidden, self.mean, self.deviation)


def is_real(batch: Experience) -> Tensor:
    """Returns which decisions with a next state are a dataset's, bool [B, T]; none where no row says its origin."""
    now = batch.now
    if now.source is None:
        return torch.zeros_like(now.mask)
    return (now.source != int(Origin.POLICY)).unsqueeze(1).expand_as(now.mask)


def states(batch: Experience, domain: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns standardised states, actions in half-ranges, standardised next states."""
    return domain.seen(batch.now.context), domain.units(batch.now.action), domain.seen(batch.after.context)


@dataclass(frozen=True)
class TellApart(OverTransitions, CriticLoss):
    """loss = -log p(domain|s, a) - log p(domain|s, a, s'), with normal noise of deviation `noise` on every input.

    Degenerate: without real rows both say that all is simulated. Source: arXiv:2206.13464.
    """

    noise: float = 0.1
    domain: str = model_name("domain")
    breaks: ClassVar[Mapping[str, str]] = {"ends": "it is about what followed the decision, however the episode ended"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns both cross-entropies."""
        now, domain = batch.now, view.model(self.domain)
        inputs = [
            one + self.noise * normal_sample(view.uniform(one.shape, tag=21 + place))
            for place, one in enumerate(states(batch, domain))
        ]
        here, there = domain.logits(*inputs)
        simulated = (~is_real(batch)).long().unsqueeze(-1)
        found = [pair.log_softmax(-1).gather(-1, simulated).squeeze(-1) for pair in (here, there + here)]
        told = ((found[1].detach() > -math.log(2.0)) * now.weight).sum()
        return Loss(-(sum(found) * now.weight).sum(), self.count(batch), {"told_apart": (told, now.num_decisions)})


@dataclass(frozen=True)
class WeightedTd(OverTransitions, CriticLoss):
    """loss = sum_i w (Q_i(s, a) - y)^2 / 2, w = clip(P_real / P_sim, 1e-5, 1) for simulated rows, 1 for real ones.

    Classifiers get no gradient. Degenerate: where they see no difference it is `Td`. Source: arXiv:2206.13464.
    """

    target: Target = OwnAction()
    q: str = model_name("q")
    domain: str = model_name("domain")
    breaks: ClassVar[Mapping[str, str]] = {"ends": "the weight is about what followed the decision, however it ended"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted squared errors."""
        now, domain, count = batch.now, view.model(self.domain), batch.now.num_decisions
        with torch.no_grad():
            ratio = domain.log_ratio(*states(batch, domain)).exp().clamp(1e-5, 1.0)
            weight = torch.where(is_real(batch), 1.0, ratio) * now.weight
        values = view.model(self.q)(now.context, now.action)
        error = (values - self.target(batch, view)).square()
        worth = (values.detach().mean(0) * now.weight).sum()
        metrics = {"q_mean": (worth, count), "weight": (weight.sum(), count)}
        return Loss(0.5 * (weight * error).sum(), self.count(batch), metrics)


@dataclass(frozen=True)
class PushSimulated(OverTransitions, CriticLoss):
    """weight / 2 * sum_i (N_sim * log sum over simulated rows of omega exp Q_i - sum over real rows of Q_i).

    omega is in proportion to u, the mean of log P_sim / P_real over `copies` of s' with normal noise of the states'
    deviation. Simulated rows are compared with each other. Degenerate: without simulated rows the first term is 0;
    where no gap is seen omega is uniform. Source: arXiv:2206.13464.
    """

    weight: float = 0.01
    copies: int = 10
    q: str = model_name("q")
    domain: str = model_name("domain")
    together: ClassVar[str | None] = "source"
    breaks: ClassVar[Mapping[str, str]] = {"ends": "the gap is about what followed the decision, however it ended"}

    @torch.no_grad()
    def gap(self, batch: Experience, view: View) -> Tensor:
        """Returns u [B, T]."""
        domain = view.model(self.domain)
        state, action, after = states(batch, domain)
        noise = normal_sample(view.uniform((*after.shape[:2], self.copies, after.shape[-1]), tag=25))
        many = [one.unsqueeze(2).expand(*one.shape[:2], self.copies, -1) for one in (state, action, after)]
        return -domain.log_ratio(many[0], many[1], many[2] + noise).mean(-1)

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the penalty of simulated rows and minus the values of real ones."""
        now, real = batch.now, is_real(batch) & batch.now.mask
        simulated = now.mask & ~real
        # The least u keeps its logarithm finite: such rows have no part in the sum.
        gap = self.gap(batch, view).clamp(LEAST, MOST).log().masked_fill(~simulated, NEVER).flatten()
        values = view.model(self.q)(now.context, now.action)
        shares = values.flatten(1) + gap.log_softmax(0)
        lifted = shares.masked_fill(~simulated.flatten(), NEVER).logsumexp(1)
        loss = (lifted * simulated.sum()).sum() - (values * real).sum()
        return Loss(self.weight / 2.0 * loss, self.count(batch), {})


def recipe(preset: Preset = CONTINUOUS, log: Log | None = None, weight: float = 0.01, real: float = 0.5) -> Recipe:
    """Returns sac in the task, which is the simulator; a share `real` of each batch is the log of the real system."""
    base, settings = recipes.sac(preset), preset.off_policy
    critic, actor = base.stages
    domain = Stage("domain", trains=("domain",), critic=(TellApart(),), optimizer=settings.optimizer)
    critic = replace(critic, critic=(WeightedTd(), PushSimulated(weight)))
    source = Retained(settings.replay, logged(preset, log), real)
    return replace(base, name="h2o", critics={**base.critics, "domain": Domains()}, source=source,
                   stages=(domain, critic, actor))


METHOD = Method(
    paper="arXiv:2206.13464",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="reality-gap",
    family="offline to online",
    base=recipes.sac,
    departures=(
        "the divergence of the dynamics is estimated around the one next state that was seen, as in the authors' code; "
        "the paper writes an expectation over the simulator's",
        "weights stand beside half of the squared error, and are halved with it; the penalty is not cut at 1,000",
        "policy and critics see observations as they are (standardised)",
        "held-out episodes are the task's: on reality-gap the real system's, on a task of one's own with --data the "
        "simulator's, where the real system is not at hand",
        "two layers of 64, Adam 1e-3, batches of 256 together (256 of each)",
    ),
)
