"""Laws of regularizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from assay.claims.laws.trials import TermCase, carried, evaluate
from assay.claims.laws.benches import STANDARD, Bench
from assay.claims.laws.laws import TIGHT, Contract, Finding, declares, law, shown
from assay.claims.laws.objective import entropy, reference
from assay.claims.laws.term import COMMON, cases_on


@law("gradient goes into the policy only")
def policy_only(part: Any, case: TermCase) -> Iterator[str]:
    """Recorded columns and critics get none."""
    trial = evaluate(part, case, watched=True)
    critics = {name: value for name, value in trial.parameters.items() if not name.startswith("actor.")}
    yield from carried({**trial.recorded, **critics})


@law("a divergence is not negative, and zero at the reference", declares("divergence"))
def divergence(part: Any, case: TermCase) -> Iterator[str]:
    """On the whole, on each row, and where the policy is the reference."""
    units = (
        [case.batch]
        if part.together
        else [case.batch, *(case.batch.rows(slice(row, row + 1)) for row in range(len(case.batch)))]
    )
    for batch in units:
        value = evaluate(part, case, batch).sum
        if float(value) < -TIGHT:
            yield f"it is {shown(value)} away from the reference"
    same = replace(case, bench=replace(case.bench, copies={**case.bench.copies, "reference": "actor"}))
    same.bench.model("reference").load_state_dict(same.bench.model("actor").state_dict())
    at_reference = evaluate(part, same, case.batch.add({"logp_ref": case.batch.column("scored.logp")}))
    if abs(float(at_reference.sum)) > TIGHT:
        yield f"it is {shown(at_reference.sum)} at the reference"
    if not bool(torch.isfinite(at_reference.sum)):
        yield "it is not finite at the reference"


REGULARIZER = Contract("regularizer", (*COMMON, policy_only, divergence, reference, entropy), cases_on)


def check_regularizer(part: Any, benches: Sequence[Bench] = STANDARD) -> list[Finding]:
    """Checks the laws of a regularizer; `benches` where it asks for models that the standard ones lack."""
    return REGULARIZER.check(part, cases_on(part, benches))
