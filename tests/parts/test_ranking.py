"""What a judgement earns, by hand: which response is first, ties, what cannot be read, and a wrong one's pay."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import AssayError
from assay.parts.rewards.ranking import RightRanking, is_right
from assay.rollouts.judgements import leading, scores_in


def row(completion: str, answer: str = "2", **facts: Any) -> dict[str, Any]:
    return {"completion": completion, "answer": answer, **facts}


def test_scores_stand_after_the_last_mark() -> None:
    assert scores_in("7,3") == [7, 3]
    assert scores_in("first: 1,2. So: 7 , 3 ") == [7, 3]
    assert scores_in("a|7,3", mark="|") == [7, 3]
    assert scores_in("7\x1d,\u20033\x1f") == [7, 3], "what a pattern takes for space, a number may not"
    assert [scores_in(said) for said in ("", "7,", "7;3", "-7,3", "7.5,3", "1234", "7,3:")] == [None] * 7


def test_those_with_the_highest_score_lead() -> None:
    assert (leading([3, 7, 7]), leading([1]), leading([])) == ([2, 3], [1], [])


@pytest.mark.parametrize(("wrong", "pay"), [(-1.0, [1, -1, -1, -1, -1, 1]), (0.0, [1, 0, 0, 0, 0, 1])])
def test_only_a_strictly_first_best_response_is_right(wrong: float, pay: list[float]) -> None:
    said = ["2,7", "7,7", "7,2", "no", "1,2,3", "well: 3,4"]
    assert RightRanking(wrong)([row(one, responses=["a", "b"]) for one in said]) == pay


def test_the_number_of_responses_is_a_fact_or_that_of_the_scores_but_at_least_two() -> None:
    assert is_right([1, 5, 2], row("", responses=3))
    assert is_right([1, 5, 2], row(""))
    assert not is_right([1, 5], row("", responses=3))
    assert not is_right([2], row("", "1"))


def test_a_single_response_must_be_scored_as_labelled() -> None:
    assert is_right([0], row("", "0", responses=1))
    assert not is_right([1], row("", "0", responses=["a"]))


@pytest.mark.parametrize("answer", ["x", "", "-1"])
def test_an_answer_that_is_no_number_is_refused(answer: str) -> None:
    with pytest.raises(AssayError, match="must be the number of its best response"):
        RightRanking()([row("1,2"), row("1,2", answer)])


@pytest.mark.parametrize("answer", ["0", "3"])
def test_an_answer_that_numbers_no_response_is_refused(answer: str) -> None:
    with pytest.raises(AssayError, match="one of its 2 responses"):
        RightRanking()([row("1,2", answer, responses=2)])


def test_rows_without_responses_are_refused() -> None:
    with pytest.raises(AssayError, match=r"no field `responses`.*`best`"):
        RightRanking()([row("1,2")])


def test_rows_without_an_answer_are_refused() -> None:
    with pytest.raises(AssayError, match="must be the number of its best response"):
        RightRanking()([{"player": 0, "completion": "1,2"}])


def test_a_chat_model_says_which_response_is_best() -> None:
    def longer(prompts: list[str]) -> list[str]:
        assert len(set(prompts)) == len(prompts), "each comparison is asked once"
        found = []
        for prompt in prompts:
            first, second = prompt.split("Answer A:\n")[1].split("\n\nEnd")[0].split("\n\nAnswer B:\n")
            found.append("Better: tie" if len(first) == len(second) else f"Better: {'AB'[len(second) > len(first)]}")
        return found

    rows = [row(said, "9", prompt="p", responses=["a", "abc", "ab"]) for said in ("1,3,2", "3,2,1")]
    assert RightRanking().with_judge(longer)(rows) == [1.0, -1.0]
    tied = row("2,1", prompt="p", responses=["ab", "cd"])
    assert RightRanking().with_judge(longer)([tied]) == [1.0]
    with pytest.raises(AssayError, match="no field `responses`"):
        RightRanking().with_judge(longer)([row("1,2")])
