"""The coded rule: the score of its optimum, and codes that do not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.coded_rule import CodedRule
from assay.claims.testbeds.control.regret import RegretTask
from assay.core.record import Draw
from assay.datasets.agents import uniform_actor
from assay.engine import evaluation
from assay.runs.catalogue import find_task
from assay.tasks.control.stepping import Scripted

EXACT = ("coded-rule", "coded-rule:cardinality=3,irrelevant=0")


def exact(address: str) -> RegretTask:
    task = find_task(address)
    assert isinstance(task, RegretTask)
    return task


@pytest.mark.parametrize("address", EXACT)
def test_the_optimum_scores_one_and_uniform_actions_zero(address: str) -> None:
    task = exact(address)
    assert task.expert is not None
    np.testing.assert_allclose(evaluation.scores(Scripted(task.expert), task), 1.0, atol=1e-5)
    scores = evaluation.scores(uniform_actor(task), task, num=4_000, greedy=False)
    assert abs(scores.mean()) < 4 * scores.std() / len(scores) ** 0.5


def test_irrelevant_codes_are_even_and_change() -> None:
    task = exact("coded-rule:cardinality=4,irrelevant=2")
    assert isinstance(task.dynamics, CodedRule)
    starts = np.arange(500)
    played = task.play(uniform_actor(task), starts, 0 * starts, Draw(0), split=0, greedy=False)
    codes = (played.context["observation"][..., 2:] * 4).round().long()[played.mask]
    for place in range(2):
        share = torch.bincount(codes[:, place], minlength=4).double() / len(codes)
        assert float((share - 0.25).abs().max()) < 0.04
