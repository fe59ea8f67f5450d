"""Outcomes that are known when a rollout ends, as columns of the record, so that judging asks for nothing again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from assay.core.record import Experience, InfraFault, Outcome, PolicyFault, Score

VALUE, FAULT, KIND = "outcome/value", "outcome/fault", "outcome/kind"
"""Columns [B]: the value of a score or of a policy's fault; the fault: 0, POLICY or INFRA; and its kind, a place in
KINDS.
"""
POLICY, INFRA = 1, 2
RAISED, REPLY_TIME, EPISODE_TIME, TOO_LONG, NO_REPLY, OTHER_REPLY, TURNS = KINDS = (
    "the session raised an exception",
    "no reply in time",
    "no time left for the episode",
    "the reply is too long",
    "not a reply",
    "the session did not repeat its replies",
    "the turns ran out",
)
"""Kinds of faults that a record names; those of other kinds are faults of the policy or of the infrastructure."""
GENERAL = {POLICY: "fault of the policy", INFRA: "fault of the infrastructure"}


def with_recorded(experience: Experience, outcomes: Sequence[Outcome]) -> Experience:
    """Returns the experience with the columns of these outcomes, one for each row."""
    values = [0.0 if isinstance(one, InfraFault) else one.value for one in outcomes]
    faults = [INFRA if isinstance(one, InfraFault) else POLICY * isinstance(one, PolicyFault) for one in outcomes]
    kinds = ["" if isinstance(one, Score) else one.kind for one in outcomes]
    places = [KINDS.index(kind) + 1 if kind in KINDS else 0 for kind in kinds]
    value_B, device = torch.tensor(values, dtype=torch.float64), experience.mask.device
    columns = {VALUE: value_B, FAULT: torch.tensor(faults), KIND: torch.tensor(places)}
    return experience.add({name: column.to(device) for name, column in columns.items()})


def is_recorded(experience: Experience) -> bool:
    """Returns whether the experience has recorded outcomes."""
    return VALUE in experience.extra


def recorded_outcomes(experience: Experience) -> list[Outcome]:
    """Returns the recorded outcome of each row."""
    columns = [experience.column(name).tolist() for name in (VALUE, FAULT, KIND)]
    return [recorded_outcome(*row) for row in zip(*columns, strict=True)]


def recorded_outcome(value: float, fault: int, kind: int = 0) -> Outcome:
    """Returns one outcome; `kind` counts the kinds of faults from 1, and 0 is any other."""
    told = KINDS[kind - 1] if kind else GENERAL.get(fault, "")
    if fault == INFRA:
        return InfraFault(told)
    return PolicyFault(told, value) if fault == POLICY else Score(value)
