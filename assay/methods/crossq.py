"""crossq: sac without target networks, its critics normalised over the joint batch of states and next states.

    Q(s, a), Q(s', a') = critic of the rows (s, a) and (s', a') in one pass with batch normalisation,  a' ~ pi(.|s')
    y = r + discount * (1 - terminal) * (min_i Q_i(s', a') - temperature * log pi(a'|s')), no gradient
    loss = sum_i (Q_i(s, a) - y)^2 / 2;   actor, every third update: temperature * log pi(a|s) - min_i Q_i(s, a)

Bhatt et al. 2024. Batch normalisation with target networks sees two distributions of actions, one of them with the
statistics of the other; in one pass both have the mixture's. Then no target network is needed, nor many updates. The
actor's loss uses running statistics, which each critic loss moves by a hundredth.

Axes: B sequences, T decisions, N critics, R rows, W units.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, AssayError, Ask, Body, Context, CriticLoss, Experience, Loss, Method, Preset
from assay.method import Recipe, Spec, State, View, model_name, sac
from assay.models import ActionValue, Critic, Ensemble, Perceptron, feature_size, features, need_box
from assay.parts import OverTransitions, one_step_target, sampled_next

EPSILON = 1e-3
"""Added to variances, as in the authors' code."""


class BatchNorm(nn.Module):
    """(x - mean) / deviation of the rows of a batch, or of running statistics, times a scale, plus a shift; N members.

    The running statistics are saved with the run; nothing else sets them.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, num: int, width: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.scale, self.shift = nn.Parameter(torch.ones(num, 1, width)), nn.Parameter(torch.zeros(num, 1, width))
        self.register_buffer("mean", torch.zeros(num, 1, width))
        self.register_buffer("variance", torch.ones(num, 1, width))

    def forward(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """Normalises rows [N, R, W] by running statistics, or by those of the rows with weight 1 in [R, 1]."""
        num = len(rows)
        mean, variance = self.mean[:num], self.variance[:num]
        if weight is not None:
            share = weight / weight.sum().clamp(min=1.0)
            mean = (rows * share).sum(1, keepdim=True)
            variance = ((rows - mean).square() * share).sum(1, keepdim=True)
            with torch.no_grad():
                self.mean.lerp_(mean, 1.0 - self.momentum)
                self.variance.lerp_(variance, 1.0 - self.momentum)
        return (rows - mean) * (variance + EPSILON).rsqrt() * self.scale[:num] + self.shift[:num]

    def kept(self) -> State:
        """Returns the running statistics."""
        return {"mean": self.mean.clone(), "variance": self.variance.clone()}

    def keep(self, state: State) -> None:
        """Sets the running statistics."""
        self.mean.copy_(state["mean"])
        self.variance.copy_(state["variance"])


class NormedCritics(nn.Module):
    """N networks on state and action: batch normalisation of the inputs and after each ReLU."""

    def __init__(self, num: int, num_inputs: int, hidden: Sequence[int], momentum: float) -> None:
        super().__init__()
        self.linear = Ensemble(num, num_inputs, 1, hidden)
        self.norms = nn.ModuleList(BatchNorm(num, width, momentum) for width in (num_inputs, *hidden))

    def of_rows(self, rows: Tensor, num: int | None, weight: Tensor | None = None) -> Tensor:
        """Returns values [N, R] of rows [R, W]; with weights [R, 1] by the statistics of the rows of weight 1."""
        layers = [(matrix[:num], bias[:num]) for matrix, bias in self.linear.layers]
        hidden = self.norms[0](rows.expand(len(layers[0][0]), *rows.shape), weight)
        for (matrix, bias), norm in zip(layers, self.norms[1:], strict=False):
            hidden = norm(torch.baddbmm(bias, hidden, matrix).relu(), weight)
        return torch.baddbmm(layers[-1][1], hidden, layers[-1][0]).squeeze(-1)

    def forward(self, context: Context, action: Tensor, num: int | None = None) -> Tensor:
        """Returns values [N, ...] of all members or the first `num`, by running statistics."""
        found = self.of_rows(torch.cat((features(context), action), -1).flatten(0, -2), num)
        return found.view(len(found), *action.shape[:-1])


@dataclass(frozen=True)
class BatchNormalised(Body):
    """Perceptrons with batch normalisation, on states and actions."""

    hidden: tuple[int, ...] = (256, 256)
    momentum: float = 0.99
    not_a_part: ClassVar[str] = "the body of these critics alone"

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns the network; raises AssayError for anything but an ensemble of values of continuous actions."""
        if not ask.action or ask.shape or not ask.members:
            raise AssayError("batch normalisation is for critics of continuous actions. Use Normalised() elsewhere")
        num_inputs = feature_size(spec) + need_box(spec, "a critic with batch normalisation").size
        return NormedCritics(ask.members, num_inputs, self.hidden, self.momentum)


