"""A rollout that also plays every start greedily: who is sampled, what is written, what counts as spent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay import recipes
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.models.bodies.transformer import Transformer
from assay.models.model import Policy
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.rollouts.greedy import WithGreedy
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.addition import addition


def with_greedy(**settings: object) -> Recipe:
    rollout = WithGreedy(Episodes(3, 2), **settings)  # type: ignore[arg-type]
    return replace(recipes.grpo(), actor=Policy(Transformer(16, 1, 2)), rollout=rollout)


def test_the_outcome_of_the_greedy_answer_is_on_every_row_of_its_group() -> None:
    assert probes.greedy_gap(with_greedy(), (1.0, 0.0, 0.5), (0, 1, 2)) == 0.0


def test_starts_solved_greedily_are_not_sampled_and_a_partial_reward_is_not_solved() -> None:
    assert probes.greedy_gap(with_greedy(skip=True), (1.0, 0.0, 0.5), (1, 2)) == 0.0
    assert probes.greedy_gap(with_greedy(skip=True), (1.0, 1.0), ()) == 0.0


def test_greedy_decisions_are_spent_and_do_not_train() -> None:
    loop = Loop(with_greedy(), addition(1), seed=0, num_steps=1)
    step = loop.step()
    assert step.fresh is not None
    assert len(step.fresh) == 6
    assert loop.progress.decisions > int(step.fresh.mask.sum())


def test_fragments_draw_their_own_starts() -> None:
    with pytest.raises(AssayError, match="draws its own starts"):
        WithGreedy(Fragments()).init(Scene(cartpole()))
