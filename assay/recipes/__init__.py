"""Base recipes: each a function of the task defaults (`world`) it is built for."""

from assay.recipes.actor_critic import a2c, ppo
from assay.recipes.conservative import cql, iql
from assay.recipes.group import cispo, dapo, dr_grpo, group_reinforce, grpo, gspo, reinforce, rloo, sapo
from assay.recipes.imitation import bc, dpo, sft
from assay.recipes.judges import preference_score
from assay.recipes.off_policy import dqn, sac, td3

__all__ = [
    "a2c",
    "bc",
    "cispo",
    "cql",
    "dapo",
    "dpo",
    "dqn",
    "dr_grpo",
    "group_reinforce",
    "grpo",
    "gspo",
    "iql",
    "ppo",
    "preference_score",
    "reinforce",
    "rloo",
    "sac",
    "sapo",
    "sft",
    "td3",
]
