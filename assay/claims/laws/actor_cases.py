"""What the laws of actors are tried on: spaces, small experience, every action and its share. Axes: N rows, B, T, A."""

from __future__ import annotations
import math
from dataclasses import dataclass, field, replace
from typing import Any
import numpy as np
import torch
from torch import Tensor, nn
from assay.claims.laws.cases import (
    CONTROL_LAYOUTS,
    RARE_SPECS,
    SPECS,
    TOKEN_LAYOUTS,
    build,
    normal,
    with_path,
)
from assay.claims.laws.laws import (
    Memo,
    Unsuited,
    suited,
)
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Need
from assay.core.spaces import Box, Discrete, MultiDiscrete, Spec, Vocabulary
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


def spec_name(spec: Spec) -> str:
    """Returns the spaces of a task in words."""
    return f"{type(spec.observation).__name__} to {type(spec.action).__name__}{' with a goal' if spec.goal else ''}"


def actor_cases(part: Any, spec: Spec | None = None) -> list[ActorCase] | list[Unsuited]:
    """Returns the given spaces, or every kind of spaces that the actor can be built for; rare ones if no other fits."""
    kinds = (SPECS, RARE_SPECS) if spec is None else ((spec,),)
    found: list[ActorCase] | list[Unsuited] = []
    for specs in kinds:
        found = suited([ActorCase(spec_name(one), one) for one in specs], lambda case: case.actor(part), REFUSES)
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
