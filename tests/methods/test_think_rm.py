"""Credit from pairwise verdicts: groups of any size, faults, episodes of several rows, judges, and tasks that are
refused.
"""

from __future__ import annotations

import pytest
import torch

import assay
from assay.claims import probes
from assay.claims.laws.cases import RAGGED, SEGMENTS, TOKENS, build
from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.engine.loop import Loop
from assay.methods import think_rm
from assay.methods.think_rm import PairwiseCredit, Refitted
from assay.parts.rewards.judges import OutcomeJudge
from assay.tasks.language.sorting import sorting


def of_outcomes(*outcomes: float) -> Experience:
    return probes.bandit_experience([0] * len(outcomes), list(outcomes), torch.zeros(2))


def advantage(batch: Experience, graded: bool = False) -> list[float]:
    found = PairwiseCredit(graded=graded)(batch).column("advantage")
    return found.double().sum(1).div(batch.mask.sum(1).clamp(min=1)).tolist()


def test_signs_of_a_strict_order_and_of_a_tie() -> None:
    assert advantage(of_outcomes(9.0, 0.3, 0.2, -5.0)) == pytest.approx([1.0607, 0.3536, -0.3536, -1.0607], abs=1e-4)
    assert advantage(of_outcomes(3.0, 1.0, 0.0, 0.0)) == pytest.approx([1.1619, 0.3873, -0.7746, -0.7746], abs=1e-4)
    assert advantage(of_outcomes(2.0, 2.0, 2.0)) == [0.0] * 3
    assert advantage(of_outcomes(0.5, 0.25)) == pytest.approx([0.7071, -0.7071], abs=1e-4)


def test_graded_verdicts_of_a_score_are_standardised_rewards() -> None:
    assert advantage(of_outcomes(3.0, 1.0, 0.0, 0.0), True) == pytest.approx([1.4142, 0, -0.7071, -0.7071], abs=1e-4)


def test_a_score_is_refitted_to_the_matches_of_each_group() -> None:
    """Two members with a margin of 0.5: sigmoid(s_1 - s_2) = 3/4, so the scores are log(3) / 2 and its opposite."""
    assert Refitted()(of_outcomes(0.75, 0.25)).reward[:, 0].tolist() == pytest.approx([0.5493, -0.5493], abs=1e-4)
    assert Refitted()(of_outcomes(0.4, 0.4, 0.4)).reward[:, 0].tolist() == [0.0] * 3
    assert Refitted()(of_outcomes(0.4)).reward[:, 0].tolist() == [0.0]


def test_groups_of_one_two_and_three_without_the_row_that_left_training() -> None:
    batch = build(TOKENS, RAGGED)
    found, outcome = advantage(batch), (batch.reward * batch.mask).sum(1)
    assert (found[5], found[3]) == (0.0, 0.0)
    assert sorted((found[1], found[4])) == pytest.approx([-0.7071, 0.7071], abs=1e-4)
    assert sorted(found[row] for row in (0, 2, 6)) == pytest.approx([-0.9428, 0.0, 0.9428], abs=1e-4)
    assert max((0, 2, 6), key=lambda row: found[row]) == max((0, 2, 6), key=lambda row: float(outcome[row]))


def test_all_rows_of_an_episode_have_its_advantage() -> None:
    found = advantage(build(TOKENS, SEGMENTS))
    assert found[0] == pytest.approx(found[1])
    assert found[4] == pytest.approx(found[5])
    assert sorted((found[1], found[2], found[5])) == pytest.approx([-0.9428, 0.0, 0.9428], abs=1e-4)


def test_a_judge_with_noise_trains_a_policy() -> None:
    recipe = think_rm.recipe(judge=OutcomeJudge(0.5), graded=True).set("rollout.num_starts", 2)
    fresh = Loop(recipe, sorting(3), seed=0, num_steps=1).step().fresh
    assert fresh is not None
    found = fresh.column("advantage")
    assert float(found.abs().max()) > 0.1
    assert torch.isfinite(found).all()


def test_a_task_without_numbers_of_responses_is_refused_by_the_variant_that_trains_the_judge() -> None:
    with pytest.raises(AssayError, match="must be the number of its best response"):
        assay.train("think-rm:judge", "refusing", steps=1)
