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
    step, (q, squares) = steps.step_of(seen), steps.double_q(seen, 0.99)
    return step.mean(squares + q.exp().sum(-1).log() - q[torch.arange(len(q)), step.action])


def continuous_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    """Returns the losses of critics, actor and temperature; with a multiplier if the recipe has one."""
    step, (squares, penalty) = steps.step_of(seen), steps.conservative(seen, 0.99, 10)
    critic = step.mean(squares + penalty)
    if "multiplier" in seen.models:  # weight 1 becomes a number m > 0 that climbs m * (mean gap - 5)
        weight, constant = seen.models["multiplier"].log_value.exp(), math.log(30.0)
        mean_gap = step.mean(penalty.mean(0) - constant).detach()
        critic = step.mean(squares + weight.detach() * penalty) - weight * (mean_gap - 5.0)
    return {"critic": critic, "actor": steps.sac_actor(seen)}


def schedule_gap(world: Defaults) -> float:
    """Returns the largest deviation of the target networks from their stated schedule."""
    spec = probes.CHOICE_SPEC if world.discrete else probes.BOX_SPEC
    trained = {"actor": 1} if world.discrete else {"actor": 1, "q": 1, "temperature": 1}
    targets = {"target": ("actor", 1.0, 128)} if world.discrete else {"q_target": ("q", 0.005, 1)}
    num = 130 if world.discrete else 6
    return probes.schedule_gap(cql(world), probes.transitions(spec, dtype=torch.float32), spec, trained, targets, num)
