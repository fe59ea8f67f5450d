"""Rewards by length: the values of short and long answers along a curve, worked out by hand."""

from __future__ import annotations

import pytest

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.parts.rewards.length import ByLength, cosine, inverse

TASK, ROWS = probes.answered(["7", "...7", "8", "...7", "7"], max_tokens=8, cut=[3], faults=[4])
"""Right with 2 and 5 tokens, wrong with 2, right but cut, a row that left training."""


def paid(part: ByLength) -> list[float]:
    return part(ROWS, Scene(TASK)).reward.sum(1).tolist()


def test_answers_are_paid_between_short_and_long() -> None:
    half = ByLength((3.0, 1.0), (0.0, -4.0), limit=4)
    assert paid(half) == pytest.approx([2.0, 1.0, -2.0, -4.0, 0.0]), "clamped at the limit; a cut answer is wrong"
    assert paid(ByLength((8.0, 0.0), (-8.0, 0.0), curve=inverse)) == pytest.approx([32.0, 12.8, -32.0, -8.0, 0.0])


@pytest.mark.parametrize("curve", [cosine, inverse])
def test_equal_values_are_the_plain_outcome(curve: object) -> None:
    assert paid(ByLength((1.0, 1.0), (0.0, 0.0), curve=curve)) == [1.0, 1.0, 0.0, 0.0, 0.0]  # type: ignore[arg-type]


def test_a_limit_of_no_tokens_is_refused() -> None:
    with pytest.raises(AssayError, match="limit is 0"):
        ByLength(limit=0)
