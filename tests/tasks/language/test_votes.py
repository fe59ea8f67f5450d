"""Files of judgements, the vote of several judgements, and `assay evaluate --votes`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest

from assay.claims.spct_grm import biased
from assay.cli.main import main
from assay.core.errors import AssayError
from assay.core.record import Draw, PolicyFault, Score
from assay.rollouts.text import Conversation, Message
from assay.runs.catalogue import find_task
from assay.tasks.language.items import Item
from assay.tasks.language.judging import judging, ranked
from assay.tasks.language.sorting import sorting
from assay.tasks.language.votes import Vote, reordered

PROBS = (0.15, 0.17, 0.20, 0.26, 0.22)
"""Of the score of the better response minus that of the other being -2, -1, 0, 1, 2."""
ITEM = Item("which? <b> or <aa> or <c>, or b?", "2", "", {"responses": ["b", "aa", "c"]})


def written(path: Path, rows: Sequence[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows_of(count: int) -> list[dict[str, object]]:
    """Pairs of numbers of which the larger one is better."""
    numbers = [(k, k + 3) if k % 2 else (k + 3, k) for k in range(count)]
    return [
        {"prompt": f"{a} or {b}?", "responses": [str(a), str(b)], "best": 1 + (b > a), "id": k}
        for k, (a, b) in enumerate(numbers)
    ]


# ---------------------------------------------------------------------------------------------------- the vote
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


def test_a_vote_needs_the_responses_apart() -> None:
    with pytest.raises(AssayError, match="Use a task whose fact `responses` lists them"):
        Vote(2).choices(sorting(3), biased, [0], Draw(0))


def test_a_judge_of_the_first_place_alone_is_right_by_chance_and_a_judge_of_words_always() -> None:
    """Were responses not shuffled, or scores not mapped back, the first would follow the labels."""
    task, starts = judging(), list(range(64))
    best = np.array([int(item.answer) for item in task.items_of(np.asarray(starts), 1)])

    def first(prompts: Sequence[str], begun: np.ndarray, sample: np.ndarray) -> list[str]:
        return ["9,1"] * len(prompts)

    def words(prompts: Sequence[str], begun: np.ndarray, sample: np.ndarray) -> list[str]:
        counts = [[sum(step in "bdf" for step in one) for one in prompt[:-1].split("|")] for prompt in prompts]
        return [f"so:{5 - a},{5 - b}" for a, b in counts]

    assert 0.3 < (np.array(Vote(1).choices(task, first, starts, Draw(3))) == best).mean() < 0.7
    assert (np.array(Vote(3).choices(task, words, starts, Draw(3))) == best).all()


def test_only_the_responses_change_places() -> None:
    assert reordered(ITEM, [1, 2, 0]) == "which? <aa> or <c> or <b>, or b?"
    assert reordered(ITEM, [0, 1, 2]) == ITEM.prompt


def test_messages_stay_messages() -> None:
    told = Conversation([Message("system", "judge b"), Message("user", "A: b, B: c")])
    found = reordered(Item(told, "1", "", {"responses": ["judge b", "c"]}), [1, 0])
    assert isinstance(found, Conversation)
    assert found.messages == (Message("system", "c"), Message("user", "A: b, B: judge b"))


def test_a_response_that_the_prompt_does_not_show_is_named() -> None:
    with pytest.raises(AssayError, match="does not show the response 'zz'"):
        reordered(Item("a, b", "1", "", {"responses": ["a", "zz"]}), [1, 0])


# ---------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize(
    ("said", "worth"),
    [("1,7,3", 1.0), ("x:1,7,3", 1.0), ("7,7,3", 0.5), ("7,7,7", 1 / 3), ("7,1,3", 0.0), ("1,7", None), ("no", None)],
)
def test_the_best_alone_must_have_the_highest_score(said: str, worth: float | None) -> None:
    found = ranked(ITEM, said)
    assert isinstance(found, PolicyFault) if worth is None else found == Score(worth)


def test_a_file_of_judgements_is_scored_by_rank(tmp_path: Path) -> None:
    task = find_task(written(tmp_path / "judged.jsonl", rows_of(40)))
    item = task.items.item(0, 0)
    better = item.facts["responses"][int(item.answer) - 1]
    assert better == max(item.facts["responses"], key=int)
    assert task.items.verify(item, item.demonstration) == Score(1.0)
    assert task.items.verify(item, ",".join(reversed(item.demonstration.split(",")))) == Score(0.0)
    assert [task.items.stated(said) for said in ("7,3", "3,7", "5,5", "no")] == ["1", "2", None, None]


def test_a_field_best_beside_an_answer_is_a_fact_as_before(tmp_path: Path) -> None:
    rows = [{"prompt": f"{k}?", "responses": ["a", "b"], "best": 1, "answer": "yes"} for k in range(4)]
    assert not find_task(written(tmp_path / "plain.jsonl", rows)).items.judged


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a or b?", "responses": ["a", "b"], "best": 3}, "line 1: 'best' is 3. It must be .* 1 to 2"),
        ({"prompt": "a or b?", "responses": ["a", "b"], "best": 0}, "line 1: 'best' is 0"),
        ({"prompt": "a?", "responses": ["a"], "best": 1}, "line 1: 'responses' must be a list of at least two texts"),
        ({"prompt": "a?", "responses": "ab", "best": 1}, "line 1: 'responses' must be a list of at least two texts"),
    ],
)
def test_an_unusable_row_is_named(tmp_path: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(AssayError, match=message):
        find_task(written(tmp_path / "bad.jsonl", [row]))


def test_judgements_and_answers_do_not_mix(tmp_path: Path) -> None:
    judged = written(tmp_path / "judged.jsonl", rows_of(4))
    plain = written(tmp_path / "plain.jsonl", [{"prompt": "6?", "answer": "x"}])
    with pytest.raises(AssayError, match="Use one kind"):
        find_task(f"{judged},{plain}")


# ---------------------------------------------------------------------------------------------------- the command
def test_a_judge_is_trained_on_a_file_and_votes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, out = written(tmp_path / "judged.jsonl", rows_of(60)), tmp_path / "run"
    small = ["--set", "actor.width=32", "--set", "actor.layers=1", "--set", "num_starts=4", "--max-tokens", "6"]
    small += ["--steps", "1", "--warmup", "150"]
    assert main(["train", "spct-grm", "--task", task, "--out", str(out), *small]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(out), "--votes", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert 0.0 <= facts["vote@3"]["low"] <= facts["vote@3"]["value"] <= facts["vote@3"]["high"] <= 1.0
    assert facts["vote@3"]["count"] == facts["count"]
    assert 0.0 < facts["readable"] <= 1.0
    assert main(["evaluate", str(out), "--votes", "3", "--greedy"]) == 2
    assert "--greedy always gives the same answer" in capsys.readouterr().err
    assert main(["evaluate", str(out), "--votes", "1", "--starts", "1", "--temperature", "100"]) == 2
    assert "has scores such as 7,3" in capsys.readouterr().err
