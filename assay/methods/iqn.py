"""iqn: a network that gives the quantile of the return at any level, fitted at random levels; acts on the mean.

    y_k = r + discount * (1 - terminal) * Z'(s', a*; tau'_k),   a* = argmax_a mean of Z'(s', a; .) at 32 levels
    loss = sum_i mean_k |tau_i - 1(u < 0)| * h(u),   u = y_k - Z(s, a; tau_i),   tau_i, tau'_k ~ U(0, 1), 64 of each
    Z(s, a; tau) = f(relu(psi(s)) * relu(linear(cos(pi j tau), j = 0..63)))_a

Dabney et al. 2018b. All levels share one function, so that one state teaches each of them; h is Huber's with limit 1.

Axes: B sequences, T decisions, A actions, W features, M levels, K samples.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.method import CONTROL, ActorHead, Ask, Body, Context, CriticLoss, Experience, Loss, Method, Preset, Recipe
from assay.method import Spec, View, dqn, model_name
from assay.models import Acting, Greedy, Policy, apply_mask, midpoints, need_discrete, perceptron
from assay.parts import OverTransitions, one_step_target, quantile_huber


class ImplicitPolicy(Acting):
    """Acts on the mean of Z(s, a; tau) at `num` levels (i + 1/2) / num."""

    def __init__(self, body: nn.Module, width: int, num: int, num_actions: int) -> None:
        super().__init__()
        self.body, self.num, self.num_actions = body, num, num_actions
        self.embed = nn.Linear(64, width)
        self.top = perceptron(width, num_actions, (width,), activation=nn.ReLU)

    def at(self, context: Context, level: Tensor) -> Tensor:
        """Returns Z [..., A, M] at these levels, [..., M] or [M]."""
        angle = math.pi * level.unsqueeze(-1) * torch.arange(64, dtype=level.dtype, device=level.device)
        found: Tensor = self.top(self.body(context).relu().unsqueeze(-2) * self.embed(angle.cos()).relu())
        return found.transpose(-1, -2)

    def values(self, context: Context) -> Tensor:
        """Returns the mean at the fixed levels, [..., A]."""
        level = midpoints(next(self.embed.parameters()), self.num)
        return apply_mask(self.at(context, level).mean(-1), context)


@dataclass(frozen=True)
class ImplicitQuantiles(ActorHead):
    """An actor of discrete actions that values them by a function of the level, on `width` features of a body."""

    width: int = 256
    num: int = 32
    breaks: ClassVar[dict[str, str]] = Greedy.breaks

    def on(self, body: Body, spec: Spec) -> nn.Module:
        features = body.outputs(spec, Ask((self.width,), activation=nn.ReLU))
        return ImplicitPolicy(features, self.width, self.num, need_discrete(spec, "a greedy actor").n)


@dataclass(frozen=True)
class ImplicitTd(OverTransitions, CriticLoss):
    """sum_i mean_k |tau_i - 1(u < 0)| * h(u) at `num` random levels of the prediction and `samples` of the target.

    Degenerate: after a terminal decision all samples are r. Assumes an actor `ImplicitQuantiles`.
    """

    discount: float = 0.99
    num: int = 64
    samples: int = 64
    actor: str = model_name("actor")
    target: str = model_name("target")
    title: ClassVar[str] = "q"

    def taken(self, model: Any, context: Context, action: Tensor, level: Tensor) -> Tensor:
        """Returns Z(s, a; tau) of these actions, [B, T, M]."""
        outputs: Tensor = model.at(context, level)
        place = action[..., None, None].expand(*action.shape, 1, outputs.shape[-1])
        return outputs.gather(-2, place).squeeze(-2)

    def __call__(self, batch: Experience, view: View) -> Loss:
        now, after, target = batch.now, batch.after, view.model(self.target)
        level = view.uniform((*now.mask.shape, self.num), tag=7).to(now.reward.dtype)
        with torch.no_grad():
            onward = view.uniform((*now.mask.shape, self.samples), tag=8).to(now.reward.dtype)
            best = target.values(after.context).argmax(-1)
            value = self.taken(target, after.context, best, onward).movedim(-1, 0)
            aim = one_step_target(now, value, self.discount).movedim(0, -1)
        found = self.taken(view.model(self.actor), now.context, now.action, level)
        loss = quantile_huber(found, aim, level, 1.0) * now.weight
        value = (found.detach().mean(-1) * now.weight).sum()
        return Loss(loss.sum(), self.count(batch), {"q_mean": (value, now.num_decisions)})


def recipe(preset: Preset = CONTROL) -> Recipe:
    """Returns dqn with a network of the level."""
    base = dqn(preset)
    actor = Policy(preset.off_policy.body, ImplicitQuantiles())
    return replace(base, name="iqn", actor=actor, stages=(replace(base.stages[0], critic=(ImplicitTd(),)),))


METHOD = Method(
    paper="arXiv:1806.06923",
    recipe=recipe,
    presets=(CONTROL,),
    default_task="cartpole",
    family="value-based",
    base=dqn,
    departures=(
        "actions are chosen by the mean at 32 fixed levels (i + 1/2) / 32; the paper draws 32",
        "steps, buffer, copies, exploration and Adam's rate are dqn's on each preset",
        "the features that the level is multiplied with have a linear layer of 256 before their ReLU",
    ),
)
