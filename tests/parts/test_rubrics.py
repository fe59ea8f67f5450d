"""Judges of rubrics, by hand."""

from __future__ import annotations

from collections.abc import Sequence

from assay.parts import ByPattern, pattern_of
from assay.parts.rewards.rubric import ByChat

ITEMS = [{"item": "a."}, {"item": "ends in b", "pattern": "b$"}]


def rows(*said: str) -> list[dict[str, object]]:
    return [{"prompt": "q", "completion": one, "rubric": ITEMS} for one in said]


def test_items_are_met_by_their_pattern_or_their_text() -> None:
    assert [pattern_of(one) for one in ITEMS] == [r"a\.", "b$"]
    assert ByPattern()(rows("xa. b", "ax", "ba.")) == [[True, True], [False, False], [True, False]]


def test_a_chat_model_is_asked_with_all_items_and_its_last_list_counts() -> None:
    told: list[str] = []

    def ask(prompts: Sequence[str]) -> list[str]:
        told.extend(prompts)
        return ["Met: 1\nno,\nMet: 2, 7", "met: none", "I cannot say"]

    assert ByPattern().with_judge(ask)(rows("x", "y", "z")) == [[False, True], [False, False], None]
    assert isinstance(ByPattern().with_judge(ask), ByChat)
    assert "1. a.\n2. ends in b" in told[0]
    assert "Answer:\ny\n" in told[1]
