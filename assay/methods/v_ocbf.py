"""v-ocbf: learns from data which states can be kept safe, and changes a clone's decisions no more than that needs.

    harm:     Q_h <- (1 - g) h + g max(h, V_h(s')),   V_h <- low expectile of max_i Q_h in the data;   B = -V_h
    model:    s' = s + f(s) + G(s) a,   least squares;   actor: the same
    decision: a + min over d of |d|  with  B(s') + grad B(s') . G d >= (1 - rate) B(s),   s' = s + f + G a

Tayal et al. 2025. A barrier B >= 0 holds exactly where some action keeps it so. With one linear constraint the least
change is a projection: d = max(0, (1 - rate) B(s) - B(s')) L / |L|^2,  L = G^T grad B(s').

Axes: B sequences, T decisions, N rows, F numbers of an observation, A actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.method import CONTINUOUS, Ask, Body, Box, Context, Correcting, CriticHead, CriticLoss, Experience, Loss
from assay.method import Method, Preset, Recipe, Spec, Stage, View, model_name, recipes
from assay.models import ActionUnits, ActionValue, Critic, Perceptron, Policy, Deterministic, feature_size, features
from assay.models import need_box
from assay.parts import Expectile, Log, Logged, LogLikelihood, OfAction, OfState, OverTransitions, RecordedAction, Td
from assay.parts import WithCosts, WorstToCome

TINY = 1e-6


class AffineMoves(nn.Module):
    """s' - s = f(s) + G(s) a, of actions in half-ranges."""

    def __init__(self, body: nn.Module, size: int, space: Box) -> None:
        super().__init__()
        self.body, self.size, self.units = body, size, ActionUnits(space)

    def fields(self, context: Context) -> tuple[Tensor, Tensor]:
        """Returns f [..., F] and G [..., F, A]."""
        drift, push = self.body(context).tensor_split([self.size], -1)
        return drift, push.unflatten(-1, (self.size, -1))

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Returns the predicted change of the observation, [F, ...]."""
        drift, push = self.fields(context)
        moved: Tensor = drift + (push @ self.units(action).unsqueeze(-1)).squeeze(-1)
        return moved.movedim(-1, 0)


@dataclass(frozen=True)
class ControlAffine(CriticHead):
    """A dynamics model of vector observations that is linear in the action."""

    def on(self, body: Body, spec: Spec) -> nn.Module:
        space, size = need_box(spec, "a control-affine model"), feature_size(spec)
        ask = Ask((size * (1 + space.size),), activation=nn.ReLU)
        return AffineMoves(body.outputs(spec, ask), size, space)


@dataclass(frozen=True)
class PredictChange(OverTransitions, CriticLoss):
    """Sums (predicted - observed)^2 / 2 over the numbers of the observation's change.

    Degenerate: no decision gives sum 0 and count 0.
    """

    dynamics: str = model_name("dynamics")
    breaks: ClassVar[dict[str, str]] = {"ends": "observations after a terminal step are real; nothing bootstraps"}

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the squared errors."""
        now, change = batch.now, features(batch.after.context) - features(batch.now.context)
        error = (view.model(self.dynamics)(now.context, now.action) - change.movedim(-1, 0).detach()) * now.weight
        metrics = {"model_error": (error.detach().square().mean(0).sum(), now.num_decisions)}
        return Loss(0.5 * error.square().sum(), self.count(batch), metrics)


