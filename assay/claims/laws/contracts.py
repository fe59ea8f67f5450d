"""Every slot and its laws."""

from __future__ import annotations

from collections.abc import Mapping

from assay.claims.laws.actor import ACTOR
from assay.claims.laws.aggregation import AGGREGATION
from assay.claims.laws.annotation import ANNOTATION
from assay.claims.laws.certificate import CERTIFICATE
from assay.claims.laws.choice import CHOICE
from assay.claims.laws.constraint import CONSTRAINT
from assay.claims.laws.credit import CREDIT, PREPARE, SELECT, STATISTIC
from assay.claims.laws.critic import CRITIC, CRITIC_LOSS
from assay.claims.laws.curriculum import CURRICULUM
from assay.claims.laws.gate import GATE
from assay.claims.laws.laws import Contract
from assay.claims.laws.model import ACTOR_HEAD, BODY, CRITIC_HEAD
from assay.claims.laws.objective import OBJECTIVE, RATIO, TRUST
from assay.claims.laws.optimizer import OPTIMIZER
from assay.claims.laws.regression import FIT, PREDICTION, TARGET
from assay.claims.laws.regularizer import REGULARIZER
from assay.claims.laws.reward import REWARD
from assay.claims.laws.rollout import ROLLOUT
from assay.claims.laws.explore import EXPLORE
from assay.claims.laws.schedule import SCHEDULE
from assay.claims.laws.source import SOURCE
from assay.claims.laws.task_change import TASK_CHANGE
from assay.claims.laws.wrapper import WRAPPER

CONTRACTS: Mapping[str, Contract] = {
    contract.slot: contract
    for contract in (
        ACTOR, ACTOR_HEAD, AGGREGATION, ANNOTATION, BODY, CERTIFICATE, CHOICE, CONSTRAINT, CREDIT, CRITIC, CRITIC_HEAD,
        CRITIC_LOSS, CURRICULUM, EXPLORE, FIT, GATE, OBJECTIVE, OPTIMIZER, PREDICTION, PREPARE, RATIO, REGULARIZER,
        REWARD, ROLLOUT, SCHEDULE, SELECT, SOURCE, STATISTIC, TARGET, TASK_CHANGE, TRUST, WRAPPER,
    )
}  # fmt: skip
"""Slot, as discovery names it -> its contract."""
