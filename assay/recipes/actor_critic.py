"""On-policy base recipes with a critic, for language and control."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Recipe, Stage
from assay.parts.credit.temporal import Whiten
from assay.parts.critics.td import Td
from assay.parts.curricula.in_order import InOrder
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip, NoTrust
from assay.parts.predictions import OfState
from assay.parts.regularizers.divergence import EntropyBonus
from assay.parts.targets.recorded import Column
from assay.recipes.presets import CONTROL, Preset


def ppo(preset: Preset = CONTROL) -> Recipe:
    """PPO (arXiv:1707.06347): GAE, clipped ratio, entropy bonus, squared value error, several epochs."""
    stages = (
        Stage(
            "policy",
            trains=("actor",),
            objective=(PolicyGradient(trust=Clip(0.2, 0.2)),),
            regularizers=(EntropyBonus(preset.entropy),),
            optimizer=preset.optimizer,
        ),
        Stage("value", trains=("value",), critic=(Td(Column(), of=OfState()),), optimizer=preset.optimizer),
    )
    return Recipe(
        name="ppo",
        actor=preset.actor,
        critics={"value": preset.value},
        rollout=preset.fragment_rollout,
        curriculum=InOrder(),
        credit=(preset.gae, Whiten()),
        source=preset.minibatch_source,
        stages=stages,
        steps=preset.steps,
    )


def a2c(preset: Preset = CONTROL) -> Recipe:
    """A2C (arXiv:1602.01783, synchronous): GAE, one on-policy step, no ratio.

    Without a ratio a batch is used for one step only, so batches are small and steps many: an eighth of PPO's batch
    on CartPole.
    """
    base = ppo(preset)
    policy = replace(base.stages[0], objective=(PolicyGradient(trust=NoTrust()),))
    steps = preset.more_steps * preset.steps
    return replace(
        base,
        name="a2c",
        stages=(policy, base.stages[1]),
        rollout=preset.short_rollout,
        source=preset.on_policy_source,
        steps=steps,
    )
