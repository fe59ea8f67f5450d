"""Laws of certificates: what is said of a trained policy depends on the episodes alone, and high costs never pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from assay.claims.laws.cases import Case
from assay.claims.laws.constraint import HIGH, LOW, cost_cases, with_cost
from assay.claims.laws.laws import TIGHT, Contract, law
from assay.core.record import pad


def numbers(part: Any, case: Case) -> dict[str, float]:
    """Returns what it says, as numbers."""
    said = part(case.batch)
    return {"holds": float(said.holds), **said.numbers}


def differing(mine: dict[str, float], other: dict[str, float]) -> list[str]:
    """Returns names of the numbers that differ."""
    size = {name: max(1.0, abs(value)) for name, value in mine.items()}
    pairs = {name: (mine[name], other.get(name, float("nan"))) for name in mine}
    return [name for name, (a, b) in pairs.items() if a != b and not abs(a - b) <= TIGHT * size[name]]


@law("padding and the order of rows change nothing")
def order(part: Any, case: Case) -> Iterator[str]:
    """Rows reversed and columns added."""
    turned = case.batch.rows(torch.arange(len(case.batch) - 1, -1, -1))
    mine = numbers(part, case)
    for what, batch in (("the order of rows", turned), ("padding", pad(case.batch, case.batch.num_columns + 3))):
        names = differing(mine, numbers(part, Case(case.name, batch)))
        if names:
            yield f"{what} changes {', '.join(names)}"


@law("it refuses what costs far more than any limit, and says why")
def refuses(part: Any, case: Case) -> Iterator[str]:
    """A cost of a thousand for each decision."""
    said = part(with_cost(case.batch, HIGH))
    if said.holds or not said.statement:
        yield f"costs of {HIGH:g} a decision: holds is {said.holds}, it says '{said.statement}'"


@law("what it says is finite")
def finite(part: Any, case: Case) -> Iterator[str]:
    """With and without costs, and for a single episode."""
    for cost in (LOW, HIGH):
        for batch in (case.batch, case.batch.rows(slice(0, 1))):
            said = part(with_cost(batch, cost))
            wrong = [name for name, value in said.numbers.items() if value != value]
            if wrong:
                yield f"costs of {cost:g}, {len(batch)} rows: {', '.join(wrong)} is not a number"


CERTIFICATE = Contract("certificate", (order, refuses, finite), cost_cases)
check_certificate = CERTIFICATE.check
"""Checks all laws on experience with costs."""
