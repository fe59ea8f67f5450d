"""Every slot and its laws."""

from __future__ import annotations

from collections.abc import Mapping

from assay.proof.laws.actor import ACTOR
from assay.proof.laws.aggregation import AGGREGATION
from assay.proof.laws.annotation import ANNOTATION
from assay.proof.laws.certificate import CERTIFICATE
from assay.proof.laws.choice import CHOICE
from assay.proof.laws.constraint import CONSTRAINT
from assay.proof.laws.credit import CREDIT, PREPARE, SELECT, STATISTIC
from assay.proof.laws.critic import CRITIC, CRITIC_LOSS
from assay.proof.laws.curriculum import CURRICULUM
from assay.proof.laws.gate import GATE
from assay.proof.laws.laws import Contract
from assay.proof.laws.model import ACTOR_HEAD, BODY, CRITIC_HEAD
from assay.proof.laws.objective import OBJECTIVE, RATIO, TRUST
from assay.proof.laws.optimizer import OPTIMIZER
from assay.proof.laws.regression import FIT, PREDICTION, TARGET
from assay.proof.laws.regularizer import REGULARIZER
from assay.proof.laws.reward import REWARD
from assay.proof.laws.rollout import EXPLORE, ROLLOUT
from assay.proof.laws.schedule import SCHEDULE
from assay.proof.laws.source import SOURCE
from assay.proof.laws.task_change import TASK_CHANGE
from assay.proof.laws.wrapper import WRAPPER

CONTRACTS: Mapping[str, Contract] = {
    contract.slot: contract
    for contract in (
        ACTOR, ACTOR_HEAD, AGGREGATION, ANNOTATION, BODY, CERTIFICATE, CHOICE, CONSTRAINT, CREDIT, CRITIC, CRITIC_HEAD,
        CRITIC_LOSS, CURRICULUM, EXPLORE, FIT, GATE, OBJECTIVE, OPTIMIZER, PREDICTION, PREPARE, RATIO, REGULARIZER,
        REWARD, ROLLOUT, SCHEDULE, SELECT, SOURCE, STATISTIC, TARGET, TASK_CHANGE, TRUST, WRAPPER,
    )
}  # fmt: skip
"""Slot, as discovery names it -> its contract."""
