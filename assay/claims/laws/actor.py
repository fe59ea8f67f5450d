"""Laws of actors: acting and scoring use one distribution. Axes: N rows, B, T, A actions, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.claims.laws.cases import (
    CONTROL_LAYOUTS,
    OTHER_UNITS,
    RARE_SPECS,
    SPECS,
    TOKEN_LAYOUTS,
    build,
    in_other_units,
    is_rescalable,
    normal,
    with_dtype,
    with_path,
)
from assay.claims.laws.laws import (
    LOOSE,
    TIGHT,
    Contract,
    Finding,
    Memo,
    Unsuited,
    gap,
    is_finite,
    law,
    runs,
    shown,
    suited,
)
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need, pad
from assay.core.spaces import MASK, Box, Discrete, MultiDiscrete, Spec, Vocabulary, num_options
from assay.models.action_units import units_of
from assay.models.heads.gaussian import GaussianPolicy
from assay.ops import random
from assay.rollouts.completions import complete

LOGP = frozenset({Need.LOGP})
REFUSES = "it refuses tokens, continuous and discrete actions, and numbered states"
GRID = 160
"""Points along each action dimension when a density is integrated."""
SPREAD = 12.0
"""How far from zero an unbounded density is integrated."""


@dataclass(frozen=True)
class ActorCase:
    """The spaces of a task."""

    name: str
    spec: Spec
    memo: Memo[tuple[Experience, Tensor]] = field(default_factory=Memo, init=False, compare=False, repr=False)

    def actor(self, part: Any, dtype: torch.dtype = torch.float64) -> Any:
        """Returns the module with perturbed parameters; a part that is a module already is returned as it is."""
        if isinstance(part, nn.Module):
            return part.to(dtype)
        with random.seeded(11):
            module: nn.Module = part.build(self.spec)
        module = module.double()
        with torch.no_grad():
            for place, parameter in enumerate(module.parameters()):
                fan_in = parameter.shape[-1] if parameter.dim() else 1
                parameter.add_(normal(f"actor {place}", parameter.shape), alpha=0.2 * max(1, fan_in) ** -0.5)
        return module.to(dtype)

    @property
    def batch(self) -> Experience:
        """Returns experience to score."""
        return build(self.spec, (TOKEN_LAYOUTS if self.is_text else CONTROL_LAYOUTS)[0])

    def scorable(self, actor: Any) -> Experience:
        """Returns the experience with the columns that this actor needs to score it."""
        return with_path(self.batch, actor)

    @property
    def is_text(self) -> bool:
        """Returns whether decisions are tokens."""
        return isinstance(self.spec.action, Vocabulary)


def named(spec: Spec) -> str:
    """Returns the spaces of a task in words."""
    return f"{type(spec.observation).__name__} to {type(spec.action).__name__}{' with a goal' if spec.goal else ''}"


def actor_cases(part: Any, spec: Spec | None = None) -> list[ActorCase] | list[Unsuited]:
    """Returns the given spaces, or every kind of spaces that the actor can be built for; rare ones if no other fits."""
    kinds = (SPECS, RARE_SPECS) if spec is None else ((spec,),)
    found: list[ActorCase] | list[Unsuited] = []
    for specs in kinds:
        found = suited([ActorCase(named(one), one) for one in specs], lambda case: case.actor(part), REFUSES)
        if isinstance(found[0], ActorCase):
            break
    return found


def played(part: Any, case: ActorCase) -> tuple[Experience, Any]:
    """Returns decisions of the actor, recorded as it acts, and the actor."""
    actor, batch = case.actor(part), case.batch
    if case.is_text:
        prompts = [[1, 3], [1, 4, 5], [1, 3], [1] if continues(actor, [1]) else [1, 5]]
        assert isinstance(case.spec.action, Vocabulary)
        starts, samples = np.array([0, 1, 0, 2]), np.array([0, 0, 1, 0])
        return complete(
            actor, prompts, starts, samples, Draw(2), max_tokens=6, vocabulary=case.spec.action, greedy=False
        ), actor
    num = batch.mask.numel()
    context = {name: value.flatten(0, 1) for name, value in batch.context.items()}
    uniform = random.uniform_tensor(Draw(4), (num, actor.num_draws)).double()
    with torch.no_grad():
        action, logp = actor.act(context, uniform)
    shape = batch.mask.shape
    everywhere = torch.ones_like(batch.mask)
    batch = case.scorable(actor)  # a path actor walks here with the same uniform numbers
    return replace(batch, action=action.view(*shape, *action.shape[1:]), logp=logp.view(shape), mask=everywhere), actor


def continues(actor: Any, prompt: list[int]) -> bool:
    """Returns whether the actor accepts a prompt; one that needs a token after bos refuses a prompt without."""
    try:
        actor.decoder([prompt], [1], 1)
    except AssayError:
        return False
    return True


def scores(actor: Any, batch: Experience) -> Tensor:
    """Returns log-probabilities of recorded decisions."""
    with torch.no_grad():
        logp: Tensor = actor.score(batch, LOGP).logp
    return logp


def every_action(case: ActorCase, actor: Any) -> tuple[Experience, Tensor]:
    """Returns one context with each action of a grid in a row of its own, and the volume that each stands for, in
    half-ranges.
    """
    batch, space = case.batch, case.spec.action
    if isinstance(space, Vocabulary):
        tokens = torch.tensor([[space.bos, 3, 4, last] for last in range(space.size)])
        mask = torch.tensor([[False, False, False, True]]).expand_as(tokens)
        record = batch.columns(0, 4).rows(torch.zeros(space.size, dtype=torch.long))
        return replace(
            record, context={"tokens": tokens, "valid": torch.ones_like(mask)}, action=tokens, mask=mask
        ), torch.ones(space.size)
    if isinstance(space, Discrete):
        grid, volume = torch.arange(space.n), torch.ones(space.n)
    elif isinstance(space, MultiDiscrete):
        grid = torch.cartesian_prod(*[torch.arange(size) for size in space.sizes])
        volume = torch.ones(len(grid))
    else:
        assert isinstance(space, Box)
        axes = [points(low, high, is_squashed(actor)) for low, high in zip(space.low, space.high, strict=True)]
        grid = torch.cartesian_prod(*[places for places, _ in axes]).reshape(-1, space.size)
        volume = torch.cartesian_prod(*[widths for _, widths in axes]).reshape(-1, space.size).prod(-1)
        volume = volume / math.prod(units_of(low, high)[1] for low, high in zip(space.low, space.high, strict=True))
    record = batch.columns(0, 1).rows(torch.zeros(len(grid), dtype=torch.long))
    return replace(record, action=grid.unsqueeze(1), mask=torch.ones(len(grid), 1, dtype=torch.bool)), volume


def shares(part: Any, case: ActorCase) -> tuple[Experience, Tensor]:
    """Returns each action of a grid in a row of its own, and its probability, computed once for all laws."""

    def compute() -> tuple[Experience, Tensor]:
        actor = case.actor(part)
        record, volume = every_action(case, actor)
        return record, scores(actor, record)[record.mask].exp() * volume

    return case.memo(part, compute)


def points(low: float, high: float, bounded: bool) -> tuple[Tensor, Tensor]:
    """Returns places along one action dimension and the width that each stands for; denser towards bounds."""
    reach = 7.0 if bounded else SPREAD
    line = (torch.arange(GRID).double() + 0.5) / GRID * 2.0 * reach - reach
    if not bounded:
        return line, torch.full_like(line, 2.0 * reach / GRID)
    half = (high - low) / 2
    return low + half * (1.0 + line.tanh()), half * (1.0 - line.tanh().square()) * 2.0 * reach / GRID


def is_squashed(actor: Any) -> bool:
    """Returns whether the actor keeps its actions inside the bounds; samples of a Gaussian may lie outside."""
    return isinstance(getattr(actor, "half_range", None), Tensor) and not isinstance(actor, GaussianPolicy)


def away_from_bounds(record: Experience, actor: Any) -> Tensor:
    """Returns bool [B, T]: false where a squashed action is so near its bound that rounding loses its preimage."""
    if not is_squashed(actor):
        return torch.ones_like(record.mask)
    share: Tensor = ((record.action - actor.centre) / actor.half_range).abs()
    return (share < 1.0 - 1e-4).all(-1)


def learnable(total: Tensor, model: nn.Module) -> bool:
    """Returns whether a number carries gradient into some parameter of a model."""
    if not total.requires_grad:
        return False
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(total, trained, allow_unused=True)
    return any(gradient is not None and bool(gradient.any()) for gradient in found)


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
        taken = [actor.act(context, draws)[0] for draws in (None, uniform)]
    if not all(bool(permits(action).all()) for action in taken):
        yield "it takes a forbidden option"


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
