"""Laws of critic losses and of critics themselves. Axes: B sequences, T columns."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims.laws.actor_cases import REFUSES, learnable, spec_name
from assay.claims.laws.trials import TermCase, carried, evaluate
from assay.claims.laws.benches import STANDARD, Bench
from assay.claims.laws.cases import CONTROL_LAYOUTS, OTHER_UNITS, RARE_SPECS, SPECS, TOKEN_LAYOUTS, TOKENS, build
from assay.claims.laws.cases import in_other_units, is_rescalable, with_dtype
from assay.claims.laws.laws import LOOSE, TIGHT, Contract, Finding, Unsuited, gap, is_finite, law, runs, shown, suited
from assay.claims.laws.term import COMMON, cases_on
from assay.core.errors import AssayError
from assay.core.record import Experience, pad
from assay.core.spaces import Context, Discrete, Spec
from assay.ops import random


# ---------------------------------------------------------------------------------------------------- losses
def is_transitions(case: TermCase) -> bool:
    """Returns whether each row is one decision and what followed it."""
    return case.batch.num_columns == 2


def unfinished(batch: Experience) -> Experience:
    """Returns the experience without ends of episodes."""
    return replace(batch, terminal=torch.zeros_like(batch.terminal), truncated=torch.zeros_like(batch.truncated))


def other_future(batch: Experience, bench: Bench) -> Experience:
    """Returns the same transitions with another observation after the decision."""
    context = {name: value.clone() for name, value in batch.context.items()}
    for value in context.values():
        if value.is_floating_point():
            value[:, 1] = value[:, 1] + 1.0
        elif isinstance(bench.spec.observation, Discrete):
            half = bench.spec.observation.n // 2
            value[:, 1] = half + (value[:, 1] - half + 1) % half
    return replace(batch, context=context)


def is_of_now(part: Any) -> bool:
    """Returns whether a loss fits a prediction of the context before the decision; a classifier may label the next."""
    return not getattr(getattr(part, "target", None), "after", False)


@law("targets carry no gradient", is_of_now)
def targets(part: Any, case: TermCase) -> Iterator[str]:
    """None into recorded columns; none, in transitions, through what was seen after the decision."""
    trial = evaluate(part, case, unfinished(case.batch), watched=True)
    yield from carried(trial.recorded)
    if not is_transitions(case):
        return
    for name, gradient in trial.context.items():
        if bool((gradient[:, 1] != 0).any()):
            yield f"gradient flows through {name} after the decision: {shown(gradient[:, 1])}"
    states = case.batch.context.get("state")
    for name, gradient in trial.parameters.items() if states is not None else ():
        later = torch.unique(states[:, 1]) if states is not None else torch.empty(0)
        if gradient.dim() and len(gradient) > int(later.max()) and bool((gradient[later] != 0).any()):
            yield f"{name} gets gradient at the states after the decision: {shown(gradient[later])}"


@law("terminal steps do not bootstrap, truncated ones do", is_of_now)
def ends(part: Any, case: TermCase) -> Iterator[str]:
    """Whether the loss of transitions depends on what was seen after the decision, by how the step ended."""
    if not is_transitions(case):
        return
    plain = unfinished(case.batch)
    yes, no = torch.ones_like(plain.mask) & plain.mask, torch.zeros_like(plain.mask)

    def looks_ahead(terminal: Tensor, truncated: Tensor) -> bool:
        batch = replace(plain, terminal=terminal, truncated=truncated)
        return gap(evaluate(part, case, other_future(batch, case.bench)).sum, evaluate(part, case, batch).sum) > TIGHT

    if not looks_ahead(no, no):
        return
    if looks_ahead(yes, no):
        yield "a terminal step's loss depends on what was seen after it"
    if looks_ahead(yes, yes):
        yield "the loss of a step that is both terminal and truncated depends on what was seen after it"
    if not looks_ahead(no, yes):
        yield "a truncated step's loss does not depend on what was seen after it"


CRITIC_LOSS = Contract("critic_loss", (*COMMON, targets, ends), cases_on)


def check_critic_loss(part: Any, benches: Sequence[Bench] = STANDARD) -> list[Finding]:
    """Checks the laws of a critic loss; `benches` where it asks for models that the standard ones lack."""
    return CRITIC_LOSS.check(part, cases_on(part, benches))


# ---------------------------------------------------------------------------------------------------- critics
@dataclass(frozen=True)
class CriticCase:
    """A task's spaces and an experience in them."""

    name: str
    spec: Spec
    batch: Experience

    def model(self, part: Any, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Returns the critic, built under a fixed seed."""
        with random.seeded(3):
            module: nn.Module = part.build(self.spec)
            for parameter in module.parameters():
                nn.init.normal_(parameter, std=0.3)
        return module.to(dtype)


def critic_cases(part: Any) -> list[CriticCase] | list[Unsuited]:
    """Returns the tasks that the critic can be built for; rare ones if it can be built for no other."""
    found: list[CriticCase] | list[Unsuited] = []
    for specs in (SPECS, RARE_SPECS):
        layouts = [(spec, (TOKEN_LAYOUTS if spec is TOKENS else CONTROL_LAYOUTS)[0]) for spec in specs]
        cases = [CriticCase(f"{spec_name(spec)}: {layout.name}", spec, build(spec, layout)) for spec, layout in layouts]
        found = suited(cases, lambda case: case.model(part), REFUSES)
        if isinstance(found[0], CriticCase):
            break
    return found


def judgement(model: nn.Module, context: Context, action: Tensor) -> Tensor:
    """Returns the critic's values: of contexts, of contexts and actions, or a learned number."""
    takes = len(inspect.signature(model.forward).parameters)
    said = model(*(context, action)[:takes])
    if not isinstance(said, Tensor):
        raise AssayError(f"a critic must return a tensor; this one returned {type(said).__name__}")
    return said


@law("equal seeds give equal critics, and equal inputs equal values")
def same_critic(part: Any, case: CriticCase) -> Iterator[str]:
    """Built twice."""
    first, second = (judgement(case.model(part), case.batch.context, case.batch.action) for _ in range(2))
    if not torch.equal(first, second):
        yield f"the values are {shown(first)} and {shown(second)}"


@law("values are finite and have the axes [..., B, T]")
def values(part: Any, case: CriticCase) -> Iterator[str]:
    """One for each column, members of an ensemble in front."""
    said = judgement(case.model(part), case.batch.context, case.batch.action)
    if said.dim() and said.shape[-2:] != case.batch.mask.shape:
        yield f"the shape is {tuple(said.shape)} for a batch of {tuple(case.batch.mask.shape)}"
    if not is_finite(said):
        yield f"values are {shown(said[~torch.isfinite(said)])}"


@law("a row's value does not depend on other rows, on padding or on precision")
def rows_alone(part: Any, case: CriticCase) -> Iterator[str]:
    """One row alone, three more columns, float32."""
    model, batch = case.model(part), case.batch
    whole = judgement(model, batch.context, batch.action)
    if not whole.dim():
        return
    one, longer = batch.rows(slice(1, 2)), pad(batch, batch.num_columns + 3)
    if gap(judgement(model, one.context, one.action), whole[..., 1:2, :]) > TIGHT:
        yield "a row alone has another value"
    if gap(judgement(model, longer.context, longer.action)[..., : batch.num_columns], whole) > TIGHT:
        yield "padding changes values"
    single = with_dtype(batch, torch.float32)
    if gap(judgement(case.model(part, torch.float32), single.context, single.action), whole) > LOOSE:
        yield "float32 and float64 differ"


@law("values can be learned")
def learns(part: Any, case: CriticCase) -> Iterator[str]:
    """Some parameter gets gradient."""
    model = case.model(part)
    if not learnable(judgement(model, case.batch.context, case.batch.action).sum(), model):
        yield "no parameter gets gradient"


@law("actions in other units have the same values")
def rescaled(part: Any, case: CriticCase) -> Iterator[str]:
    """Bounds and actions times 2^-6 and 2^7, and shifted, with equal weights."""
    if not is_rescalable(case.spec):
        return
    batch = case.batch
    expected = judgement(case.model(part), batch.context, batch.action)
    for factor, shift in OTHER_UNITS:
        there = replace(case, spec=in_other_units(case.spec, factor, shift))
        found = judgement(there.model(part), batch.context, shift + factor * batch.action)
        if gap(found, expected) > TIGHT:
            yield f"with half-ranges times {factor:g} values are {shown(found)} instead of {shown(expected)}"


CRITIC = Contract("critic", (runs, same_critic, values, rows_alone, learns, rescaled), critic_cases)
check_critic = CRITIC.check
"""Checks the laws of a critic: a learned value, not its loss."""