class Filtered:
    """An actor whose decisions are moved into the half-space in which the barrier falls no faster than allowed."""

    def __init__(self, part: BarrierFilter, models: Mapping[str, Any]) -> None:
        self.part, self.actor = part, models[part.actor]
        self.harm, self.dynamics = models[part.harm], models[part.dynamics]
        self.num_draws = self.actor.num_draws

    def barrier(self, context: Context, seen: Tensor) -> Tensor:
        """Returns B at other observations."""
        value: Tensor = -self.harm({**context, "observation": seen})
        return value

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns the filtered decision; its log-probability is the actor's own."""
        action, logp = self.actor.act(context, uniform)
        action, units = action.detach(), self.dynamics.units
        with torch.no_grad():
            wish, seen = units(action), context["observation"]
            drift, push = self.dynamics.fields(context)
            least = (1.0 - self.part.rate) * self.barrier(context, seen)
            value, slope = self.with_slope(context, seen + drift + (push @ wish.unsqueeze(-1)).squeeze(-1))
            lever = (slope.unsqueeze(-2) @ push).squeeze(-2)
            size = (least - value).clamp(min=0.0) / (lever.square().sum(-1) + TINY)
            change = self.part.strength * size.unsqueeze(-1) * lever
            moved = units.of_task((wish + change).clamp(-1.0, 1.0))
        return torch.where((change == 0.0).all(-1, keepdim=True), action, moved), logp.detach()

    def with_slope(self, context: Context, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Returns B [N] and its gradient [N, F] at observations."""
        with torch.enable_grad():
            here = seen.detach().requires_grad_()
            value = self.barrier(context, here)
            slope = torch.autograd.grad(value.sum(), here)[0]
        return value.detach(), slope


@dataclass(frozen=True)
class BarrierFilter(Correcting):
    """The least change of `actor`'s decision with which B = -`harm` falls to no less than (1 - `rate`) B, by the
    linear model `dynamics`: a projection onto a half-space, applied `strength` times, then clipped to the bounds.

    Degenerate: where the actor's own decision keeps B, it is taken as it is, to the bit; where no action moves B, too.
    Source: arXiv:2512.10822. Assumes vector observations and bounded actions.
    """

    strength: float = 1.0
    rate: float = 0.5
    actor: str = model_name("actor")
    harm: str = model_name("harm")
    dynamics: str = model_name("dynamics")

    @property
    def reads(self) -> tuple[str, ...]:
        return self.actor, self.harm, self.dynamics

    def around(self, models: Mapping[str, Any]) -> Filtered:
        return Filtered(self, models)


LOGS = (Log(150, noise=0.4), Log(150, noise=0.4, first=1_000, reckless=True))
"""Half cautious, half cost-ignoring expert episodes, both with action noise."""


def recipe(preset: Preset = CONTINUOUS, level: float = 0.9, harm: float = 5.0) -> Recipe:
    """V-OCBF (arXiv:2512.10822): fisor's value of harm with the sign turned, a clone, and a filter around it."""
    settings, step, body = preset.offline, preset.offline.optimizer, Perceptron((128, 128))
    discount = 1.0 - 2.0 * (1.0 - preset.gae.discount)
    harm_q = Td(WorstToCome(discount, harm), of=OfAction("harm_q"))
    least = Td(RecordedAction("harm_q", largest=True), Expectile(1.0 - level), OfState("harm"))
    return Recipe(
        name="v-ocbf",
        actor=Policy(body, Deterministic()),
        critics={
            "harm": Critic(body),
            "harm_q": Critic(body, ActionValue()),
            "dynamics": Critic(body, ControlAffine()),
        },
        source=Logged(LOGS, settings.batch, settings.updates, WithCosts()),
        stages=(
            Stage("actor", trains=("actor",), objective=(LogLikelihood(),), optimizer=step),
            Stage("harm", trains=("harm",), critic=(least,), optimizer=step),
            Stage("harm q", trains=("harm_q",), critic=(harm_q,), optimizer=step),
            Stage("dynamics", trains=("dynamics",), critic=(PredictChange(),), optimizer=step),
        ),
        wrapper=BarrierFilter(),
        steps=settings.steps,
    )


METHOD = Method(
    paper="arXiv:2512.10822",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="steered-hazards",
    family="safe",
    base=recipes.bc,
    departures=(
        "the margin of a state is 1 where a decision costs nothing and -5 where it costs; the authors' is a distance "
        "that the task must know",
        "B is that of the predicted next observation, and its gradient is taken there; in the authors' code both are "
        "at the present one: a decision here moves as far as a disc's radius",
        "B may fall to (1 - rate) B a decision, rate 0.5; theirs falls at rate alpha in continuous time",
        "discount 0.9 for harm: violations are seen 17 decisions ahead (0.98 and 89 in mujoco and d4rl); theirs 0.99",
        "2000 updates instead of a million, scripted data",
        "the model is fitted to single transitions, without early stopping",
    ),
)
