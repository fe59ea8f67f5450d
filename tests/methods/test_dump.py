"""Sources as arms of a bandit: shares, draws, and what the bandit remembers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.core.record import Draw
from assay.core.slots import ALONE
from assay.engine.loop import Loop
from assay.methods.dump.curriculum import SourceBandit
from assay.proof.laws.cases import RAGGED, TOKENS, build
from assay.runs import catalogue
from tests.scenes import asking


def reference_shares(state: dict, temperature: float) -> list[float]:
    total = sum(state["count"])
    bounds = []
    for recent, count in zip(state["recent"], state["count"], strict=True):
        mean = sum(recent) / len(recent) if recent else 0.0
        bounds.append(mean + math.sqrt(2 * math.log(max(1, total) + 1) / (count + 1)))
    weights = [math.exp(bound / temperature) for bound in bounds]
    return [weight / sum(weights) for weight in weights]


def test_shares_are_softmax_of_upper_confidence_bounds() -> None:
    state = {"next": [0] * 3, "recent": [[0.1, 0.9], [], [0.4]], "count": [20, 0, 3]}
    np.testing.assert_allclose(SourceBandit(3).probabilities(state), reference_shares(state, 0.1), atol=1e-12)


def test_starts_are_the_next_ones_of_their_source_each_once() -> None:
    bandit = SourceBandit(3)
    state = bandit.init(ALONE)
    starts = np.concatenate([bandit(asking(50, Draw(1, (step,))), state) for step in range(4)])
    for source in range(3):
        mine = starts[starts % 3 == source]
        assert mine.tolist() == [source + 3 * place for place in range(len(mine))]
    assert len(set(starts.tolist())) == 200


def test_sources_are_drawn_at_their_shares() -> None:
    bandit = SourceBandit(3, temperature=1.0)
    state = bandit.init(ALONE) | {"recent": [[0.0], [1.0], [2.0]], "count": [9, 9, 9]}
    shares = bandit.probabilities(state)
    drawn = np.bincount(bandit(asking(20_000, Draw(2)), state) % 3, minlength=3) / 20_000
    np.testing.assert_allclose(drawn, shares, atol=0.012)


def test_two_calls_of_one_step_draw_differently() -> None:
    bandit = SourceBandit(6)
    state = bandit.init(ALONE)
    first, second = (bandit(asking(40, Draw(1, (3,))), state) % 6 for _ in range(2))
    assert first.tolist() != second.tolist()


def test_the_bandit_remembers_the_size_of_mean_advantages_of_rows_with_decisions() -> None:
    batch = build(TOKENS, RAGGED)
    bandit = SourceBandit(3, window=2)
    state = bandit.init(ALONE)
    bandit.observe(batch, ALONE, state)
    expected: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for row in range(len(batch)):
        if bool(batch.mask[row].any()):
            size = batch.column("advantage")[row][batch.mask[row]].mean().abs()
            expected[int(batch.column("start")[row]) % 3].append(float(size))
    assert state["count"] == [len(expected[source]) for source in range(3)]
    for source in range(3):
        assert state["recent"][source] == pytest.approx(expected[source][-2:])


def test_nothing_observed_changes_nothing() -> None:
    batch = build(TOKENS, RAGGED)
    bandit = SourceBandit(3)
    state = bandit.init(ALONE)
    bandit.observe(replace(batch, mask=torch.zeros_like(batch.mask)), ALONE, state)
    assert state == bandit.init(ALONE)


def test_the_curriculum_sees_the_credit_and_learns_which_source_pays() -> None:
    """Two sources of a bandit task: all starts are equal, so that counts alone decide; and the loop hands credit on."""
    task = catalogue.find_task("bandit")
    recipe = replace(catalogue.recipe_for("dump", task, {}), curriculum=SourceBandit(2))
    loop = Loop(recipe, task, seed=0, num_steps=3)
    for _ in range(3):
        loop.step()
    state = loop.states["curriculum"]
    assert sum(state["count"]) == 3 * 64
    assert max(max(recent) for recent in state["recent"]) > 0
