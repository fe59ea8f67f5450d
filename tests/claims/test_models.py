"""Each law of actors, critics and exploration catches a model that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.claims.laws.actor import ACTOR, check_actor
from assay.claims.laws.cases import CHOICES, TOKENS, TORQUES
from assay.claims.laws.critic import CRITIC, check_critic
from assay.claims.laws.explore import EXPLORE
from assay.core import slots
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored, State
from assay.core.slots import Ask, Body, Scene
from assay.core.spaces import MASK, Box, Context, Discrete, Spec
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.heads.categorical import CategoricalPolicy
from assay.models.model import Policy
from assay.ops.distributions import categorical_logp, normal_logp, normal_sample
from tests.claims.breaking import assert_caught, finding, not_covered


# ------------------------------------------------------------------------------------------------------------- actors
class Broken(CategoricalPolicy):
    """A categorical policy with one mistake."""

    def __init__(self, mistake: str) -> None:
        super().__init__(Perceptron((8,)).outputs(CHOICES, Ask((3,))))
        self.mistake = mistake

    def logits(self, context: Context) -> Tensor:
        return super().logits(unmasked(context) if self.mistake == "masked" else context)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        action, logp = super().act(context, uniform)
        if self.mistake == "finite":
            return action, logp - torch.inf * (uniform is not None)
        if self.mistake == "agree":
            return action, logp + 0.5
        if self.mistake == "frequencies" and uniform is not None:
            return torch.zeros_like(action), logp
        if self.mistake == "repeats":
            return (action + torch.randint(0, 3, action.shape)) % 3, logp
        if self.mistake == "record":
            return action, categorical_logp(super().logits(unmasked(context)), action)
        return action, logp

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        logp = super().score(batch, needs).logp
        if self.mistake == "normalised":
            logp = logp * 0.5
        if self.mistake == "rows_alone":
            logp = logp - logp.mean(0, keepdim=True)
        if self.mistake == "dtype":
            logp = logp + (1.0 if logp.dtype == torch.float32 else 0.0)
        if self.mistake == "entropy":
            batch = replace(batch, context=unmasked(batch.context))
        return Scored(logp.detach() if self.mistake == "learns" else logp, super().score(batch, needs).entropy)


def unmasked(context: Context) -> Context:
    return {name: value for name, value in context.items() if name != MASK}


@dataclass(frozen=True)
class Actor:
    mistake: str

    def build(self, spec: Spec) -> nn.Module:
        suits = isinstance(spec.action, Discrete) and not isinstance(spec.observation, Discrete) and spec.goal is None
        if not suits or self.mistake == "runs":
            raise AssayError("this actor makes choices from observations")
        return Broken(self.mistake)


class OwnUnits(nn.Module):
    """A Gaussian with unit deviation in the task's units, not in half-ranges."""

    num_draws = 2

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        mean = self.layer(context["observation"])
        noise = torch.zeros_like(mean) if uniform is None else normal_sample(uniform)
        return mean + noise, normal_logp(mean + noise, mean, torch.zeros_like(mean))

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        mean = self.layer(batch.context["observation"])
        return Scored(normal_logp(batch.action, mean, torch.zeros_like(mean)) * batch.mask)


@dataclass(frozen=True)
class OwnUnitsActor:
    def build(self, spec: Spec) -> nn.Module:
        if not isinstance(spec.action, Box) or spec.goal is not None:
            raise AssayError("this actor moves without a goal")
        return OwnUnits()


def test_law_catches_an_actor_in_the_tasks_units() -> None:
    assert_caught(ACTOR, "rescaled", OwnUnitsActor())


LAWS = ("finite", "normalised", "agree", "frequencies", "repeats", "rows_alone", "masked", "dtype", "learns")


@pytest.mark.parametrize("law", [*LAWS, "runs"])
def test_law_catches_a_broken_actor(law: str) -> None:
    assert_caught(ACTOR, law, Actor(law))


@pytest.mark.parametrize(
    ("mistake", "says"), [("entropy", "the entropy with a mask is"), ("record", "acting recorded")]
)
def test_law_of_masks_sees_entropies_and_what_acting_records(mistake: str, says: str) -> None:
    """The actor is sound wherever nothing is forbidden."""
    assert finding(ACTOR, "agree", Actor(mistake)).held
    assert says in finding(ACTOR, "masked", Actor(mistake)).detail


def test_every_law_of_actors_is_shown_to_fail() -> None:
    assert not_covered(ACTOR, [*LAWS, "runs", "rescaled"]) == set()


def test_a_sound_actor_obeys_every_law() -> None:
    assert [one for one in ACTOR.check(Actor("none")) if not one.held] == []


