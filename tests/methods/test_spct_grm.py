"""The vote of several judgements, and where spct-grm refuses a task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import pytest

import assay
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.methods.spct_grm.claims import biased
from assay.methods.spct_grm.parts import Vote
from assay.tasks.language.sorting import sorting

PROBS = (0.15, 0.17, 0.20, 0.26, 0.22)
"""Of the score of the better response minus that of the other being -2, -1, 0, 1, 2."""


def enumerated(vote: Vote, meta: Sequence[float] = ()) -> float:
    """P(the second response wins, ties a half) over all judgements whose scores differ by -2 .. 2 with PROBS."""
    right = 0.0
    for some in product(range(-2, 3), repeat=vote.samples):
        first, second = vote.total([(3, 3 + difference) for difference in some], 2, meta)
        chance = prod(PROBS[difference + 2] for difference in some)
        right += chance * (0.5 * (second > first) + 0.5 * (second >= first))
    return right


def test_four_judgements_are_right_as_often_as_their_convolution_says() -> None:
    assert enumerated(Vote(4)) == pytest.approx(0.6331, abs=1e-4)


def test_a_meta_filter_without_skill_that_keeps_two_of_four_is_a_vote_of_two() -> None:
    assert enumerated(Vote(4, keep=2), (3.0, 9.0, 1.0, 4.0)) == pytest.approx(enumerated(Vote(2)))


def test_a_task_without_numbers_of_responses_is_refused_before_the_run() -> None:
    with pytest.raises(AssayError, match="must be the number of its best response"):
        assay.train("spct-grm", "refusing", steps=1)


def test_a_vote_needs_the_responses_apart() -> None:
    with pytest.raises(AssayError, match="Use a task whose fact `responses` lists them"):
        Vote(2).choices(sorting(3), biased, [0], Draw(0))
