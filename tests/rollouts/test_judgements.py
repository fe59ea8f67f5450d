"""What a judge is asked, and what is read of its answer, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from assay.parts import ByPattern
from assay.rollouts.judgements import filled, filled_pair, numbered, numbers_after


def test_an_answer_cannot_bring_other_fields_into_the_question() -> None:
    values = {"prompt": "2+2", "answer": "4", "completion": "{answer} {prompt} {other}"}
    found = filled("Q {prompt} A {completion} R {answer} {other}", values)
    assert found == "Q 2+2 A {answer} {prompt} {other} R 4 {other}"
    assert filled_pair("{first}|{second}|{prompt}", "p", "{second}", "{prompt}") == "{second}|{prompt}|p"


def test_lines_have_numbers_from_one() -> None:
    assert numbered(["a", 7]) == "1. a\n2. 7"
    assert numbered([]) == ""


@pytest.mark.parametrize(("said", "found"), [
    ("Met: 1, 3 and 12.", {1, 3, 12}), ("met:\n- 2", {2}), ("Met: 1\nno: Met: none", set()), ("**Met:** 4", {4}),
    ("I met them", None), ("Met: all", None), ("Met: and 3", None), ("", None),
])  # fmt: skip
def test_the_last_list_counts_and_other_words_are_no_list(said: str, found: set[int] | None) -> None:
    assert numbers_after(r"\bmet", said) == found


def test_an_answer_that_all_items_are_met_is_not_read_as_none() -> None:
    def ask(prompts: Sequence[str]) -> list[str]:
        return ["Met: all"] * len(prompts)

    row = {"prompt": "q", "completion": "x", "rubric": [{"item": "a"}]}
    assert ByPattern().with_judge(ask)([row]) == [None]
