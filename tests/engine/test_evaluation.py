"""Evaluation counts what is independent: a held-out prompt once, pairs against their reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.runs import catalogue
from assay.runs.folder import read_samples
from assay.runs.plan import make_plan
from assay.runs.run import execute
from assay.statistics.intervals import by_cluster, cluster_interval, mean_interval, measured_change

SMALL = {"actor.width": 16, "actor.layers": 1, "actor.heads": 1}


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> str:
    train = written(tmp_path / "a.jsonl", [{"prompt": f"after {k}", "answer": str(k + 1)} for k in range(20)])
    test = written(tmp_path / "b.jsonl", [{"prompt": f"next of {k}", "answer": str(k + 1)} for k in range(8)])
    return f"{train},{test}"


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    rows = [{"prompt": f"after {k}", "chosen": str(k + 1), "rejected": "a long wrong text"} for k in range(40)]
    return written(tmp_path / "pairs.jsonl", rows)


def test_eight_held_out_rows_are_eight_values_and_a_wide_interval(two: str, tmp_path: Path) -> None:
    plan = make_plan("sft", two, steps=1, warmup=0, settings=SMALL | {"batch": 2})
    run = execute(plan, tmp_path / "run")
    assert len(run.scores_after) == 8
    assert run.after.count == 8
    assert run.after.high - run.after.low > 0.3
    assert 0.0 <= run.after.low <= run.after.high <= 1.0
    held = [row for row in read_samples(tmp_path / "run") if row.get("heldout")]
    assert len(held) == 16
    assert {row["prompt"] for row in held} == {f"next of {k}" for k in range(8)}


def test_no_row_is_evaluated_twice_and_generated_prompts_are_not_limited(two: str) -> None:
    task = catalogue.find_task(two)
    assert evaluation.num_starts(task) == 8
    assert evaluation.num_starts(task, 5) == 5
    assert evaluation.num_starts(catalogue.find_task("sorting-3")) == evaluation.PROMPTS


def test_equal_prompts_have_one_label(tmp_path: Path) -> None:
    rows = [{"prompt": f"same {k % 3}", "answer": f"x{k}"} for k in range(9)]
    other = written(tmp_path / "t.jsonl", [{"prompt": "other", "answer": "x"}])
    task = catalogue.find_task(f"{other},{written(tmp_path / 'r.jsonl', rows)}")
    assert evaluation.labels(task, 9).tolist() == [0, 1, 2] * 3


# ---------------------------------------------------------------------------------------------------- pairs
def test_an_untrained_policy_has_accuracy_one_half_and_margin_zero(pairs: str) -> None:
    plan = make_plan("dpo", pairs, settings=SMALL)
    loop = Loop(plan.recipe, plan.task, seed=0, num_steps=1)
    with_it = evaluation.evaluate(loop.policy, plan.task, reference=loop.engine.models["reference"])
    assert with_it.values.tolist() == [0.5] * len(with_it.values)
    assert with_it.more == {"evaluation_margin": 0.0}
    assert len(with_it.values) == plan.task.num_testing  # type: ignore[attr-defined]
    without = evaluation.evaluate(loop.policy, plan.task)
    assert without.values.mean() == 1.0  # the shorter text is likelier, whatever is preferred


def test_a_trained_policy_prefers_by_its_implicit_reward(pairs: str, tmp_path: Path) -> None:
    run = execute(make_plan("dpo", pairs, steps=20, settings=SMALL | {"learning_rate": 0.01}), tmp_path / "run")
    assert run.before.value == 0.5
    assert run.after.value > 0.9
    assert run.curves[-1]["evaluation_margin"] > 0.1


# ---------------------------------------------------------------------------------------------------- intervals
def test_a_label_counts_once() -> None:
    values, labels = np.repeat([1.0, 0.0, 1.0, 1.0], 16), np.repeat(np.arange(4), 16)
    assert cluster_interval(values, labels) == mean_interval([1.0, 0.0, 1.0, 1.0])
    assert cluster_interval([0.0, 1.0, 1.0], [4, 5, 6]) == mean_interval([0.0, 1.0, 1.0])
    assert cluster_interval(np.ones(32), np.zeros(32)).count == 1
    assert cluster_interval([0.0, 1.0, 1.0], [1, 1, 1]).low == 0.0


def test_linearised_values_have_the_mean_of_all_values() -> None:
    values, labels = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 0.5]), np.array([0, 0, 0, 1, 1, 2])
    assert by_cluster(values, labels).mean() == pytest.approx(values.mean())
    assert cluster_interval(values, labels).value == pytest.approx(values.mean())


@pytest.mark.parametrize("prompts", [8, 40])
def test_the_interval_of_several_samples_covers_the_true_mean(prompts: int) -> None:
    """Prompts have their own pass rate, Beta(1, 2): 16 samples of each are not 16 prompts."""
    rng, hits, plain, trials = np.random.default_rng(0), 0, 0, 400
    labels = np.repeat(np.arange(prompts), 16)
    for _ in range(trials):
        values = (rng.random((prompts, 16)) < rng.beta(1, 2, (prompts, 1))).astype(float).ravel()
        ours, naive = cluster_interval(values, labels), mean_interval(values)
        hits += ours.low <= 1 / 3 <= ours.high
        plain += naive.low <= 1 / 3 <= naive.high
        assert 0.0 <= ours.low <= ours.high <= 1.0
        assert ours.count == prompts
    assert hits / trials > 0.92
    assert plain / trials < 0.7


def test_an_interval_stays_inside_the_range_of_a_score() -> None:
    values = [0.9, 1.0, 0.95, 1.0, 0.2, 1.0]
    assert mean_interval(values).high > 1.0
    assert cluster_interval(values, bounds=(0.0, 1.0)).high == 1.0
    change = measured_change("x", np.zeros(4), [1.0, 1.0, 0.9, 1.0], paired=True, bounds=(0.0, 1.0))
    assert change.change.high <= 1.0
    assert change.after.high <= 1.0


def test_a_change_of_repeated_prompts_counts_prompts() -> None:
    before, after, labels = np.zeros(32), np.repeat([1.0, 0.0], 16), np.repeat(np.arange(2), 16)
    change = measured_change("x", before, after, paired=True, labels=labels, bounds=(0.0, 1.0))
    assert (change.change.count, change.before.count, change.after.count) == (2, 2, 2)
    assert change.verdict == "no clear change"
    with pytest.raises(AssayError, match="labels must be one for each value"):
        by_cluster(np.ones(3), [1, 1])


def test_scores_on_a_fresh_task_are_those_of_every_start() -> None:
    task = catalogue.find_task("sorting-3")
    plan = make_plan("sft", "sorting-3", settings=SMALL)
    actor = Loop(plan.recipe, task, seed=0, num_steps=1).policy
    assert evaluation.scores(actor, task, num=6, samples=2).shape == (12,)
    assert torch.is_grad_enabled()
