"""Judges of pairs by hand: noise, both orders, margins, and what a user's function may return."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.parts.rewards.judges import FunctionJudge, OutcomeJudge, margins
from assay.tasks.language.addition import addition

TASK = addition(1)


def of_one_group(outcomes: list[float]) -> Experience:
    return probes.bandit_experience([0] * len(outcomes), outcomes, torch.zeros(2))


def test_margins_are_differences_of_scores_and_antisymmetric() -> None:
    scores = OutcomeJudge().scores(of_one_group([3.0, 1.0, 0.0, 0.0]), TASK)
    assert margins(scores, torch.tensor([0, 1, 3])).tolist() == [[0, 2, 3], [-2, 0, 1], [-3, -1, 0]]
    assert margins(scores, torch.tensor([2])).tolist() == [[0]]


def test_noise_of_a_judge_is_repeated_and_has_its_size() -> None:
    batch = of_one_group([0.0] * 60)
    first, second = (torch.tensor(side) for side in zip(*itertools.combinations(range(60), 2), strict=True))
    scores = OutcomeJudge(0.5)(batch, TASK, first, second)
    assert torch.equal(scores, OutcomeJudge(0.5)(batch, TASK, first, second))
    assert float(scores.std()) == pytest.approx(0.5, rel=0.05)
    assert abs(float(scores.mean())) < 0.05
    assert torch.equal(OutcomeJudge(0.5)(batch, TASK, second, first).flip(1), scores)


def test_a_users_judge_is_asked_in_both_orders_and_sees_each_row_once() -> None:
    shown = TASK.demonstrate(np.array([0, 1, 2]), 0)
    together = replace(shown, group=torch.zeros(3, dtype=torch.long)).add({"sample": torch.arange(3)})
    seen: list[tuple[int, int]] = []

    def prefers_the_first(a: dict[str, Any], b: dict[str, Any]) -> tuple[float, float]:
        seen.append((id(a), id(b)))
        return len(a["prompt"]) + 10.0, float(len(b["prompt"]))

    scores = FunctionJudge(prefers_the_first)(together, TASK, torch.tensor([0, 1]), torch.tensor([1, 2]))
    assert torch.equal(scores[:, 0] - scores[:, 1], torch.zeros(2).double())
    assert [pair[::-1] for pair in seen[::2]] == seen[1::2]
    assert len({one for pair in seen for one in pair}) == 3


@pytest.mark.parametrize("given", [1.0, (1.0,), (1.0, float("nan")), ("1", "0"), None, (float("inf"), 0)])
def test_a_judge_that_does_not_return_two_finite_numbers_is_refused(given: Any) -> None:
    judge = FunctionJudge(lambda a, b: given)
    with pytest.raises(AssayError, match="two finite numbers"):
        judge(TASK.demonstrate(np.arange(2), 0), TASK, torch.tensor([0]), torch.tensor([1]))


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    judge = FunctionJudge(lambda a, b: (np.float32(2.0), torch.tensor(1.0)))  # type: ignore[arg-type, return-value]
    found = judge(TASK.demonstrate(np.arange(2), 0), TASK, torch.tensor([0]), torch.tensor([1]))
    assert found.tolist() == [[1.5, 1.5]]
