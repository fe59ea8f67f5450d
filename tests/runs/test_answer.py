"""The answer of a comparison in one line."""

from __future__ import annotations

import pytest

from assay.runs.answer import answer, clearest_task, pairs_of

SAME = {"a": {0: 1.0, 1: 1.0, 2: 1.0}, "b": {0: 1.0, 1: 1.0, 2: 1.0}}
APART = {"a": {0: 0.10, 1: 0.12, 2: 0.11}, "b": {0: 0.50, 1: 0.53, 2: 0.52}}


def test_the_clearest_pair_is_named_with_its_task() -> None:
    pairs = pairs_of({"easy": SAME, "hard": APART}, {"easy": (0.0, 1.0), "hard": (0.0, 1.0)})
    assert clearest_task(pairs) == "hard"
    assert answer(pairs).startswith("b is above a on hard by 0.41 [")
    assert pairs[0].difference.low > 0.3
    assert pairs[1].strength == 0.0, "equal scores are no difference, and no uncertain one"


def test_an_interval_holds_for_all_comparisons_together() -> None:
    noisy = {"a": {0: 0.1, 1: 0.3, 2: 0.2}, "b": {0: 0.3, 1: 0.65, 2: 0.4}}
    alone = pairs_of({"hard": noisy}, {})
    assert alone[0].is_clear, "0.25 apart"
    both = pairs_of({"hard": noisy, "easy": SAME}, {})
    assert (both[0].difference.low < alone[0].difference.low, both[0].is_clear) == (True, False)
    assert answer(both) == "No arm differs clearly (95 % for all 2 comparisons together)."


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"t": {"a": {0: 1.0, 1: 2.0}}}, ""),
        ({"t": {"a": {0: 1.0, 1: 1.5}, "b": {0: 3.0, 1: 3.5}}}, "Whether arms differ cannot be said with fewer than 3"),
        ({"t": SAME}, "No arm differs clearly."),
        ({"t": {"a": {}, "b": {0: 1.0, 1: 1.0}}}, ""),
    ],
)
def test_what_cannot_be_said_is_not_said(scores: dict[str, dict[str, dict[int, float]]], words: str) -> None:
    said = answer(pairs_of(scores, {}))
    assert said.startswith(words)
    assert bool(said) == bool(words)


def test_seeds_that_are_not_shared_are_not_paired() -> None:
    (pair,) = pairs_of({"t": {"a": {0: 0.0, 1: 0.2}, "b": {5: 1.0, 6: 1.2}}}, {})
    assert (pair.above, round(pair.difference.value, 6)) == ("b", 1.0)
