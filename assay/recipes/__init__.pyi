"""Base recipes by name, and their homes."""

# ruff: noqa: I001
# fmt: off
from assay.recipes.actor_critic import a2c as a2c, ppo as ppo
from assay.recipes.conservative import cql as cql, iql as iql, td3_bc as td3_bc
from assay.recipes.group import (
    cispo as cispo, dapo as dapo, dr_grpo as dr_grpo, group_reinforce as group_reinforce, grpo as grpo,
    gspo as gspo, reinforce as reinforce, rloo as rloo, sapo as sapo,
)
from assay.recipes.imitation import bc as bc, dpo as dpo, sft as sft
from assay.recipes.judges import preference_score as preference_score
from assay.recipes.off_policy import dqn as dqn, sac as sac, td3 as td3
from assay.recipes.trajectories import decision_transformer as decision_transformer
