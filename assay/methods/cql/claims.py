"""CQL's losses by hand, for discrete and continuous actions."""

from __future__ import annotations

import math

import torch

from assay.claims import probes
from assay.claims.probes import steps
from assay.recipes.conservative import cql
from assay.recipes.defaults import Defaults


def discrete_by_hand(seen: probes.Seen) -> torch.Tensor:
    """Returns double DQN's loss and the penalty by a plain sum over actions."""
    step, out = steps.step_of(seen), steps.output
    row, q = torch.arange(len(step.reward)), out(seen.models["actor"], step.now)
    best = out(seen.models["actor"], step.after).argmax(-1)
    error = q[row, step.action] - step.target(0.99, out(seen.models["target"], step.after)[row, best])
    return step.mean(error.square() / 2 + q.exp().sum(-1).log() - q[row, step.action])


def continuous_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    """Returns the losses of critics, actor and temperature; with a multiplier if the recipe has one."""
    step, models, out = steps.step_of(seen), seen.models, steps.output
    next_action, _ = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    recorded = out(models["q"], step.now, step.action)
    error = recorded - step.target(0.99, out(models["q_target"], step.after, next_action).amin(0))
    proposals = []
    for k in range(10):
        for tag, place in ((4, step.now), (5, step.after)):
            proposals.append(steps.squashed(models["actor"], place, seen.uniform(1, 10, 2, tag=tag)[:, 0, k]))
        anything = steps.LOW + (steps.HIGH - steps.LOW) * seen.uniform(1, 10, 2, tag=6)[:, 0, k]
        proposals.append((anything, torch.tensor(-math.log(4.0 * 1.5))))
    values = [out(models["q"], step.now, action.detach()) - logp.detach() for action, logp in proposals]
    penalty = torch.stack(values).logsumexp(0) - recorded
    critic = step.mean(error.square() / 2 + penalty)
    if "multiplier" in models:  # weight 1 becomes a number m > 0 that climbs m * (mean gap - 5)
        weight, constant = models["multiplier"].log_value.exp(), math.log(30.0)
        mean_gap = step.mean(penalty.mean(0) - constant).detach()
        critic = step.mean(error.square() / 2 + weight.detach() * penalty) - weight * (mean_gap - 5.0)
    return {"critic": critic, "actor": steps.sac_actor(seen, lambda s, a: out(models["q"], s, a).amin(0))}


def schedule_gap(world: Defaults) -> float:
    """Returns the largest deviation of the target networks from their stated schedule."""
    spec = probes.CHOICE_SPEC if world.discrete else probes.BOX_SPEC
    trained = {"actor": 1} if world.discrete else {"actor": 1, "q": 1, "temperature": 1}
    targets = {"target": ("actor", 1.0, 128)} if world.discrete else {"q_target": ("q", 0.005, 1)}
    num = 130 if world.discrete else 6
    return probes.schedule_gap(cql(world), probes.transitions(spec, dtype=torch.float32), spec, trained, targets, num)
