"""Laws of gates: their answers depend on models and state alone, and they change neither.

Axes: N instances of a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims.laws.cases import normal
from assay.claims.laws.laws import Contract, law
from assay.claims.laws.state import continuing
from assay.core.record import State


class Scored(nn.Module):
    """Members with a weight and a score each."""

    def __init__(self, num: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(normal("weights", (num, 3)))
        self.standing = nn.Parameter(torch.zeros(num, dtype=torch.float64))


@dataclass(frozen=True)
class GateCase:
    """`num` members whose scores rise and fall."""

    name: str
    num: int

    def models(self, time: int) -> dict[str, Any]:
        """Returns models whose scores are those of a time."""
        model = Scored(self.num)
        with torch.no_grad():
            model.standing.copy_(normal(f"scores {time}", (self.num,)))
        return {"actor": model}


def gate_cases(part: Any) -> list[GateCase]:
    """Returns one member and several."""
    return [GateCase("one member", 1), GateCase("four members", 4)]


def said(part: Any, case: GateCase, state: State, time: int) -> Tensor:
    """Returns the gate's answer at a time."""
    answer: Tensor = part(case.models(time), state)
    return answer


@law("it answers yes or no, for all or for each member")
def answers(part: Any, case: GateCase) -> Iterator[str]:
    """A bool tensor [] or [N]."""
    state = part.init()
    for time, goes in enumerate(said(part, case, state, time) for time in range(5)):
        if not isinstance(goes, Tensor) or goes.dtype != torch.bool or goes.shape not in ((), (case.num,)):
            yield f"at time {time} it said {goes!r}"


@law("models are not modified")
def unmodified(part: Any, case: GateCase) -> Iterator[str]:
    """Their weights and scores are as they were."""
    models = case.models(0)
    before = copy.deepcopy(models["actor"].state_dict())
    part(models, part.init())
    yield from (f"{k} changed" for k, v in models["actor"].state_dict().items() if not torch.equal(v, before[k]))


GATE = Contract("gate", (answers, unmodified, *continuing(lambda part, case: part.init(), said)), gate_cases)
check_gate = GATE.check
"""Checks all laws on scores that rise and fall."""
