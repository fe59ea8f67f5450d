"""Judgements as text: a score for each response, "8,3", at the end of what a judge writes."""

from __future__ import annotations

import re
from collections.abc import Sequence

Scores = Sequence[int] | None
"""The scores of one judgement; None where it cannot be read."""
SCORES = re.compile(r"\s*[0-9]{1,3}(\s*,\s*[0-9]{1,3})*\s*")


def scores_in(completion: str, mark: str = ":") -> list[int] | None:
    """Returns the scores after the last `mark`, or in the whole text without one; None for anything but numbers and
    commas.
    """
    said = completion.rpartition(mark)[2]
    return [int(one.strip()) for one in said.split(",")] if SCORES.fullmatch(said) else None


def leading(scores: Sequence[int]) -> list[int]:
    """Returns the numbers, from 1, of the responses with the highest score; of no scores none."""
    return [place for place, score in enumerate(scores, 1) if score == max(scores)]
