"""Laws of wrappers: the policy to deploy after training. Axes: N rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.claims.laws.cases import CHOICES, TOKENS, TORQUES, normal
from assay.claims.laws.laws import LOOSE, Contract, Unsuited, gap, is_finite, law, runs, suited
from assay.claims.laws.rollout import built
from assay.core.record import Draw, pad
from assay.core.slots import ModelSpec
from assay.core.spaces import Box, Spec, Vocabulary
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bounded import SquashedGaussian
from assay.models.heads.value import ActionValue
from assay.models.model import Critic, Policy
from assay.ops import random
from assay.rollouts.completions import complete

ROWS, NEW = 6, 5


@dataclass(frozen=True)
class WrapperCase:
    """Spaces, with an actor for them; every other model that a wrapper reads is a critic of actions."""

    name: str
    spec: Spec
    actor: ModelSpec

    def wrapped(self, part: Any) -> Any:
        """Returns the wrapped actor."""
        critic = built(Critic(Perceptron((8,)), ActionValue()), self.spec)
        models = dict.fromkeys(part.reads, critic) | {part.actor: built(self.actor, self.spec)}
        return part.around(models)

    def decide(self, part: Any, rows: slice = slice(None), *, mode: bool = False) -> tuple[Tensor, Tensor]:
        """Returns (action, logp) of some rows."""
        actor = self.wrapped(part)
        context = {"observation": normal("wrapped", (ROWS, 3)).float()[rows]}
        uniform = random.uniform_tensor(Draw(6), (ROWS, actor.num_draws))[rows]
        with torch.no_grad():
            action, logp = actor.act(context, None if mode else uniform)
        return action, logp


@dataclass(frozen=True)
class TokenCase:
    """Prompts, with an actor that completes them; a decision is a whole completion. Every other model that a wrapper
    reads is a critic of tokens.
    """

    name: str = "tokens"
    spec: Spec = TOKENS

    def decide(self, part: Any, rows: slice = slice(None), *, mode: bool = False) -> tuple[Tensor, Tensor]:
        """Returns (tokens with their prompt, log-probability of the completion) of some rows."""
        body = Transformer(8, 1, 2)
        critic, actor = built(Critic(body), self.spec), built(Policy(body), self.spec)
        models = dict.fromkeys(part.reads, critic) | {part.actor: actor}
        actor, starts = part.around(models), np.arange(ROWS)[rows]
        assert isinstance(self.spec.action, Vocabulary)
        prompts = [[self.spec.action.bos, 3 + start % 4] for start in starts.tolist()]
        done = complete(
            actor, prompts, starts, starts, Draw(6), max_tokens=NEW, vocabulary=self.spec.action, greedy=mode
        )
        return pad(done, 2 + NEW).action, done.logp.sum(1)


def wrapper_cases(part: Any) -> list[WrapperCase | TokenCase]:
    """Returns continuous and discrete actions; tokens for wrappers that refuse both."""
    body = Perceptron((8,))
    torques = WrapperCase("torques", TORQUES, Policy(body, SquashedGaussian()))
    control = [torques, WrapperCase("choices", CHOICES, Policy(body))]
    found = suited(control, lambda case: case.wrapped(part), "it refuses control")
    return [TokenCase()] if isinstance(found[0], Unsuited) else [*found]


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


WRAPPER = Contract("wrapper", (runs, declared, rows_alone, inside), wrapper_cases)
check_wrapper = WRAPPER.check
"""Checks the laws of a wrapper."""
