"""Claims of iqn: its loss by hand, exact and measured claims, mutants. Axes: B transitions, M levels."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import COPIED, About, Average, Claims, Edit, Measured, follows_schedule, probes, same_gradient, steps
from assay.method import Recipe, CONTROL, dqn
from assay.methods.iqn import ImplicitPolicy, ImplicitTd, recipe

SPEC = probes.CHOICE_SPEC


def quantile(model: Any, observation: Tensor, level: Tensor) -> Tensor:
    """Returns Z at one level of each row, [B, A], from the model's layers."""
    waves = torch.stack([torch.cos(math.pi * j * level) for j in range(64)], -1)
    joined = torch.relu(steps.output(model, observation)) * torch.relu(model.embed(waves))
    found: Tensor = model.top(joined)
    return found


def loss_by_hand(seen: probes.Seen) -> Tensor:
    """Returns the loss, one pair of levels after the other."""
    step, row, models = steps.step_of(seen), torch.arange(len(seen.experience)), seen.models
    level, onward = (seen.uniform(1, 64, tag=tag)[:, 0].double() for tag in (7, 8))
    fixed = [quantile(models["target"], step.after, torch.full_like(step.reward, (i + 0.5) / 32)) for i in range(32)]
    best = torch.stack(fixed).sum(0).argmax(-1)
    aims = [step.target(0.99, quantile(models["target"], step.after, onward[:, k])[row, best]) for k in range(64)]
    aim, total = torch.stack(aims, -1), torch.zeros_like(step.reward)
    for i in range(64):
        error = aim - quantile(models["actor"], step.now, level[:, i])[row, step.action].unsqueeze(-1)
        huber = torch.where(error.square() > 1.0, error.abs() - 0.5, 0.5 * error * error)
        side = level[:, i : i + 1]
        total = total + torch.where(error < 0, (1.0 - side) * huber, side * huber).mean(-1)
    return step.mean(total)


def small() -> Recipe:
    """Returns the recipe with a network of which 130 updates take milliseconds."""
    found = recipe().set("actor.hidden", (8,))
    for name, num in {"actor.head.width": 8, "critic.num": 4, "critic.samples": 4}.items():
        found = found.set(name, num)
    return found


CLAIMS = Claims(
    mutants=(
        Edit("the trained network in the target", ImplicitTd.__call__, "model(self.target)", "model(self.actor)"),
        Edit("the same levels on both sides", ImplicitTd.__call__, "tag=8", "tag=7"),
        Edit("angles without pi", ImplicitPolicy.at, "math.pi * level", "level"),
        Edit("the embedding is added", ImplicitPolicy.at, "unsqueeze(-2) *", "unsqueeze(-2) +"),
    ),
    claims=(
        same_gradient("its gradient is that of the formula", recipe, loss_by_hand,
                      partial(probes.transitions, SPEC, num=16), SPEC, at_most=1e-8),
        follows_schedule("the target network is a copy made every 128 updates", small, {"actor": 1}, COPIED, spec=SPEC,
                         num=130),
        Measured("where every move changes the return it scores higher than dqn over the run", "hazards",
                 recipe(CONTROL), dqn(CONTROL), metric=Average("evaluation"), seeds=5, minutes=40.0, steps=60, looks=4,
                 about=About.HEADLINE),
    ),
)
