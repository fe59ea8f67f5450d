"""Laws of wrappers: the policy to deploy after training. Axes: N rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.laws.benches import smaller
from assay.claims.laws.cases import CHOICES, OTHER_UNITS, TOKENS, TORQUES, in_other_units, is_rescalable, normal
from assay.claims.laws.laws import LOOSE, Contract, Finding, Unsuited, gap, is_finite, law, runs, shown, suited
from assay.claims.laws.rollout import built
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, pad
from assay.core.slots import Correcting, ModelSpec
from assay.core.spaces import Box, Spec, Vocabulary
from assay.decoding.sampling_parameters import NarrowedDecoder, Narrowing
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bounded import Deterministic, SquashedGaussian
from assay.models.heads.value import ActionValue, Greedy
from assay.models.model import Critic, Policy
from assay.ops import random
from assay.rollouts.completions import complete

ROWS, NEW = 6, 5
ALLOWED = (2, 3, 4)
"""Tokens that the limited actor of tokens can write: the end, and two others."""


@dataclass(frozen=True)
class WrapperCase:
    """Spaces, with an actor for them, and with one that has a single decision in each state. A model that a wrapper
    reads is the recipe's own of that name, if there is a recipe, else a critic of actions.
    """

    name: str
    spec: Spec
    actor: ModelSpec
    single: ModelSpec | None = None
    others: Mapping[str, ModelSpec] = field(default_factory=dict)

    def models(self, part: Any) -> dict[str, Any]:
        """Returns the models by name."""
        critic = Critic(Perceptron((8,)), ActionValue())
        read = {name: built(self.others.get(name, critic), self.spec) for name in part.reads}
        return read | {part.actor: built(self.actor, self.spec)}

    def contexts(self, rows: slice = slice(None)) -> dict[str, Tensor]:
        """Returns N observations."""
        return {"observation": normal("wrapped", (ROWS, 3)).float()[rows]}

    def uniform(self, actor: Any, rows: slice = slice(None)) -> Tensor:
        """Returns the uniform numbers of an actor's decisions."""
        return random.uniform_tensor(Draw(6), (ROWS, actor.num_draws))[rows]

    def wrapped(self, part: Any) -> Any:
        """Returns the wrapped actor."""
        return part.around(self.models(part))

    def decide(self, part: Any, rows: slice = slice(None), *, mode: bool = False) -> tuple[Tensor, Tensor]:
        """Returns (action, logp) of some rows."""
        actor = self.wrapped(part)
        with torch.no_grad():
            decided: tuple[Tensor, Tensor] = actor.act(self.contexts(rows), None if mode else self.uniform(actor, rows))
        return decided

    def impossible(self, part: Any) -> Iterator[str]:
        """Yields decisions that the actor with a single decision in each state does not take."""
        if self.single is None:
            return
        here = replace(self, actor=self.single, single=None)
        with torch.no_grad():
            only = built(self.single, self.spec).act(self.contexts(), None)[0]  # type: ignore[operator]
        for mode in (False, True):
            try:
                found = here.decide(part, mode=mode)[0]
            except AssayError:  # it does not wrap such an actor
                return
            if gap(found, only) > LOOSE:
                yield f"its actor has one decision in each state, {shown(only)}, and it decides {shown(found)}"


