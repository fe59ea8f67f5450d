"""Starting recipes: each a function of the world it works in."""

from assay.bases.actor_critic import a2c, ppo
from assay.bases.conservative import cql, iql, td3_bc
from assay.bases.group import cispo, dapo, dr_grpo, group_reinforce, grpo, gspo, reinforce, rloo, sapo
from assay.bases.imitation import bc, dpo, sft
from assay.bases.off_policy import dqn, sac, td3
from assay.bases.unified import uni_o4
from assay.bases.warm_start import wsrl

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
    "reinforce",
    "rloo",
    "sac",
    "sapo",
    "sft",
    "td3",
    "td3_bc",
    "uni_o4",
    "wsrl",
]
