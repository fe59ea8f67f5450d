"""The laws as functions: each takes a part and gives findings, on CPU, in seconds.

from assay.checks import assert_laws, check_objective
assert_laws(check_objective(MyObjective()))
"""

from assay.checks.actor import check_actor
from assay.checks.aggregation import check_aggregation
from assay.checks.certificate import check_certificate
from assay.checks.constraint import check_constraint
from assay.checks.credit import check_credit, check_select
from assay.checks.critic import check_critic, check_critic_loss
from assay.checks.curriculum import check_curriculum
from assay.checks.environment import check_environment
from assay.checks.function import check_advantage, check_loss
from assay.checks.gate import check_gate
from assay.checks.laws import Finding, assert_laws
from assay.checks.objective import check_objective
from assay.checks.regularizer import check_regularizer
from assay.checks.reward import check_reward
from assay.checks.rollout import check_explore, check_rollout
from assay.checks.schedule import check_schedule
from assay.checks.source import check_source
from assay.checks.wrapper import check_wrapper

__all__ = [
    "Finding",
    "assert_laws",
    "check_actor",
    "check_advantage",
    "check_aggregation",
    "check_certificate",
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
    "check_regularizer",
    "check_reward",
    "check_rollout",
    "check_schedule",
    "check_select",
    "check_source",
    "check_wrapper",
]