@dataclass(frozen=True)
class TokenCase:
    """Prompts, with an actor that completes them; a decision is a whole completion. Every other model that a wrapper
    reads is a critic of tokens.
    """

    name: str = "tokens"
    spec: Spec = TOKENS

    def decide(
        self, part: Any, rows: slice = slice(None), *, mode: bool = False, limited: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Returns (tokens with their prompt, log-probability of the completion) of some rows; a limited actor can
        write `ALLOWED` alone.
        """
        body = Transformer(8, 1, 2)
        critic, actor = built(Critic(body), self.spec), built(Policy(body), self.spec)
        models = dict.fromkeys(part.reads, critic) | {part.actor: Limited(actor) if limited else actor}
        actor, starts = part.around(models), np.arange(ROWS)[rows]
        assert isinstance(self.spec.action, Vocabulary)
        prompts = [[self.spec.action.bos, 3 + start % 4] for start in starts.tolist()]
        done = complete(
            actor, prompts, starts, starts, Draw(6), max_tokens=NEW, vocabulary=self.spec.action, greedy=mode
        )
        return pad(done, 2 + NEW).action, done.logp.sum(1)

    def impossible(self, part: Any) -> Iterator[str]:
        """Yields tokens that the actor cannot write."""
        for mode in (False, True):
            tokens = self.decide(part, mode=mode, limited=True)[0][:, 2:]
            written = tokens[tokens != self.spec.action.pad].unique().tolist()  # type: ignore[union-attr]
            if not set(written) <= set(ALLOWED):
                yield f"its actor can write the tokens {list(ALLOWED)} alone, and it writes {written}"


class Limited:
    """A token actor that can write `ALLOWED` alone."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> NarrowedDecoder:
        """Returns a decoder without the other tokens."""
        return LimitedDecoder(self.actor.decoder(prompts, repeats, num_new), Narrowing())

    def __getattr__(self, name: str) -> Any:
        """Returns everything else from the actor."""
        return getattr(self.actor, name)


class LimitedDecoder(NarrowedDecoder):
    """A decoder in which the logits of all tokens but `ALLOWED` are minus infinity."""

    def logits(self) -> Tensor:
        """Returns the changed logits, [N, V]."""
        self.raw = self.decoder.logits().float()
        changed = torch.full_like(self.raw, -torch.inf)
        changed[:, list(ALLOWED)] = self.raw[:, list(ALLOWED)]
        return changed


def wrapper_cases(part: Any, recipe: Recipe | None = None) -> list[WrapperCase | TokenCase]:
    """Returns continuous and discrete actions; tokens for wrappers that refuse both. With a recipe whose wrapper it
    is, models are the recipe's, made small.
    """
    body, others = Perceptron((8,)), {} if recipe is None else models_of(recipe)
    squashed, single = Policy(body, SquashedGaussian()), Policy(body, Deterministic())
    control = [
        WrapperCase("torques", TORQUES, squashed, single, others),
        WrapperCase("choices", CHOICES, Policy(body), Policy(body, Greedy()), others),
    ]
    found = suited(control, lambda case: case.wrapped(part), "it refuses control")
    return [TokenCase()] if isinstance(found[0], Unsuited) else [*found]


def models_of(recipe: Recipe) -> dict[str, ModelSpec]:
    """Returns the recipe's models but for its actor, copies too, made small."""
    own = {name: smaller(spec) for name, spec in recipe.critics.items()}
    return own | {name: own[copy.of] for name, copy in recipe.copies.items() if copy.of in own}


@law("it reads the models that it says, its actor among them")
def declared(part: Any, case: WrapperCase | TokenCase) -> Iterator[str]:
    """`reads` names the actor; nothing else is there when the laws run."""
    if part.actor not in part.reads:
        yield f"reads is {part.reads}, without the actor '{part.actor}'"


@law("rows are independent and equal inputs give equal decisions")
def rows_alone(part: Any, case: WrapperCase | TokenCase) -> Iterator[str]:
    """A row alone decides as among the others, with and without uniform numbers."""
    for mode in (False, True):
        whole, again = case.decide(part, mode=mode), case.decide(part, mode=mode)
        if not torch.equal(whole[0], again[0]):
            yield "the same inputs gave two different decisions"
        alone = [case.decide(part, slice(k, k + 1), mode=mode)[0] for k in range(ROWS)]
        if gap(torch.cat(alone), whole[0]) > LOOSE:
            yield "a row alone decides otherwise"


@law("decisions are finite and inside the task's space")
def inside(part: Any, case: WrapperCase | TokenCase) -> Iterator[str]:
    """Of the actor's own kind."""
    action, logp = case.decide(part)
    space = case.spec.action
    if not is_finite(logp) or len(logp) != ROWS:
        yield "log-probabilities are not finite, or not one per row"
    low = torch.tensor(space.low) if isinstance(space, Box) else torch.zeros(())
    many = space.size if isinstance(space, Vocabulary) else getattr(space, "n", 1)
    high = torch.tensor(space.high) if isinstance(space, Box) else torch.tensor(float(many) - 1.0)
    if bool((action < low).any()) or bool((action > high).any()):
        yield "an action is outside"


@law("each decision is one that the inner actor can take", lambda part: not corrects(part))
def of_actor(part: Any, case: WrapperCase | TokenCase) -> Iterator[str]:
    """Around an actor with one decision in each state, or with few tokens, nothing else is decided."""
    yield from case.impossible(part)


@law("acting changes no model")
def unchanged(part: Any, case: WrapperCase | TokenCase) -> Iterator[str]:
    """Neither weights nor buffers."""
    if isinstance(case, WrapperCase):
        models = case.models(part)
        before = {name: deepcopy(model.state_dict()) for name, model in models.items()}
        actor = part.around(models)
        actor.act(case.contexts(), case.uniform(actor))
        for name, model in models.items():
            if any(not torch.equal(value, before[name][key]) for key, value in model.state_dict().items()):
                yield f"it changed the model '{name}'"
            if any(own.grad is not None for own in model.parameters()):
                yield f"it left a gradient in the model '{name}'"


def corrects(part: Any) -> bool:
    """Returns whether the wrapper is of the kind that corrects."""
    return Correcting in type(part).__mro__


@law("at strength 0 it is the actor to the bit, and not at its own strength", corrects)
def uncorrected(part: Any, case: WrapperCase) -> Iterator[str]:
    """With and without random numbers; among models, and among others that say the opposite."""
    models, moved = case.models(part), 0
    none, actor, own = replace(part, strength=0.0).around(models), models[part.actor], part.around(models)
    for sign in (1.0, -1.0):
        with torch.no_grad():
            for model in (model for name, model in models.items() if name != part.actor):
                for parameter in list(model.parameters())[-2:]:
                    parameter.mul_(sign)
            for uniform in (case.uniform(actor), None):
                plain = actor.act(case.contexts(), uniform)[0]
                if not torch.equal(none.act(case.contexts(), uniform)[0], plain):
                    yield f"at strength 0 it decides otherwise than the actor, which takes {shown(plain)}"
                moved += int((own.act(case.contexts(), uniform)[0] != plain).sum())
    if part.strength and not moved:
        yield f"at strength {part.strength:g} it corrects none of {4 * ROWS} decisions"


@law("its decisions carry no gradient, inside and outside of training alike", corrects)
def detached(part: Any, case: WrapperCase) -> Iterator[str]:
    """With autograd on and off it decides the same."""
    actor = case.wrapped(part)
    action = actor.act(case.contexts(), case.uniform(actor))[0]
    if action.requires_grad:
        yield "a decision carries a gradient"
    if not torch.equal(action.detach(), case.decide(part)[0]):
        yield "without autograd it decides otherwise"


@law("in other units of actions it decides the same", corrects)
def rescaled(part: Any, case: WrapperCase) -> Iterator[str]:
    """Bounds times 2^-6 and 2^7, and shifted, around models of equal weights."""
    if not is_rescalable(case.spec):
        return
    action = case.decide(part)[0]
    for factor, shift in OTHER_UNITS:
        other = replace(case, spec=in_other_units(case.spec, factor, shift)).decide(part)[0]
        if gap((other - shift) / factor, action) > LOOSE:
            yield f"with half-ranges times {factor:g} it takes {shown((other - shift) / factor)}, not {shown(action)}"


LAWS = (runs, declared, rows_alone, inside, of_actor, unchanged, uncorrected, detached, rescaled)
WRAPPER = Contract("wrapper", LAWS, wrapper_cases)


def check_wrapper(part: Any, recipe: Recipe | None = None) -> list[Finding]:
    """Checks the laws of a wrapper, with the models of a recipe that it is in, if given."""
    return WRAPPER.check(part, wrapper_cases(part, recipe))
