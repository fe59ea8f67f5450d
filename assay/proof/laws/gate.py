"""Laws of gates: their answers depend on models and state alone, and they change neither."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.record import State
from assay.proof.laws.cases import normal
from assay.proof.laws.laws import Contract, Finding, law, other_streams
from assay.proof.laws.state import saved_and_loaded, untouched


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


def said(part: Any, case: GateCase, times: int, state: State | None = None, first: int = 0) -> list[Tensor]:
    """Returns the gate's answers over time, from a new start or from a state."""
    mine = part.init() if state is None else state
    return [part(case.models(first + time), mine) for time in range(times)]


@law("it answers yes or no, for all or for each member")
def answers(part: Any, case: GateCase) -> Iterator[str]:
    """A bool tensor [] or [N]."""
    for time, goes in enumerate(said(part, case, 5)):
        if not isinstance(goes, Tensor) or goes.dtype != torch.bool or goes.shape not in ((), (case.num,)):
            yield f"at time {time} it said {goes!r}"


@law("models are not modified")
def unmodified(part: Any, case: GateCase) -> Iterator[str]:
    """Their weights and scores are as they were."""
    models = case.models(0)
    before = copy.deepcopy(models["actor"].state_dict())
    part(models, part.init())
    yield from (f"{k} changed" for k, v in models["actor"].state_dict().items() if not torch.equal(v, before[k]))


@law("equal models and states give equal answers")
def repeats(part: Any, case: GateCase) -> Iterator[str]:
    """With the global random streams at different places."""
    runs = []
    for seed in (1, 2):
        with other_streams(seed):
            runs.append(said(part, case, 6))
    yield from (f"at time {k}" for k, (a, b) in enumerate(zip(*runs, strict=True)) if not torch.equal(a, b))


@law("its state survives save and load")
def resumes(part: Any, case: GateCase) -> Iterator[str]:
    """Saved after three answers; both continue and agree."""
    state = part.init()
    said(part, case, 3, state)
    loaded = saved_and_loaded(untouched(state), part.init())
    for time, (mine, other) in enumerate(
        zip(said(part, case, 5, loaded, first=3), said(part, case, 5, state, first=3), strict=True)
    ):
        if not torch.equal(mine, other):
            yield f"{time} answers later it says {mine.tolist()} instead of {other.tolist()}"


GATE = Contract("gate", (answers, unmodified, repeats, resumes), gate_cases)


def check_gate(part: Any) -> list[Finding]:
    """Checks all laws on scores that rise and fall."""
    return GATE.check(part)
