"""Laws of plain functions that a user brings: a loss of log-probabilities, an advantage of rewards (see
`assay.runs.user_code.functions` for what they take and return).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from assay.claims.laws.trials import TermCase, evaluate
from assay.claims.laws.benches import STANDARD
from assay.claims.laws.cases import Case
from assay.claims.laws.credit import CREDIT, advantage_of, episodes, no_gradient
from assay.claims.laws.laws import LOOSE, TIGHT, Contract, Finding, gap, law, shown
from assay.claims.laws.objective import POLICY, at_ratio_one, at_reference, with_outcome_credit, zero_credit
from assay.claims.laws.term import COMMON, cases_on, count, declared, last_column
from assay.core.errors import AssayError
from assay.runs.user_code.functions import AdvantageFunction, LossFunction, roles


# ---------------------------------------------------------------------------------------------------- losses
@law("it is a sum: twice the rows give twice the loss")
def sums(part: LossFunction, case: TermCase) -> Iterator[str]:
    """A loss that divides by its own count gives micro-batches and ranks wrong weights."""
    twice = torch.arange(len(case.batch)).repeat(2)
    once, doubled = evaluate(part, case).sum, evaluate(part, case, case.batch.rows(twice)).sum
    if gap(doubled, 2 * once) > TIGHT:
        is_mean = gap(doubled, once) <= TIGHT
        why = "returns a mean; return (sum, count)" if is_mean else "is not a sum over rows"
        yield f"it {why}: {shown(once)} for the rows, {shown(doubled)} for the rows twice"


@law("raising the log-probability of a good decision lowers the loss, that of a bad one raises it")
def sign(part: LossFunction, case: TermCase) -> Iterator[str]:
    """At ratio one, where the policy is the reference, with the same advantage on a whole row."""
    batch = with_outcome_credit(at_reference(at_ratio_one(case.batch)))
    gradient, credit = evaluate(part, case, batch).policy["logp"], batch.column("advantage")
    if bool((gradient * credit > 0).any()):
        wrong = gradient * credit > 0
        yield f"advantage {shown(credit[wrong])} has gradient {shown(gradient[wrong])}: the sign is wrong"
    elif not bool((gradient * credit < 0).any()):
        yield "no decision gets a gradient"


LOSS_LAWS = tuple(one for one in COMMON if one not in (declared, count, last_column))
LOSS_FUNCTION = Contract("loss function", (*LOSS_LAWS, sums, sign, zero_credit, *POLICY), cases_on)


def check_loss(function: Callable[..., Any]) -> list[Finding]:
    """Checks the laws of a plain loss function; see `assay.runs.user_code.functions`."""
    part = LossFunction(function)
    try:
        roles(function)
    except AssayError as error:
        return [Finding("arguments", False, str(error))]
    return LOSS_FUNCTION.check(part, cases_on(part, STANDARD[:2]))


# ---------------------------------------------------------------------------------------------------- advantages
@law("a better outcome never lowers its own advantage")
def prefers(part: AdvantageFunction, case: Case) -> Iterator[str]:
    """The reward of each row's last decision is raised in turn."""
    batch, plain = case.batch, advantage_of(part, case.batch)
    for row in batch.mask.any(1).nonzero().squeeze(1).tolist():
        last = int(batch.mask[row].nonzero().max())
        reward = batch.reward.clone()
        reward[row, last] += 1.0
        found = advantage_of(part, replace(batch, reward=reward))[row, last]
        if float(found - plain[row, last]) < -LOOSE:
            yield f"a reward raised by 1 moves it from {shown(plain[row, last])} to {shown(found)}: the sign is wrong"


LAWS = (*(one for one in CREDIT.laws if one not in (episodes, no_gradient)), prefers)
ADVANTAGE_FUNCTION = replace(CREDIT, slot="advantage function", laws=LAWS)


def check_advantage(function: Callable[..., Any]) -> list[Finding]:
    """Checks the laws of a plain advantage function; see `assay.runs.user_code.functions`."""
    try:
        roles(function)
    except AssayError as error:
        return [Finding("arguments", False, str(error))]
    return ADVANTAGE_FUNCTION.check(AdvantageFunction(function))
