"""droq: redq's twenty updates for each decision with two critics, which dropout and layer norm regularise.

    Q_i(s, a): each hidden layer = relu(layer_norm(dropout(linear(x)))), a unit left out with probability 0.01
    y = r + discount * (1 - terminal) * (min_i Q'_i(s', a') - temperature * log pi(a'|s'));   actor: mean of the critics

Hiraoka et al. 2022. Dropout is on wherever a critic is asked: in the prediction, the target and the actor's loss. It
gives the spread that ten critics have in redq, at a fifth of the cost; layer norm keeps it from growing.

Axes: B sequences, T decisions, N critics, R rows, W units.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, AssayError, Ask, Body, Context, Experience, Loss, Method, Preset, Recipe, Scored
from assay.method import Spec, View, sac
from assay.models import ActionValue, Critic, NormedEnsemble, Perceptron, feature_size, features, need_box
from assay.parts import MatchEntropy, MaximizeSoftQ, SoftTwin, Td

PREDICTION, TARGET, CLIMBED = 21, 22, 23
"""Tags of the random numbers of dropout in the prediction, the target and the actor's loss."""


class DroppingCritics(nn.Module):
    """N networks on state and action; with the context's uniform numbers `dropout` some units are left out."""

    def __init__(self, net: NormedEnsemble, widths: tuple[int, ...], rate: float, num: int) -> None:
        super().__init__()
        self.net, self.widths, self.rate, self.num_dropped = net, widths, rate, num * sum(widths)

    def forward(self, context: Context, action: Tensor, num: int | None = None) -> Tensor:
        """Returns values [N, ...] of all members or the first `num`."""
        rows = torch.cat((features(context), action), -1).flatten(0, -2)
        layers = [(weight[:num], bias[:num]) for weight, bias in self.net.linear.layers]
        hidden, members = rows.expand(len(layers[0][0]), *rows.shape), len(layers[0][0])
        kept: list[Tensor | None] = [None] * len(self.widths)
        if "dropout" in context:
            each = context["dropout"].flatten(0, -2).unflatten(-1, (-1, sum(self.widths)))[:, :members].movedim(1, 0)
            kept = [(part >= self.rate).to(rows.dtype) / (1.0 - self.rate) for part in each.split(self.widths, -1)]
        scales = zip(layers, self.net.scales, self.net.shifts, kept, strict=False)
        for (weight, bias), scale, shift, keep in scales:
            inner = torch.baddbmm(bias, hidden, weight)
            inner = inner if keep is None else inner * keep
            normed = nn.functional.layer_norm(inner, inner.shape[-1:])
            hidden = torch.addcmul(shift[:num], normed, scale[:num]).relu()
        found = torch.baddbmm(layers[-1][1], hidden, layers[-1][0])
        return found.view(members, *action.shape[:-1])


@dataclass(frozen=True)
class Dropping(Body):
    """Perceptrons with dropout before layer norm, on states and actions; off unless a term asks for it."""

    hidden: tuple[int, ...] = (256, 256)
    rate: float = 0.01
    not_a_part: ClassVar[str] = "the body of these critics alone"

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns the network; raises AssayError for anything but an ensemble of values of continuous actions."""
        if not ask.action or ask.shape or not ask.members:
            raise AssayError("a body with dropout is that of critics of actions. Use Normalised() elsewhere")
        num_inputs = feature_size(spec) + need_box(spec, "a critic with dropout").size
        net = NormedEnsemble(ask.members, num_inputs, 1, self.hidden)
        return DroppingCritics(net, self.hidden, self.rate, ask.members)


@dataclass(frozen=True)
class DroppingView:
    """A view whose critics leave units out: `drawn` says which, by the name of the critic and a tag."""

    view: View
    tags: dict[str, int]
    not_a_part: ClassVar[str] = "what the terms below get"

    @property
    def scored(self) -> Scored:
        """The actor's scores."""
        return self.view.scored

    @property
    def sampled(self) -> tuple[Tensor, Tensor]:
        """The actor's own decisions."""
        return self.view.sampled

    def uniform(self, shape: Any, tag: int) -> Tensor:
        """Returns uniform numbers."""
        return self.view.uniform(shape, tag)

    def model(self, name: str) -> Any:
        """Returns a model; a critic among `tags` as a function with dropout."""
        model = self.view.model(name)
        if name not in self.tags:
            return model

        def dropped(context: Context, action: Tensor) -> Tensor:
            uniform = self.view.uniform((*action.shape[:-1], model.body.num_dropped), tag=self.tags[name])
            values: Tensor = model({**context, "dropout": uniform.to(action.device)}, action)
            return values

        return dropped


@dataclass(frozen=True)
class DroppedTd(Td):
    """`Td` of critics whose units are left out in the prediction and in the target."""

    target: SoftTwin = SoftTwin()
    examples: ClassVar[tuple[dict[str, Any], ...]] = ()

    def __call__(self, batch: Experience, view: View) -> Loss:
        return super().__call__(batch, DroppingView(view, {self.of.model: PREDICTION, self.target.q: TARGET}))


@dataclass(frozen=True)
class DroppedQ(MaximizeSoftQ):
    """`MaximizeSoftQ` of critics whose units are left out."""

    averaged: bool = True

    def __call__(self, batch: Experience, view: View) -> Loss:
        return super().__call__(batch, DroppingView(view, {self.q: CLIMBED}))


def recipe(preset: Preset = CONTINUOUS, rate: float = 0.01, ratio: int = 20) -> Recipe:
    """Returns sac with two such critics and `ratio` updates where sac has one; the actor moves as often as sac's."""
    base, replay, given = sac(preset), preset.off_policy.replay, preset.off_policy.body
    body = Dropping(given.hidden if isinstance(given, Perceptron) else (256, 256), rate)
    critic, actor = base.stages
    actor = replace(actor, objective=(DroppedQ(), MatchEntropy(-1.0)), every=ratio)
    models = {**base.critics, "q": Critic(body, ActionValue())}
    stages = (replace(critic, critic=(DroppedTd(),)), actor)
    source = replace(replay, updates=ratio * replay.updates)
    return replace(base, name="droq", critics=models, stages=stages, source=source)


METHOD = Method(
    paper="arXiv:2110.02034",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="value-based",
    base=sac,
    departures=(
        "sac's numbers of each preset: warm-up (5,000 random decisions in the paper), rate, steps",
        "one rate of dropout, 0.01, on every task; the paper has 0.005 to 0.1 by task",
    ),
)