@pytest.mark.parametrize(
    ("body", "spec"), [(Perceptron((8,)), CHOICES), (Perceptron((8,)), TORQUES), (Transformer(8, 1, 2), TOKENS)]
)
def test_a_module_can_be_checked_as_it_is(body: Body, spec: Spec) -> None:
    torch.manual_seed(3)
    assert [one for one in check_actor(Policy(body).build(spec), spec) if not one.held] == []


def test_a_module_without_its_spec_is_refused() -> None:
    with pytest.raises(AssayError, match="spec"):
        check_actor(Policy().build(CHOICES))


def test_an_actor_that_the_spec_does_not_suit_is_reported() -> None:
    (found,) = check_actor(Policy(Table()), TORQUES)
    assert (found.law, found.held) == ("runs", False)


# ------------------------------------------------------------------------------------------------------------ critics
class BrokenValue(nn.Module):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.layer, self.mistake = nn.Linear(3, 1), mistake

    def forward(self, context: Context) -> Tensor:
        value = self.layer(context["observation"]).squeeze(-1)
        changes: dict[str, Callable[[Tensor], Tensor]] = {
            "same_critic": lambda value: value + torch.rand(()),
            "values": lambda value: value.sum(1),
            "rows_alone": lambda value: value - value.mean(),
            "learns": torch.Tensor.detach,
        }
        return changes.get(self.mistake, torch.Tensor.clone)(value)


@dataclass(frozen=True)
class Critic:
    mistake: str

    def build(self, spec: Spec) -> nn.Module:
        if not isinstance(spec.action, Box) or spec.goal is not None or self.mistake == "runs":
            raise AssayError("this critic reads observations")
        return BrokenValue(self.mistake)


CRITICS = ("runs", "same_critic", "values", "rows_alone", "learns")


class RawInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, context: Context, action: Tensor) -> Tensor:
        return self.layer(torch.cat((context["observation"], action), -1)).squeeze(-1)


@dataclass(frozen=True)
class RawCritic:
    def build(self, spec: Spec) -> nn.Module:
        if not isinstance(spec.action, Box) or spec.goal is not None:
            raise AssayError("this critic reads observations and actions")
        return RawInput()


def test_law_catches_a_critic_of_actions_in_the_tasks_units() -> None:
    assert_caught(CRITIC, "rescaled", RawCritic())


@pytest.mark.parametrize("law", CRITICS)
def test_law_catches_a_broken_critic(law: str) -> None:
    assert_caught(CRITIC, law, Critic(law))


def test_every_law_of_critics_is_shown_to_fail() -> None:
    assert not_covered(CRITIC, [*CRITICS, "rescaled"]) == set()
    assert [one for one in check_critic(Critic("none")) if not one.held] == []


# -------------------------------------------------------------------------------------------------------- exploration
class Exploring:
    num_draws = 2

    def __init__(self, actor: Any, mistake: str) -> None:
        self.actor, self.mistake = actor, mistake

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        greedy, logp = self.actor.act(context, None)
        if uniform is None or self.mistake == "explores":
            return greedy, logp
        if self.mistake == "rows_alone":
            uniform = uniform.mean(0, keepdim=True).expand_as(uniform)
        action = torch.where(uniform[:, 0] < 0.3, (uniform[:, 1] * 3).long().clamp(max=2), greedy)
        prob = 0.3 / 3 + 0.7 * (action == greedy)
        return action, logp if self.mistake == "mixture" else prob.log()


@dataclass(frozen=True)
class Explore(slots.Explore):
    mistake: str

    def wrap(self, actor: Any, scene: Scene, state: State) -> Exploring:
        if self.mistake == "runs":
            raise AssayError("nothing to explore")
        _ = actor.num_actions
        return Exploring(actor, self.mistake)


class FixedNoise(slots.Explore):
    """Adds noise in the task's units to a deterministic actor."""

    def wrap(self, actor: Any, scene: Scene, state: State) -> Any:
        _ = actor.half_range
        return NoisyActor(actor)


class NoisyActor:
    num_draws = 2

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        action, logp = self.actor.act(context, None)
        return (action, logp) if uniform is None else (action + uniform, logp + uniform.sum(-1))


def test_law_catches_noise_in_the_tasks_units() -> None:
    assert_caught(EXPLORE, "rescaled", FixedNoise())


EXPLORES = ("runs", "explores", "rows_alone", "mixture")


@pytest.mark.parametrize("law", EXPLORES)
def test_law_catches_broken_exploration(law: str) -> None:
    assert_caught(EXPLORE, law, Explore(law))


def test_every_law_of_exploration_is_shown_to_fail() -> None:
    handed = "handed_models"  # broken in tests/engine/test_handed.py
    assert not_covered(EXPLORE, [*EXPLORES, "rescaled", handed]) == set()
    assert [one for one in EXPLORE.check(Explore("none")) if not one.held] == []
