"""Sources as arms of a bandit: shares, draws, what the bandit remembers, and where sources come from."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.claims.laws.cases import RAGGED, TOKENS, build
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.dump import SourceBandit
from assay.runs import catalogue
from assay.runs.plan import make_plan
from assay.tasks.language.mixture import mixture
from assay.tasks.language.sorting import sorting
from assay.tasks.language.textfile import textfile


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
    np.testing.assert_allclose(SourceBandit().probabilities(state), reference_shares(state, 0.1), atol=1e-12)


THREE = Scene(mixture("three", [sorting(level) for level in (3, 4, 5)]))


def test_starts_are_the_next_ones_of_their_source_each_once() -> None:
    bandit = SourceBandit()
    state = bandit.init(THREE)
    starts = np.concatenate([bandit(THREE.given(num_starts=50, draw=Draw(1, (step,))), state) for step in range(4)])
    for source in range(3):
        mine = starts[starts % 3 == source]
        assert mine.tolist() == [source + 3 * place for place in range(len(mine))]
    assert len(set(starts.tolist())) == 200


def test_sources_are_drawn_at_their_shares() -> None:
    bandit = SourceBandit(temperature=1.0)
    state = bandit.init(THREE) | {"recent": [[0.0], [1.0], [2.0]], "count": [9, 9, 9]}
    shares = bandit.probabilities(state)
    drawn = np.bincount(bandit(THREE.given(num_starts=20_000, draw=Draw(2)), state) % 3, minlength=3) / 20_000
    np.testing.assert_allclose(drawn, shares, atol=0.012)


def test_two_calls_of_one_step_draw_differently() -> None:
    bandit = SourceBandit()
    state = bandit.init(THREE)
    first, second = (bandit(THREE.given(num_starts=40, draw=Draw(1, (3,))), state) % 3 for _ in range(2))
    assert first.tolist() != second.tolist()


def test_the_bandit_remembers_the_size_of_mean_advantages_of_rows_with_decisions() -> None:
    batch = build(TOKENS, RAGGED)
    bandit = SourceBandit(window=2)
    state = bandit.init(THREE)
    bandit.observe(batch, THREE, state)
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
    bandit = SourceBandit()
    state = bandit.init(THREE)
    bandit.observe(replace(batch, mask=torch.zeros_like(batch.mask)), THREE, state)
    assert state == bandit.init(THREE)


def test_the_curriculum_sees_the_credit_and_learns_which_source_pays() -> None:
    """The loop hands credit on, and rows are counted under their source."""
    task = catalogue.find_task("easy-and-hard")
    recipe = catalogue.recipe_for("dump", task, {}).set("rollout.num_starts", 4)
    loop = Loop(recipe, task, seed=0, num_steps=3)
    for _ in range(3):
        loop.step()
    assert sum(loop.states["curriculum"]["count"]) == 3 * 32


def test_a_file_with_a_field_source_has_sources_and_one_without_is_refused(tmp_path: Path) -> None:
    with_field, without, some = (tmp_path / f"{name}.jsonl" for name in ("with", "without", "some"))
    rows = [{"prompt": f"{k} of {k % 3}?", "answer": "yes"} for k in range(40)]
    with_field.write_text("\n".join(json.dumps(row | {"source": "abc"[k % 3]}) for k, row in enumerate(rows)))
    without.write_text("\n".join(map(json.dumps, rows)))
    some.write_text("\n".join(json.dumps(row | ({"source": "a"} if k % 2 else {})) for k, row in enumerate(rows)))
    task = textfile(str(with_field))
    assert task.source_names == ("a", "b", "c")
    for source, place in itertools.product(range(3), range(40)):
        start = task.start_in(source, place)
        assert task.source_of(start) == source
        assert task.items.item(start, 0).facts["source"] == "abc"[source]
    assert len({task.start_in(source, place) for source in range(3) for place in range(40)}) == 120
    with pytest.raises(AssayError, match=r"has none\. Add a field `source`"):
        SourceBandit().init(Scene(textfile(str(without))))
    with pytest.raises(AssayError, match="have no field 'source'"):
        SourceBandit().init(Scene(textfile(str(some))))
    with pytest.raises(AssayError, match=r"has none\. Add a field `source`"):  # before any run of a comparison
        make_plan("dump", str(without))
