"""The laws as functions: each takes a part and returns findings, on CPU, in seconds.

from assay.claims.laws import assert_laws, check_objective
assert_laws(check_objective(MyObjective()))
"""

from assay.claims.laws.actor import check_actor
from assay.claims.laws.aggregation import check_aggregation
from assay.claims.laws.annotation import check_annotation
from assay.claims.laws.certificate import check_certificate
from assay.claims.laws.choice import check_choice
from assay.claims.laws.constraint import check_constraint
from assay.claims.laws.credit import check_credit, check_select
from assay.claims.laws.critic import check_critic, check_critic_loss
from assay.claims.laws.curriculum import check_curriculum
from assay.claims.laws.environment import check_environment
from assay.claims.laws.function import check_advantage, check_loss
from assay.claims.laws.gate import check_gate
from assay.claims.laws.laws import Finding, assert_laws
from assay.claims.laws.objective import check_objective
from assay.claims.laws.optimizer import check_optimizer
from assay.claims.laws.regularizer import check_regularizer
from assay.claims.laws.reward import check_reward
from assay.claims.laws.rollout import check_rollout
from assay.claims.laws.explore import check_explore
from assay.claims.laws.schedule import check_schedule
from assay.claims.laws.source import check_source
from assay.claims.laws.task_change import check_task_change
from assay.claims.laws.wrapper import check_wrapper

__all__ = [
    "Finding",
    "assert_laws",
    "check_actor",
    "check_advantage",
    "check_aggregation",
    "check_annotation",
    "check_certificate",
    "check_choice",
    "check_constraint",
    "check_credit",
    "check_critic",
    "check_critic_loss",
    "check_curriculum",
    "check_environment",
    "check_explore",
    "check_gate",
    "check_loss",
    "check_objective",
    "check_optimizer",
    "check_regularizer",
    "check_reward",
    "check_rollout",
    "check_schedule",
    "check_select",
    "check_source",
    "check_task_change",
    "check_wrapper",
]