@dataclass(frozen=True)
class JointTd(OverTransitions, CriticLoss):
    """sum_i (Q_i(s, a) - y)^2 / 2 with both sides from one pass over all rows (s, a) and (s', a').

    Statistics are those of rows with a decision. Degenerate: a batch without any has loss 0. Assumes critics
    `BatchNormalised`.
    """

    discount: float = 0.99
    actor: str = model_name("actor")
    q: str = model_name("q")
    temperature: str = model_name("temperature")
    title: ClassVar[str] = "q"
    breaks: ClassVar[dict[str, str]] = {
        "micro_batches": "batch normalisation: the statistics are those of a micro-batch",
        "targets": "batch normalisation: next states are in the statistics of the prediction",
        "ends": "batch normalisation: what was seen after an end is in the statistics",
        "unmodified": "running statistics of the critics move with every loss, by definition",
    }

    def __call__(self, batch: Experience, view: View) -> Loss:
        now, after, critic = batch.now, batch.after, view.model(self.q)
        next_action, logp = sampled_next(batch, view, self.actor)
        pairs = ((now.context, now.action), (after.context, next_action.detach()))
        rows = [torch.cat((features(context), critic.units(action)), -1).flatten(0, -2) for context, action in pairs]
        weight = now.weight.flatten().repeat(2).unsqueeze(-1)
        value, onward = critic.body.of_rows(torch.cat(rows), None, weight).chunk(2, -1)
        soft = onward.amin(0).view_as(logp) - view.model(self.temperature)() * logp
        value = value.view(len(value), *now.mask.shape)
        error = (value - one_step_target(now, soft, self.discount)) * now.weight
        metrics = {"q_mean": ((value.detach().mean(0) * now.weight).sum(), now.num_decisions)}
        return Loss(0.5 * error.square().sum(), self.count(batch), metrics)


def recipe(preset: Preset = CONTINUOUS, width: int = 0) -> Recipe:
    """Returns sac without target networks; `width` units in each of two layers of the critics, 0 for the preset's."""
    base, given = sac(preset), preset.off_policy.body
    hidden = given.hidden if isinstance(given, Perceptron) else (256, 256)
    body = BatchNormalised((width, width) if width else hidden)
    critic, actor = base.stages
    stages = (replace(critic, critic=(JointTd(),)), replace(actor, every=3))
    models = {**base.critics, "q": Critic(body, ActionValue())}
    return replace(base, name="crossq", critics=models, copies={}, stages=stages)


METHOD = Method(
    paper="arXiv:1902.05605",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    base=sac,
    variants={"wide": partial(recipe, width=2048)},
    departures=(
        "plain batch normalisation: the authors' code goes over to batch renormalisation after 100,000 updates",
        "the actor has no batch normalisation; Adam's first decay is 0.9 (0.5)",
        "critics as wide as the preset's; crossq:wide has 2,048 units a layer, as in the paper",
        "micro-batches (--micro-batch) have statistics of their own",
    ),
)
