"""The laws as functions: each takes a part and returns findings, on CPU, in seconds.

from assay.proof.laws import assert_laws, check_objective
assert_laws(check_objective(MyObjective()))
"""

from assay.proof.laws.actor import check_actor
from assay.proof.laws.aggregation import check_aggregation
from assay.proof.laws.annotation import check_annotation
from assay.proof.laws.certificate import check_certificate
from assay.proof.laws.choice import check_choice
from assay.proof.laws.constraint import check_constraint
from assay.proof.laws.credit import check_credit, check_select
from assay.proof.laws.critic import check_critic, check_critic_loss
from assay.proof.laws.curriculum import check_curriculum
from assay.proof.laws.environment import check_environment
from assay.proof.laws.function import check_advantage, check_loss
from assay.proof.laws.gate import check_gate
from assay.proof.laws.laws import Finding, assert_laws
from assay.proof.laws.objective import check_objective
from assay.proof.laws.optimizer import check_optimizer
from assay.proof.laws.regularizer import check_regularizer
from assay.proof.laws.reward import check_reward
from assay.proof.laws.rollout import check_explore, check_rollout
from assay.proof.laws.schedule import check_schedule
from assay.proof.laws.source import check_source
from assay.proof.laws.task_change import check_task_change
from assay.proof.laws.wrapper import check_wrapper

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
