"""Laws of constraints. The multiplier is the entry of the state whose name contains `multiplier`.

Axes: B sequences; a multiplier has one number a cost.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.claims.laws.cases import EPISODES, FRAGMENTS, TORQUES, Case, build
from assay.claims.laws.credit import EVERY, advantage_of, written
from assay.claims.laws.invariance import apart
from assay.claims.laws.laws import TIGHT, Contract, Law, gap, is_finite, law
from assay.claims.laws.state import saved_and_loaded, untouched
from assay.core.record import Experience, State
from assay.core.slots import ALONE

HIGH, LOW = 1e3, 0.0
"""Costs of a decision that break any sensible limit, and that keep every one."""


def cost_cases(part: Any) -> list[Case]:
    """Returns experience with costs."""
    return [Case(f"torques: {layout.name}", build(TORQUES, layout)) for layout in (EPISODES, FRAGMENTS)]


def with_cost(batch: Experience, cost: float) -> Experience:
    """Returns the same cost for every decision."""
    assert batch.cost is not None
    priced = torch.full_like(batch.cost, cost) * batch.mask.unsqueeze(-1)
    return replace(batch.map(torch.clone), cost=priced)


def multiplier(state: State) -> Tensor:
    """Returns the multipliers in a state, as one tensor."""
    found = [torch.as_tensor(value).double().reshape(-1) for name, value in state.items() if "multiplier" in name]
    if not found:
        raise KeyError(f"its state has no entry named `multiplier`, only {sorted(state)}")
    return torch.cat(found)


def after(part: Any, batch: Experience, *costs: float) -> list[Tensor]:
    """Returns the multipliers at the start and after observing each cost in turn."""
    state = part.init(ALONE)
    seen = [multiplier(state)]
    for cost in costs:
        part(with_cost(batch, cost), ALONE, state)
        seen.append(multiplier(state))
    return seen


@law("the multiplier stays finite and not negative")
def not_negative(part: Any, case: Case) -> Iterator[str]:
    """Through slack from the start, violation, and slack again."""
    for place, value in enumerate(after(part, case.batch, LOW, LOW, HIGH, LOW, LOW, LOW)):
        if bool((value < 0).any()) or not is_finite(value):
            yield f"it is {value.tolist()} after {place} observations"


@law("the multiplier rises on violation")
def rises(part: Any, case: Case) -> Iterator[str]:
    """Costs far above the limit."""
    start, once, twice = after(part, case.batch, HIGH, HIGH)
    if not bool((once > start).any()) or not bool((twice >= once).all()):
        yield f"costs of {HIGH:g} a decision move it from {start.tolist()} to {once.tolist()} to {twice.tolist()}"


@law("the multiplier falls on slack")
def falls(part: Any, case: Case) -> Iterator[str]:
    """No costs after a violation."""
    _, raised, *later = after(part, case.batch, HIGH, *[LOW] * 50)
    if not bool((later[-1] < raised).any()) or bool((later[-1] > raised).any()):
        yield f"50 observations without cost move it from {raised.tolist()} to {later[-1].tolist()}"


@law("its state survives save and load")
def resumes(part: Any, case: Case) -> Iterator[str]:
    """Saved after one observation; both continue and agree."""
    state = part.init(ALONE)
    part(with_cost(case.batch, 1.0), ALONE, state)
    loaded = saved_and_loaded(untouched(state), part.init(ALONE))
    for which in (state, loaded):
        part(case.batch, ALONE, which)
    if gap(multiplier(loaded), multiplier(state)) > 0.0:
        yield f"the multiplier continues at {multiplier(loaded).tolist()} instead of {multiplier(state).tolist()}"
    yield from apart(written(Merging(part, loaded), case.batch), written(Merging(part, state), case.batch), 0.0)


@law("it merges with the multiplier from before this batch, not with the updated one")
def lagged(part: Any, case: Case) -> Iterator[str]:
    """From a new start, costs of any size leave the credit as with a multiplier of 0 (the first batch is free)."""
    low, high = (advantage_of(Merging(part, part.init(ALONE)), with_cost(case.batch, cost)) for cost in (LOW, HIGH))
    if gap(low, high) > TIGHT:
        yield "the first batch is priced with its own violation"


@law("costs matter once the limit was broken")
def bites(part: Any, case: Case) -> Iterator[str]:
    """With a raised multiplier the merged experience differs from that of a new start."""
    state = part.init(ALONE)
    part(with_cost(case.batch, HIGH), ALONE, state)
    pressed, free = written(Merging(part, state), case.batch), written(Merging(part, part.init(ALONE)), case.batch)
    if all(gap(pressed[name], free[name]) <= TIGHT for name in pressed.keys() & free.keys()):
        yield "the experience is the same with and without a raised multiplier"


class Merging:
    """A constraint with its state filled in: a function of experience."""

    def __init__(self, part: Any, state: State) -> None:
        self.part, self.state = part, state

    def __call__(self, experience: Experience) -> Experience:
        """Returns the merged experience."""
        merged: Experience = self.part(experience, ALONE, copy.deepcopy(self.state))
        return merged


def pressed_part(part: Any, case: Case) -> Merging:
    """Returns the constraint after a violation."""
    state = part.init(ALONE)
    part(with_cost(case.batch, HIGH), ALONE, state)
    return Merging(part, state)


def lifted(one: Law) -> Law:
    """Returns a law of what works on experience, for a constraint after a violation."""
    return Law(one.name, one.says, lambda part, case: one.test(pressed_part(part, case), case), one.binds)


LAWS = (not_negative, rises, falls, resumes, lagged, bites, *(lifted(one) for one in EVERY))
CONSTRAINT = Contract("constraint", LAWS, cost_cases)
check_constraint = CONSTRAINT.check
"""Checks the laws of a constraint."""
