"""Any base recipe under a constraint: reads costs, merges them, and adds a cost critic if the constraint needs one."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe, Stage
from assay.core.slots import Constraint, Reward
from assay.parts.constraints.cost import CostCritic
from assay.parts.constraints.multiplier import Multiplier, Pid
from assay.parts.critics.td import Td
from assay.parts.predictions import OfState
from assay.parts.rewards.cost import TaskCost
from assay.parts.targets.recorded import Column
from assay.recipes.actor_critic import ppo
from assay.recipes.presets import CONTROL, Preset


def constrained(base: Recipe, constraint: Constraint, cost: Reward = TaskCost()) -> Recipe:
    """Returns the base with a constraint on a cost: the task's own, or what another reward writes (`LengthCost`)."""
    return replace(base, rewards=(*base.rewards, cost), constraints=(*base.constraints, constraint))


def with_cost_critic(base: Recipe, preset: Preset) -> Recipe:
    """Returns the base with a critic `cost_value` and its stage, for constraints whose credit is a CostCritic."""
    loss = Td(Column("cost_return"), of=OfState("cost_value"))
    stage = Stage("cost value", trains=("cost_value",), critic=(loss,), optimizer=preset.optimizer)
    return replace(base, critics={**base.critics, "cost_value": preset.value}, stages=(*base.stages, stage))


def safe_ppo(preset: Preset = CONTROL, cost: Reward = TaskCost()) -> Recipe:
    """PPO with a PID-controlled multiplier that holds the cost at a limit (arXiv:2007.03964), and a cost critic."""
    credit = CostCritic(preset.gae.discount, preset.gae.gae_lambda)
    base = constrained(with_cost_critic(ppo(preset), preset), Multiplier(rule=Pid(), credit=credit), cost)
    return replace(base, name="safe-rl-review")
