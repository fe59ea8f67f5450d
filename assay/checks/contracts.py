"""Every slot and its laws."""

from __future__ import annotations

from collections.abc import Mapping

from assay.checks.actor import ACTOR
from assay.checks.aggregation import AGGREGATION
from assay.checks.certificate import CERTIFICATE
from assay.checks.constraint import CONSTRAINT
from assay.checks.credit import CREDIT, PREPARE, SELECT, STATISTIC
from assay.checks.critic import CRITIC, CRITIC_LOSS
from assay.checks.curriculum import CURRICULUM
from assay.checks.gate import GATE
from assay.checks.laws import Contract
from assay.checks.objective import OBJECTIVE, RATIO, TRUST
from assay.checks.regularizer import REGULARIZER
from assay.checks.reward import REWARD
from assay.checks.rollout import EXPLORE, ROLLOUT
from assay.checks.schedule import SCHEDULE
from assay.checks.source import SOURCE
from assay.checks.wrapper import WRAPPER

CONTRACTS: Mapping[str, Contract] = {
    contract.slot: contract
    for contract in (
        ACTOR, AGGREGATION, CERTIFICATE, CONSTRAINT, CREDIT, CRITIC, CRITIC_LOSS, CURRICULUM, EXPLORE, GATE, OBJECTIVE,
        PREPARE, RATIO, REGULARIZER, REWARD, ROLLOUT, SCHEDULE, SELECT, SOURCE, STATISTIC, TRUST,
        WRAPPER,
    )
}  # fmt: skip
"""Slot, as discovery names it -> its contract."""
