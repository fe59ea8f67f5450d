"""Models that parts read before the update: rollouts, exploration, sources and curricula, as rewards do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims.laws import check_explore, check_source
from assay.claims.laws.curriculum import check_curriculum
from assay.claims.laws.laws import Finding
from assay.claims.laws.rollout import check_rollout
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Curriculum, Explore, Scene, Source
from assay.core.spaces import Context
from assay.engine.loop import Loop
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.presets import CONTINUOUS, CONTROL
from assay.runs.distributed.rollout_worker import models_of
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum


class Best:
    """The best of some random actions by a critic."""

    num_draws = 8

    def __init__(self, actor: Any, critic: Any) -> None:
        self.actor, self.critic = actor, critic

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        mode, logp = self.actor.act(context, None)
        if uniform is None:
            return mode, logp
        low, size = self.actor.centre - self.actor.half_range, mode.shape[-1]
        tried = low + 2.0 * self.actor.half_range * uniform.view(len(uniform), -1, size)
        value = torch.stack([self.critic(context, action).amin(0) for action in tried.unbind(1)], 1)
        return tried[torch.arange(len(tried)), value.argmax(1)], value.amax(1)


@dataclass(frozen=True)
class ByCritic(Explore):
    """Explores by a critic."""

    q: str = model_name("q")
    writes_too: bool = False
    breaks: ClassVar[dict[str, str]] = {"mixture": "the density of the best of several is unknown"}

    def wrap(self, actor: Any, scene: Scene, state: State) -> Any:
        if not hasattr(actor, "centre"):
            raise AssayError("ByCritic needs bounded actions. Use another one")
        critic = scene.models.model(self.q)
        if self.writes_too:
            next(critic.parameters()).data[..., 0] += 1.0
        return Best(actor, critic)


@dataclass(frozen=True)
class Doubtful(Source):
    """Yields the half of the rows whose first value is lowest."""

    critic: str = model_name("value")
    writes_too: bool = False
    hidden: str = ""

    def __call__(self, scene: Scene, state: State) -> Iterator[Experience]:
        assert scene.fresh is not None
        critic = scene.models.model(self.hidden or self.critic)
        if self.writes_too:
            next(critic.parameters()).data[..., 0] += 1.0  # past autograd's count of changes
        value = critic(scene.fresh.context)[:, 0]
        assert not value.requires_grad
        yield scene.fresh.rows(value.argsort()[: (len(value) + 1) // 2])


@dataclass(frozen=True)
class Valued(Curriculum):
    """Starts anew from the number of the critic's parameters."""

    critic: str = model_name("value")
    writes_too: bool = False

    def __call__(self, scene: Scene, state: State) -> np.ndarray:
        critic = scene.models.model(self.critic)
        if self.writes_too:
            next(critic.parameters()).data[..., 0] += 1.0
        size = sum(own.numel() for own in critic.parameters())
        return size + np.arange(scene.num_starts, dtype=np.int64)


@dataclass(frozen=True)
class Watched(Episodes):
    """Episodes that look at a critic before they begin."""

    critic: str = model_name("value")
    writes_too: bool = False

    def __call__(self, scene: Scene, state: State) -> Experience:
        critic = scene.models.model(self.critic)
        if self.writes_too:
            next(critic.parameters()).data[..., 0] += 1.0
        return super().__call__(scene, state)


def broken(findings: list[Finding]) -> set[str]:
    """The laws that broke."""
    return {finding.law for finding in findings if not finding.held}


def valued(source: Source, curriculum: Curriculum | None = None) -> Recipe:
    """REINFORCE with a critic of states that is not trained."""
    base = recipes.reinforce(CONTROL)
    rollout, critics = Episodes(4, 1), {"value": CONTROL.value}
    return replace(base, rollout=rollout, critics=critics, source=source, curriculum=curriculum or base.curriculum)


def test_a_source_draws_by_a_critic_and_a_curriculum_chooses_by_it() -> None:
    loop = Loop(valued(Doubtful(), Valued()), cartpole(), seed=0, num_steps=1)
    seen: list[Experience] = []
    annotate = loop.engine.annotate
    loop.engine.annotate = lambda batch, needs: (seen.append(batch), annotate(batch, needs))[1]  # type: ignore[func-returns-value]
    critic: Any = loop.engine.models["value"]
    fresh = loop.step().fresh
    assert fresh is not None
    first = sum(own.numel() for own in critic.parameters())
    assert fresh.column("start").tolist() == list(range(first, first + 4))
    with torch.no_grad():
        wanted = critic(fresh.context)[:, 0].argsort()[:2]
    assert seen[-1].column("start").tolist() == fresh.column("start")[wanted].tolist()


def test_exploration_by_a_critic_gathers_its_best_actions() -> None:
    base = recipes.td3(CONTINUOUS)
    recipe = replace(base, rollout=Fragments(4, 3, ByCritic()))
    recipe.check()
    assert models_of(recipe) == ("actor", "q")  # a worker that gathers gets them
    loop = Loop(recipe, pendulum(), seed=0, num_steps=1)
    critic: Any = loop.engine.models["q"]
    weights = [own.detach().clone() for own in critic.parameters()]
    fresh = loop.step().fresh
    assert fresh is not None
    with torch.no_grad():
        for own, before in zip(critic.parameters(), weights, strict=True):
            own.copy_(before)
        value = critic({name: one[:, :-1] for name, one in fresh.context.items()}, fresh.action[:, :-1]).amin(0)
    assert torch.allclose(value, fresh.logp[:, :-1], atol=1e-5)


def test_a_part_that_reads_no_model_of_the_recipe_is_refused() -> None:
    with pytest.raises(AssayError, match="Doubtful reads 'nobody'"):
        valued(Doubtful("nobody")).check()
    with pytest.raises(AssayError, match="Valued reads 'nobody'"):
        valued(FreshSequences(), Valued("nobody")).check()
    with pytest.raises(AssayError, match="Fragments reads 'nobody'"):
        replace(recipes.td3(CONTINUOUS), rollout=Fragments(4, 3, ByCritic("nobody"))).check()


def test_a_part_that_changes_a_model_it_reads_ends_the_run() -> None:
    loop = Loop(valued(Doubtful(writes_too=True)), cartpole(), seed=0, num_steps=1)
    with pytest.raises(AssayError, match="Doubtful changed the model 'value'"):
        loop.step()


def test_parts_that_read_models_are_under_law() -> None:
    assert broken(check_explore(ByCritic())) == set()
    assert broken(check_curriculum(Valued())) == set()
    assert "handed_models" not in broken(check_source(Doubtful()))
    assert "handed_models" in broken(check_source(Doubtful(writes_too=True)))
    assert "handed_models" in broken(check_source(Doubtful(hidden="actor")))
    assert "handed_models" in broken(check_explore(ByCritic(writes_too=True)))
    assert "handed_models" in broken(check_curriculum(Valued(writes_too=True)))
    assert "handed_models" not in broken(check_rollout(Watched()))
    assert "handed_models" in broken(check_rollout(Watched(writes_too=True)))
