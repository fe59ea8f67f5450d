"""Laws of actors: acting and scoring use one distribution. Axes: N rows, B, T, A actions, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.claims.laws.cases import (
    OTHER_UNITS,
    in_other_units,
    is_rescalable,
    with_dtype,
)
from assay.claims.laws.laws import (
    LOOSE,
    TIGHT,
    Contract,
    Finding,
    gap,
    is_finite,
    law,
    runs,
    shown,
)
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need, pad
from assay.core.spaces import MASK, Discrete, MultiDiscrete, Spec, num_options
from assay.ops import random
from assay.claims.laws.actor_cases import (
    ActorCase,
    LOGP,
    actor_cases,
    away_from_bounds,
    every_action,
    learnable,
    played,
    scores,
    shares,
)


# ---------------------------------------------------------------------------------------------------- laws
@law("the log-probability of its own sample is finite")
def finite(part: Any, case: ActorCase) -> Iterator[str]:
    """At uniform numbers near 0 and 1 too."""
    record, actor = played(part, case)
    if not is_finite(record.logp):
        yield f"it is {shown(record.logp[~torch.isfinite(record.logp)])}"
    if case.is_text:
        return
    context = {name: value[:1, 0].expand(2, *value.shape[2:]) for name, value in record.context.items()}
    edges = torch.tensor([2.0**-25, 1.0 - 2.0**-24]).double().unsqueeze(1).expand(2, actor.num_draws)
    action, logp = actor.act(context, edges)
    if not is_finite(logp) or (action.is_floating_point() and not is_finite(action)):
        yield f"at the edges of the uniform numbers it is {shown(logp)} for actions {shown(action)}"


@law("probabilities sum, or densities integrate, to one")
def normalised(part: Any, case: ActorCase) -> Iterator[str]:
    """Sums over every token, every discrete action, or a grid of continuous ones, in half-ranges."""
    total = float(shares(part, case)[1].sum())
    if not abs(total - 1.0) <= 1e-3:
        yield f"the total is {total:.6g}"


@law("`score` gives the log-probability that acting recorded")
def agree(part: Any, case: ActorCase) -> Iterator[str]:
    """Acting, then scoring, with the same weights; actions at the bounds cannot be unsquashed and are left out."""
    record, actor = played(part, case)
    clear = record.mask & away_from_bounds(record, actor)
    found, noted = scores(actor, record)[clear], record.logp[clear]
    if gap(found, noted) > LOOSE:
        at = (found - noted).abs().argmax()
        yield f"acting recorded {shown(noted[at])}, score gives {shown(found[at])}"


@law("samples occur as often as their probability says")
def frequencies(part: Any, case: ActorCase) -> Iterator[str]:
    """An even grid of uniform numbers against sums of probability; for densities, the share below some values."""
    if case.is_text:
        return  # tokens are sampled from the decoder's logits by `ops.distributions`
    actor = case.actor(part)
    record, weight = shares(part, case)
    side = max(2, math.floor(4000 ** (1 / max(1, actor.num_draws))))
    middle = (torch.arange(side).double() + 0.5) / side
    uniform = torch.cartesian_prod(*[middle] * actor.num_draws).reshape(-1, actor.num_draws)
    context = {name: value[:1, 0].expand(len(uniform), *value.shape[2:]) for name, value in record.context.items()}
    with torch.no_grad():
        action, _ = actor.act(context, uniform)
    grid = record.action[:, 0].reshape(len(weight), -1).double()
    drawn = action.reshape(len(uniform), -1).double()
    for limit in drawn[:, 0].quantile(torch.tensor([0.1, 0.5, 0.9]).double()).tolist():
        # Both sides of the value: an actor that always takes the last action is right about "at most".
        for words, is_in in (("at most", torch.le), ("below", torch.lt)):
            expected = float(weight[is_in(grid[:, 0], limit)].sum())
            found = float(is_in(drawn[:, 0], limit).double().mean())
            if not abs(expected - found) <= 0.05:
                yield f"{found:.3f} of the samples are {words} {limit:.3g}, their probability is {expected:.3f}"


@law("equal inputs give equal outputs, and the mode is one action")
def repeats(part: Any, case: ActorCase) -> Iterator[str]:
    """Acting twice with the same uniform numbers, and without any."""
    first, second = played(part, case)[0], played(part, case)[0]
    if not torch.equal(first.action, second.action) or not torch.equal(first.logp, second.logp):
        yield "the same uniform numbers gave two different decisions"
    if not case.is_text:
        actor, context = case.actor(part), {name: value[:, 0] for name, value in case.batch.context.items()}
        if not torch.equal(actor.act(context, None)[0], actor.act(context, None)[0]):
            yield "the mode differs from call to call"


@law("a row's score does not depend on other rows, padding, or what stands where the mask is false")
def rows_alone(part: Any, case: ActorCase) -> Iterator[str]:
    """One row alone, rows reversed, three more columns; zero where masked."""
    actor = case.actor(part)
    batch = case.scorable(actor)
    found = scores(actor, batch)
    if found.shape != batch.mask.shape or bool((found[~batch.mask] != 0).any()):
        yield f"scores have shape {tuple(found.shape)}, or are not zero where the mask is false"
    if gap(scores(actor, batch.rows(slice(1, 2))), found[1:2]) > TIGHT:
        yield "a row alone has another score"
    if gap(scores(actor, batch.rows(torch.arange(len(batch)).flip(0))), found.flip(0)) > TIGHT:
        yield "rows in another order have other scores"
    if gap(scores(actor, pad(batch, batch.num_columns + 3))[:, : batch.num_columns], found) > TIGHT:
        yield "padding changes scores"


@law("an option that the action mask forbids is never taken and has probability 0")
def masked(part: Any, case: ActorCase) -> Iterator[str]:
    """Every second option of a choice is forbidden."""
    if not isinstance(case.spec.action, Discrete | MultiDiscrete):
        return
    actor = case.actor(part)
    record, _ = every_action(case, actor)
    allowed = torch.arange(num_options(case.spec.action)) % 2 == 1
    record = replace(record, context={**record.context, MASK: allowed.expand(len(record), 1, -1)})
    firsts = torch.tensor([0, *case.spec.action.sizes[:-1]] if isinstance(case.spec.action, MultiDiscrete) else [0])

    def permits(action: Tensor) -> Tensor:
        return allowed[action.reshape(len(record), -1) + firsts.cumsum(0)].all(1)

    forbidden = scores(actor, record).squeeze(1).exp()[~permits(record.action)]
    if bool((forbidden != 0).any()):
        yield f"a forbidden option has probability {float(forbidden.max()):.3g}"
    context = {name: value.flatten(0, 1) for name, value in record.context.items()}
    uniform = random.uniform_tensor(Draw(5), (len(record), actor.num_draws)).double()
    with torch.no_grad():
        (mode, _), (drawn, noted) = (actor.act(context, draws) for draws in (None, uniform))
    if not all(bool(permits(action).all()) for action in (mode, drawn)):
        yield "it takes a forbidden option"
        return
    if "agree" not in getattr(part, "breaks", {}):
        again = scores(actor, replace(record, action=drawn.unsqueeze(1))).squeeze(1)
        if gap(again, noted) > LOOSE:
            yield f"acting recorded {shown(noted)} with a mask, score gives {shown(again)}"
    yield from masked_entropy(actor, record, permits(record.action))


def masked_entropy(actor: Any, record: Experience, permitted: Tensor) -> Iterator[str]:
    """Yields what is wrong if an actor that has an entropy counts forbidden actions in it; rows are all actions."""
    logp = scores(actor, record).squeeze(1)
    found = actor.score(record, frozenset({Need.ENTROPY})).entropy
    if found is None or len(permitted.unique()) == 1:
        return
    expected = -(logp[permitted].exp() * logp[permitted]).sum()
    if gap(found.detach().squeeze(1), expected.expand(len(record))) > LOOSE:
        yield f"the entropy with a mask is {shown(found)}, that of the allowed options is {shown(expected)}"


@law("float32 and float64 agree")
def dtype(part: Any, case: ActorCase) -> Iterator[str]:
    """Scores in both precisions."""
    double = case.actor(part)
    batch = case.scorable(double)
    expected = scores(double, batch)
    # A given module changes its precision in place: the float64 scores are computed before.
    if gap(scores(case.actor(part, torch.float32), with_dtype(batch, torch.float32)), expected) > LOOSE:
        yield "scores differ"


@law("scores carry gradient into its parameters")
def learns(part: Any, case: ActorCase) -> Iterator[str]:
    """Some parameter gets gradient."""
    actor = case.actor(part)
    if not learnable(actor.score(case.scorable(actor), LOGP).logp.sum(), actor):
        yield "no parameter gets gradient"


def is_built(part: Any) -> bool:
    """Returns whether the part is a recipe of modules, which can be built for other spaces; not a module itself."""
    return not isinstance(part, nn.Module)


@law("actions in other units give the same decisions and the same log-probabilities", is_built)
def rescaled(part: Any, case: ActorCase) -> Iterator[str]:
    """Bounds and actions times 2^-6 and 2^7, and shifted, with equal weights: acting and scoring."""
    if not is_rescalable(case.spec):
        return
    record, actor = played(part, case)
    expected = scores(actor, record)
    for factor, shift in OTHER_UNITS:
        there = ActorCase(case.name, in_other_units(case.spec, factor, shift))
        other, same = played(part, there)
        units = f"with half-ranges times {factor:g}"
        if gap((other.action - shift) / factor, record.action) > TIGHT:
            yield f"{units} it takes {shown((other.action - shift) / factor)} instead of {shown(record.action)}"
        if gap(other.logp, record.logp) > TIGHT:
            yield f"{units} acting records {shown(other.logp)} instead of {shown(record.logp)}"
        found = scores(same, replace(record, action=shift + factor * record.action))
        if gap(found, expected) > LOOSE:  # an action near its bound is unsquashed with a loss of digits
            yield f"{units} score gives {shown(found)} instead of {shown(expected)}"


LAWS = (runs, finite, normalised, agree, frequencies, repeats, rows_alone, masked, dtype, learns, rescaled)
ACTOR = Contract("actor", LAWS, actor_cases)


def check_actor(part: Any, spec: Spec | None = None) -> list[Finding]:
    """Checks the laws of an actor: a model spec (on every kind of task, or on `spec`), or a module built for
    `spec`.
    """
    if isinstance(part, nn.Module) and spec is None:
        raise AssayError("check_actor: a module needs the spec that it was built for. Call check_actor(module, spec)")
    return ACTOR.check(part, actor_cases(part, spec))
