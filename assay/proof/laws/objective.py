"""Laws of objectives, and of the small parts inside the policy-gradient family. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.ops import groups
from assay.parts.objectives.policy import PolicyGradient
from assay.proof.laws.bench import STANDARD, Bench, TermCase, evaluate
from assay.proof.laws.cases import normal
from assay.proof.laws.laws import TIGHT, Contract, Finding, declares, gap, law, shown
from assay.proof.laws.term import COMMON, cases_on


def weights(part: Any, batch: Experience) -> Tensor:
    """Returns the weights of decisions: those of the objective's aggregation, else all equal."""
    aggregate = getattr(part, "aggregate", None)
    return batch.mask.to(batch.reward.dtype) if aggregate is None else aggregate.weigh(batch)


def with_outcome_credit(batch: Experience) -> Experience:
    """Returns the same advantage on every decision of an episode."""
    index = groups.episode_groups(batch).index
    return batch.add({"advantage": normal("outcomes", (len(batch),))[index].unsqueeze(1) * batch.mask})


def at_ratio_one(batch: Experience) -> Experience:
    """Returns the acting policy is the current one."""
    return replace(batch, logp=batch.column("scored.logp"))


def is_local(part: Any, case: TermCase) -> bool:
    """Returns whether a decision's gradient does not depend on the log-probabilities of the others in its row."""
    first = case.batch.mask & (case.batch.mask.long().cumsum(1) == 1)
    moved = case.batch.add({"scored.logp": case.batch.column("scored.logp") + 0.1 * first})
    plain, other = evaluate(part, case).policy["logp"], evaluate(part, case, moved).policy["logp"]
    return gap(torch.where(first, 0.0, other), torch.where(first, 0.0, plain)) <= TIGHT


@law("zero credit gives zero gradient")
def zero_credit(part: Any, case: TermCase) -> Iterator[str]:
    """All advantages are 0."""
    trial = evaluate(part, case, case.batch.add({"advantage": torch.zeros_like(case.batch.logp)}))
    for name, gradient in {**trial.policy, **trial.parameters}.items():
        if bool((gradient != 0).any()):
            yield f"advantages are all 0, and the gradient in {name} is {shown(gradient)}"


@law("no gradient reaches recorded columns, old and reference log-probabilities among them")
def recorded(part: Any, case: TermCase) -> Iterator[str]:
    """Recorded columns are made to take gradient, and take none."""
    for name, gradient in evaluate(part, case, watched=True).recorded.items():
        if bool((gradient != 0).any()):
            yield f"the gradient in {name} is {shown(gradient)}"


@law("at ratio one the gradient is REINFORCE's, -advantage * weight", declares("first_order"))
def first_order(part: Any, case: TermCase) -> Iterator[str]:
    """With the same credit on a whole row; with any credit where decisions do not share their ratio."""
    plain = at_ratio_one(case.batch)
    inputs = [("outcome credit", with_outcome_credit(plain))]
    inputs += [("credit for each decision", plain)] if is_local(part, case) else []
    for name, batch in inputs:
        found = evaluate(part, case, batch).policy["logp"]
        expected = -batch.column("advantage") * weights(part, batch)
        if gap(found, expected) > TIGHT:
            yield f"with {name} it is {shown(found[batch.mask])} instead of {shown(expected[batch.mask])}"


OBJECTIVE = Contract("objective", (*COMMON, zero_credit, recorded, first_order), cases_on)
RATIO = replace(OBJECTIVE, slot="ratio", holder=lambda part: PolicyGradient(ratio=part))
TRUST = replace(OBJECTIVE, slot="trust", holder=lambda part: PolicyGradient(trust=part))


def check_objective(part: Any, benches: Sequence[Bench] = STANDARD) -> list[Finding]:
    """Checks the laws of an objective; `benches` where it asks for models that the standard ones lack."""
    return OBJECTIVE.check(part, cases_on(part, benches))
