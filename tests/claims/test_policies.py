"""Metrics of trained policies: sampled ones agree with exact ones, and measured claims take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.claims import measuring, verdicts
from assay.claims.claim import Final, Measured
from assay.claims.metrics import AnswerProbability, Area, AtEqual, DistinctAt, Largest, PassAt
from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.models.model import Policy
from assay.recipes.group import grpo, reinforce
from assay.recipes.presets import BIGRAMS, PLACES
from assay.runs import catalogue
from assay.runs.folder import read_metrics
from assay.tasks.control.cartpole import cartpole

CURVES = [
    {"step": 0, "evaluation": 0.0},
    {"step": 1, "norm": 3.0},
    {"step": 10, "evaluation": 1.0, "norm": 5.0},
    {"step": 40, "evaluation": 1.0, "norm": 1.0},
]


def test_the_area_is_the_mean_height_and_knows_uneven_steps() -> None:
    assert Area()(CURVES) == pytest.approx((5 + 30) / 40)
    assert Area()([{"step": 3, "evaluation": 0.7}]) == 0.7
    assert Largest("norm")(CURVES) == 5.0
    with pytest.raises(AssayError, match="no step has the metric"):
        Area("reward")(CURVES)


@pytest.fixture(scope="module")
def trained() -> tuple[Any, Any]:
    task = catalogue.find_task("stale:prompts=4")
    loop = Loop(catalogue.recipe_for("grpo", task, {}), task, seed=0, num_steps=12)
    for _ in range(12):
        loop.step()
    return loop.policy, task


def test_sampled_pass_and_distinct_agree_with_the_exact_ones(trained: tuple[Any, Any]) -> None:
    policy, task = trained
    exact = task.exact(policy)
    assert 0.05 < exact["pass_rate"] < 0.95
    for k in (8, 64):
        assert PassAt(k, 64, 256).of(policy, task) == pytest.approx(exact[f"pass@{k}"], abs=0.03)
        assert DistinctAt(k, 64, 256).of(policy, task) == pytest.approx(exact[f"distinct@{k}"], abs=0.1)
    assert PassAt(1, 16, 64).of(policy, task) == PassAt(1, 16, 64).of(policy, task)


def test_the_answer_probability_is_the_exact_pass_rate_of_one_right_answer() -> None:
    task: Any = catalogue.find_task("lock:digits=2")
    loop = Loop(catalogue.recipe_for("grpo", task, {}), task, seed=0, num_steps=20)
    for _ in range(20):
        loop.step()
    found = AnswerProbability(prompts=32).of(loop.policy, task)
    assert found == pytest.approx(task.exact(loop.policy)["pass_rate"], rel=1e-4)
    assert found > 0.02


def test_the_answer_probability_of_a_classic_task_agrees_with_samples() -> None:
    task = catalogue.find_task("sorting-3")
    recipe = catalogue.recipe_for("sft", task, {"actor.width": 32, "actor.layers": 1})
    loop = Loop(recipe, task, seed=0, num_steps=150)
    for _ in range(150):
        loop.step()
    exact, sampled = AnswerProbability(256).of(loop.policy, task), PassAt(1, 8, 256).of(loop.policy, task)
    assert exact == pytest.approx(sampled, abs=0.04)
    assert exact > 0.01


def test_tasks_without_texts_are_refused() -> None:
    task = cartpole()
    actor = Policy().build(task.spec)
    for metric, reason in ((PassAt(), "no texts"), (DistinctAt(), "no texts")):
        with pytest.raises(AssayError, match=reason):
            metric.of(actor, task)
    with pytest.raises(AssayError, match="no demonstrated answers"):
        AnswerProbability().of(actor, task)


def test_a_measured_claim_takes_a_metric_of_the_policy(tmp_path: Path) -> None:
    claim = Measured("pass@8", "lock:digits=1", grpo(PLACES), reinforce(BIGRAMS), PassAt(8, 16, 32), seeds=2, steps=3)
    found = measuring.measure("grpo", claim, tmp_path, workers=1)
    assert found is not None
    folders = sorted(tmp_path.glob("grpo-*/seed-*"))
    assert len(folders) == 2
    assert all(0.0 < value <= 1.0 for value in found["ours"])
    assert found["ours"] != found["theirs"]
    final = Measured("score", "lock:digits=1", grpo(PLACES), 0.0, Final("pass_rate"), seeds=2, steps=3)
    again = measuring.measure("grpo", final, tmp_path, workers=1)
    assert again is not None
    assert np.mean(again["ours"]) > 0.1


def learning(*pairs: tuple[float, float], tokens: int = 10) -> list[dict[str, float]]:
    """Returns evaluations with a pass rate and a metric that shrinks while it grows."""
    return [
        {"step": place, "pass_rate": rate, "pass@64": value, "decisions_total": tokens * place}
        for place, (rate, value) in enumerate(pairs)
    ]


def test_equal_progress_is_compared_where_both_have_the_lower_pass_rate() -> None:
    slow, fast = learning((0.1, 0.9), (0.2, 0.8)), learning((0.1, 0.9), (0.3, 0.7), (0.5, 0.5))
    assert AtEqual("pass@64").of_both(slow, fast) == pytest.approx((0.8, 0.8)), "earlier on the same way is no gain"
    assert AtEqual("pass@64").of_both(fast, slow) == pytest.approx((0.8, 0.8))
    assert Final("pass@64")(slow) - Final("pass@64")(fast) == pytest.approx(0.3), "which equal steps call one"
    better = learning((0.1, 0.9), (0.3, 0.9), (0.4, 0.9))
    assert AtEqual("pass@64").of_both(better, fast) == pytest.approx((0.9, 0.6))


def test_equal_progress_of_a_side_that_starts_above_the_level_is_its_start() -> None:
    falling, rising = learning((0.4, 0.6), (0.2, 0.5)), learning((0.1, 0.9), (0.3, 0.7))
    assert AtEqual("pass@64").of_both(falling, rising) == pytest.approx((0.6, 0.8))


def test_equal_tokens_are_compared_between_evaluations() -> None:
    dear, cheap = learning((0.0, 1.0), (0.4, 0.6), tokens=30), learning((0.0, 1.0), (0.2, 0.8), (0.4, 0.6), tokens=10)
    ours, theirs = AtEqual("pass_rate", reached="decisions_total").of_both(dear, cheap)
    assert (ours, theirs) == pytest.approx((0.4 * 2 / 3, 0.4))


def test_a_metric_of_both_needs_two_recipes_and_a_metric_that_is_there() -> None:
    with pytest.raises(AssayError, match="compares two curves; give two recipes"):
        Measured("m", "lock:digits=1", grpo(PLACES), 0.0, AtEqual("pass@64"))
    with pytest.raises(AssayError, match="no step has the metric 'entropy'"):
        AtEqual("entropy").of_both(learning((0.1, 0.9)), learning((0.1, 0.9)))


def test_a_metric_of_both_is_measured_on_pairs_of_runs(tmp_path: Path) -> None:
    claim = Measured("m", "lock:digits=1", grpo(PLACES), reinforce(PLACES), AtEqual("pass@64"), seeds=2, steps=4)
    found = measuring.measure("grpo", claim, tmp_path)
    assert found is not None
    lines = [
        [read_metrics(path.parent) for path in sorted(tmp_path.glob(f"{name}-*/seed-*/metrics.jsonl"))]
        for name in ("grpo", "reinforce")
    ]
    pairs = [AtEqual("pass@64").of_both(ours, theirs) for ours, theirs in zip(*lines, strict=True)]
    assert (found["ours"], found["theirs"]) == ([one for one, _ in pairs], [other for _, other in pairs])
    assert verdicts.entry_problems(found) == []
