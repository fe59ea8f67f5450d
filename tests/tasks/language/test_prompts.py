"""Tokenizers, items and their splits, the prompt task from play to judge, and files of prompts and of pairs."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, InfraFault, Origin, Outcome, PolicyFault, Score, pad
from assay.core.slots import DemonstratedTask, Task
from assay.core.spaces import Vocabulary
from assay.rollouts import text
from assay.rollouts.text import ALPHABET, ByteTokenizer, CharacterTokenizer, escaped
from assay.tasks.language import addition, countdown, sorting
from assay.tasks.language.items import Item, generated_item
from assay.tasks.language.preferences import PairsTask, preferences
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import textfile

LEVELS = {**addition.LEVELS, **countdown.LEVELS, **sorting.LEVELS}
EVERY_LEVEL = pytest.mark.parametrize("task", [pytest.param(make(), id=name) for name, make in LEVELS.items()])


# ---------------------------------------------------------------------------------------------------- tokenizers
@given(st.text(alphabet=ALPHABET))
def test_characters_go_there_and_back(written: str) -> None:
    ids = CharacterTokenizer().encode(written)
    assert CharacterTokenizer().decode(ids) == written
    assert CharacterTokenizer().decode([1, *ids, 2, 0, 0]) == written
    assert all(3 <= index < 64 for index in ids)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_bytes_go_there_and_back(written: str) -> None:
    ids = ByteTokenizer().encode(written)
    assert ByteTokenizer().decode(ids) == written
    assert ByteTokenizer().decode([1, *ids, 2, 0, 0]) == written
    assert all(3 <= index < 259 for index in ids)


@given(st.lists(st.integers(0, 400)))
def test_any_ids_can_be_read(ids: list[int]) -> None:
    for tokenizer in (CharacterTokenizer(), ByteTokenizer()):
        assert isinstance(tokenizer.decode(ids), str)
        assert isinstance(text.readable(tokenizer, ids), str)


def test_the_alphabet_is_fixed() -> None:
    assert len(ALPHABET) == len(set(ALPHABET)) == 61
    assert CharacterTokenizer().vocabulary == Vocabulary(64, pad=0, bos=1, eos=2)
    assert CharacterTokenizer().encode("12+345=") == [4, 5, 13, 6, 7, 8, 17]
    assert ByteTokenizer().encode("é") == [198, 172]


def test_an_unknown_character_is_named() -> None:
    with pytest.raises(ValueError, match=r"lacks the character '\\xe9'"):
        CharacterTokenizer().encode("caf\xe9")


def test_no_special_token_hides_inside_an_answer() -> None:
    tokenizer = CharacterTokenizer()
    three, five, seven = tokenizer.encode("357")
    assert text.readable(tokenizer, [three, five, seven, 2]) == "357"
    assert text.readable(tokenizer, [three, 0, five, seven, 2]) == "3\N{REPLACEMENT CHARACTER}57"
    assert text.readable(tokenizer, [1, three, 2, five]) == "\N{REPLACEMENT CHARACTER}3\N{REPLACEMENT CHARACTER}5"
    assert text.readable(tokenizer, []) == text.readable(tokenizer, [2]) == ""


def test_text_is_shown_without_control_characters() -> None:
    assert escaped("a\x1b[31mb\0c\nd\u202e") == r"a\x1b[31mb\x00c\nd\u202e"
    assert escaped("\ud800") == r"\ud800"
    assert escaped("héllo ×") == "héllo ×"
    assert escaped("a" * 5000, 10) == "a" * 10 + "... (4990 more characters)"


# ---------------------------------------------------------------------------------------------------- items
@EVERY_LEVEL
def test_no_problem_is_in_both_splits(task: PromptTask) -> None:
    seen: list[set[str]] = [set(), set()]
    for split in (0, 1):
        for ordinal in range(2000 if split == 0 else 400):
            item = task.items.item(ordinal, split)
            parts = sorted(re.findall("[0-9]+|[a-z]", item.prompt))
            seen[split].add(f"{parts} {item.answer}")
    assert not seen[0] & seen[1]


@pytest.mark.parametrize("level", [1, 2])
def test_about_a_tenth_of_all_problems_is_held_out(level: int) -> None:
    numbers = range(10**level)
    contents = [f"{a}+{b}" for a in numbers for b in numbers if a <= b]
    share = sum(text.is_held_out(content, 0.1) for content in contents) / len(contents)
    assert 0.04 < share < 0.16
    assert text.is_held_out("any", 1.0)
    assert not text.is_held_out("any", 0.0)


@EVERY_LEVEL
def test_an_item_is_a_function_of_its_number(task: PromptTask) -> None:
    some = [task.items.item(ordinal, split) for ordinal in range(20) for split in (0, 1)]
    generated_item.cache_clear()
    again = [task.items.item(ordinal, split) for ordinal in reversed(range(20)) for split in (1, 0)]
    assert some == again[::-1]
    assert len({item.prompt for item in some}) > 10


def test_items_are_the_same_in_every_process() -> None:
    program = (
        "from assay.tasks.language import addition, countdown, sorting\n"
        "makes = {**addition.LEVELS, **countdown.LEVELS, **sorting.LEVELS}\n"
        "print([make().items.item(i, s) for make in makes.values() for i in range(5) for s in (0, 1)])"
    )
    root = Path(__file__).parents[3]
    other_hashes = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(root)}
    there = subprocess.check_output([sys.executable, "-c", program], env=other_hashes, text=True)
    here = [make().items.item(i, s) for make in LEVELS.values() for i in range(5) for s in (0, 1)]
    assert there == f"{here}\n"


def test_the_first_items_stay_as_they_are() -> None:
    assert [addition.addition(2).items.item(i, 0).prompt for i in range(3)] == ["16+20=", "60+41=", "98+9="]
    assert [sorting.sorting(3).items.item(i, 0).prompt for i in range(3)] == ["gyj=", "wxy=", "ezj="]
    assert countdown.countdown(3).items.item(2, 0) == Item(
        "18,10,16:8=", "8", "10-(18-16)", {"numbers": (18, 10, 16), "target": 8}
    )


@dataclass(frozen=True)
class OneItem:
    """A family that is too small to be split."""

    num_words: int = 1

    def propose(self, words: Sequence[int]) -> tuple[str, Item]:
        """Always the same."""
        return "one", Item("1+1=", "2", "2")


def test_a_family_that_is_too_small_says_so() -> None:
    there = int(text.is_held_out("one", 0.1))
    assert generated_item(OneItem(), 0, there).answer == "2"
    with pytest.raises(AssayError, match=f"too few items.*split {1 - there}"):
        generated_item(OneItem(), 0, 1 - there)
    with pytest.raises(AssayError, match="split is 2"):
        addition.addition().items.item(0, 2)


# ---------------------------------------------------------------------------------------------------- the task
class Scribe:
    """An actor that writes the texts it was given, one for each distinct prompt in the order of the starts."""

    def __init__(self, tokenizer: text.Tokenizer, texts: Sequence[str]) -> None:
        self.tokenizer, self.texts = tokenizer, texts

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> Scribe:
        """Rows that decode together."""
        assert len(prompts) == len(self.texts)
        assert all(prompt[0] == self.tokenizer.vocabulary.bos for prompt in prompts)
        eos = self.tokenizer.vocabulary.eos
        rows = [[*self.tokenizer.encode(written), *[eos] * num_new] for written in self.texts]
        self.rows = torch.tensor([row[:num_new] for row in rows])[np.repeat(np.arange(len(rows)), repeats)]
        self.time = 0
        return self

    def logits(self) -> Tensor:
        """All mass on the next letter."""
        size = self.tokenizer.vocabulary.size
        return torch.nn.functional.one_hot(self.rows[:, self.time], size).float() * 1000.0

    def push(self, tokens: Tensor) -> None:
        """One letter on."""
        self.time += 1

    def keep(self, rows: Tensor) -> None:
        """Goes on with these rows."""
        self.rows = self.rows[rows]


def played(task: PromptTask, texts: Sequence[str], samples: int = 1, split: int = 0) -> Experience:
    """Completions with these texts for the starts 0, 1, 2, ..."""
    starts, sample = np.repeat(np.arange(len(texts)), samples), np.tile(np.arange(samples), len(texts))
    return task.play(Scribe(task.tokenizer, texts), starts, sample, Draw(0), split=split, greedy=False)


@EVERY_LEVEL
def test_what_is_played_well_is_judged_well(task: PromptTask) -> None:
    right = [task.items.item(ordinal, 1).demonstration for ordinal in range(8)]
    judged = task.judge(played(task, right, samples=3, split=1), 1)
    assert judged.column("score").tolist() == [1.0] * 24
    assert judged.reward.sum(1).tolist() == [1.0] * 24
    assert (judged.reward.bool() == judged.terminal).all()
    assert not judged.truncated.any()
    assert judged.num_columns <= task.spec.horizon
    assert not judged.column("policy_fault").any()
    assert not judged.column("infra_fault").any()
    wrong = task.judge(played(task, ["1" if right[0] != "1" else "2", *right[1:]]), 0)
    assert wrong.column("score")[0] == 0.0


def test_the_outcome_sits_on_the_last_decision_alone() -> None:
    task = addition.addition()
    judged = task.judge(played(task, ["36", "1", "107"]), 0)
    assert [task.items.item(i, 0).answer for i in range(3)] == ["36", "101", "107"]
    assert judged.column("score").tolist() == [1.0, 0.0, 1.0]
    # "16+20=" is 7 tokens with bos, "36" and eos 3 more; "98+9=" is 6 and 4.
    assert judged.reward.nonzero().tolist() == [[0, 9], [2, 9]]
    assert torch.equal(task.judge(judged, 0).reward, judged.reward)


def test_a_cut_completion_is_judged_like_any_other() -> None:
    task = addition.addition()
    judged = task.judge(played(task, ["3600", "101", "107"]), 0)
    assert judged.column("score").tolist() == [0.0, 1.0, 1.0]
    assert judged.truncated.any(1).tolist() == [True, False, False]
    assert task.describe(judged, 0)["cut"] is True
    assert task.describe(judged, 1)["cut"] is False


def test_judging_rows_in_another_order_or_with_more_padding_changes_nothing() -> None:
    task = countdown.countdown()
    record = played(task, ["1+2", *[task.items.item(i, 0).demonstration for i in range(1, 6)]])
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    judged = task.judge(record, 0)
    assert torch.equal(task.judge(record.rows(order), 0).reward, judged.reward[order])
    wider = task.judge(pad(record, record.num_columns + 5), 0)
    assert torch.equal(wider.reward[:, : record.num_columns], judged.reward)
    assert not wider.reward[:, record.num_columns :].any()
    assert not record.reward.any()


def test_a_row_without_decisions_is_worth_nothing() -> None:
    task = addition.addition()
    record = played(task, ["36", "101"])
    mask = record.mask.clone()
    mask[0] = False
    judged = task.judge(replace(record, mask=mask), 0)
    assert judged.reward.sum(1).tolist() == [0.0, 1.0]


@dataclass(frozen=True)
class Broken:
    """A verifier that gives back whatever it is told to."""

    result: Any

    def item(self, ordinal: int, split: int) -> Item:
        """The same for all."""
        return Item("1+1=", "2", "2")

    def verify(self, item: Item, completion: str) -> Outcome:
        """What it was told."""
        return self.result(completion) if callable(self.result) else self.result


def broken(result: Any) -> PromptTask:
    """A task with a verifier that does this."""
    return PromptTask("broken", Broken(result), CharacterTokenizer(), max_prompt=5, max_tokens=3)


def test_an_infrastructure_fault_is_masked_and_counted_and_never_a_number() -> None:
    def verify(completion: str) -> Outcome:
        return {"1": InfraFault("sandbox"), "2": Score(1.0)}.get(completion, PolicyFault("late", -0.5))

    task = broken(verify)
    judged = task.judge(played(task, ["1", "2", "3"]), 0)
    assert judged.mask.any(1).tolist() == [False, True, True]
    assert judged.reward.sum(1).tolist() == [0.0, 1.0, -0.5]
    assert judged.column("infra_fault").tolist() == [True, False, False]
    assert judged.column("policy_fault").tolist() == [False, False, True]


def divide_by_zero(completion: str) -> Outcome:
    """Raises."""
    return Score(1 / 0)


NO_OUTCOMES = [None, 1.0, True, "1", [Score(1.0)], Score(float("nan")), Score(float("-inf")), divide_by_zero]


@pytest.mark.parametrize("result", NO_OUTCOMES)
def test_a_verifier_that_breaks_its_contract_is_named_with_the_row(result: Any) -> None:
    task = broken(result)
    with pytest.raises(AssayError, match=r"task broken, row 0: Broken\.verify"):
        task.judge(played(task, ["1", "2"]), 0)


def test_the_batch_verifier_wants_one_item_for_each_completion() -> None:
    task = addition.addition()
    items = task.items_of(np.arange(2), 0)
    assert task.verify([i.prompt for i in items], ["36", "no"], items) == [Score(1.0), Score(0.0)]
    with pytest.raises(ValueError, match="zip"):
        task.verify(["", ""], ["36"], items)


@EVERY_LEVEL
def test_demonstrations_are_experience_of_the_dataset(task: PromptTask) -> None:
    shown = task.demonstrate(np.array([4, 9, 2]), 0)
    assert len(shown) == 3
    assert shown.num_columns <= task.spec.horizon
    assert shown.source is not None
    assert shown.source.tolist() == [Origin.DATASET] * 3
    assert shown.column("start").tolist() == [4, 9, 2]
    assert shown.reward.sum(1).tolist() == [1.0] * 3
    assert not shown.logp.any()
    for row, ordinal in enumerate([4, 9, 2]):
        item = task.items.item(ordinal, 0)
        tokens = shown.action[row]
        assert task.tokenizer.decode(tokens[shown.mask[row]].tolist()) == item.demonstration
        assert task.tokenizer.decode(tokens[~shown.mask[row]].tolist()) == item.prompt
        assert tokens[shown.terminal[row]].tolist() == [task.tokenizer.vocabulary.eos]
        assert int(tokens[0]) == task.tokenizer.vocabulary.bos
        assert int(shown.context["valid"][row].sum()) == len(item.prompt) + len(item.demonstration) + 2
    assert torch.equal(task.judge(shown, 0).reward, shown.reward)


def test_demonstrations_have_the_layout_of_what_is_played() -> None:
    task = countdown.countdown()
    shown = task.demonstrate(np.arange(4), 0)
    record = played(task, [task.items.item(i, 0).demonstration for i in range(4)])
    for name in ("action", "mask", "terminal", "truncated", "group"):
        assert torch.equal(getattr(shown, name), getattr(record, name))
    for name in ("tokens", "valid"):
        assert torch.equal(shown.context[name], record.context[name])


def test_a_description_is_safe_to_print() -> None:
    task = PromptTask("bytes", Broken(Score(0.0)), ByteTokenizer(), max_prompt=5, max_tokens=12)
    judged = task.judge(played(task, ["\x1b[2J\0\n"]), 0)
    assert task.describe(judged, 0) == {
        "prompt": "1+1=",
        "completion": r"\x1b[2J\x00\n",
        "answer": "2",
        "reward": 0.0,
        "cut": False,
        "fault": None,
    }


def test_a_description_remembers_its_split_and_names_the_fault() -> None:
    task = countdown.countdown()
    judged = task.judge(played(task, ["1+", "1"], split=1), 1)
    assert task.describe(judged, 1)["prompt"] == task.items.item(1, 1).prompt
    assert task.describe(judged, 0)["fault"] == "ends where a number is expected"


def test_what_does_not_fit_is_refused() -> None:
    task = addition.addition()
    with pytest.raises(AssayError, match=r"'16\+20=' has 7 tokens, but max_prompt is 4"):
        played(replace(task, max_prompt=4), ["36"])
    with pytest.raises(AssayError, match="'36' has 3 tokens, but max_tokens is 2"):
        replace(task, max_tokens=2).demonstrate(np.arange(1), 0)


@EVERY_LEVEL
def test_a_task_is_a_value_of_its_slot(task: PromptTask) -> None:
    assert isinstance(task, Task)
    assert isinstance(task, DemonstratedTask)
    assert pickle.loads(pickle.dumps(task)) == task
    assert task.name in LEVELS
    assert LEVELS[task.name]() == task
    assert task.spec.action == task.spec.observation == Vocabulary(64, 0, 1, 2)


def test_judging_256_completions_takes_milliseconds() -> None:
    task = sorting.sorting(63)
    record = task.demonstrate(np.arange(256), 0)
    best = min(timed(lambda: task.judge(record, 0)) for _ in range(5))
    assert best < 0.05


def timed(work: Callable[[], object]) -> float:
    """Seconds of this thread's own time."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


# ---------------------------------------------------------------------------------------------------- files
def written_to(folder: Path, rows: Sequence[object]) -> str:
    """A JSON-lines file."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


SUMS = [{"id": n, "prompt": f"{n} and {n} make", "answer": f"We add.\n#### {2 * n}"} for n in range(1, 101)]
PAIRS = [{"prompt": f"say {n}", "chosen": f"{n}", "rejected": f"no {n}"} for n in range(100)]


def test_a_file_of_prompts_is_a_task(tmp_path: Path) -> None:
    task = textfile(written_to(tmp_path, SUMS))
    assert task.name == "rows"
    assert task.tokenizer.vocabulary.size == 259
    assert task.spec.horizon == len("100 and 100 make") + 1 + 256
    items = [[task.items.item(i, split) for i in range(100)] for split in (0, 1)]
    prompts = [{item.prompt for item in side} for side in items]
    assert not prompts[0] & prompts[1]
    assert len(prompts[0]) + len(prompts[1]) == 100
    assert 2 <= len(prompts[1]) <= 20
    for item in items[0] + items[1]:
        assert task.items.verify(item, item.demonstration) == Score(1.0)
        assert task.items.verify(item, item.answer) == Score(1.0)
        assert task.items.verify(item, f"{item.answer}.00") == Score(1.0)
        assert task.items.verify(item, f"#### {item.answer} or 3") == Score(0.0)
        assert task.items.verify(item, f"#### 3\n#### {item.answer}") == PolicyFault("several final answers")
        assert task.items.verify(item, f"perhaps {item.answer}") == Score(1.0)  # worked numbers: the last one counts
        assert task.items.verify(item, f"#### 3 or {item.answer}") == Score(0.0)
        assert task.items.verify(item, "perhaps") == PolicyFault("no number")
        assert task.items.verify(item, " ") == PolicyFault("no answer")
    shown = task.demonstrate(np.arange(3), 0)
    assert torch.equal(task.judge(shown, 0).reward, shown.reward)


def test_the_split_of_a_file_depends_on_the_seed_alone(tmp_path: Path) -> None:
    def held_out(rows: Sequence[object], seed: int) -> set[str]:
        items = textfile(written_to(tmp_path, rows), seed=seed).items
        return {items.item(i, 1).prompt for i in range(100)}

    assert held_out(SUMS, 0) == held_out(SUMS[::-1], 0)
    assert held_out(SUMS, 0) != held_out(SUMS, 1)
    assert held_out(SUMS[:50], 0) <= held_out(SUMS, 0)


def test_a_changed_file_is_another_task(tmp_path: Path) -> None:
    one = textfile(written_to(tmp_path, SUMS))
    assert textfile(written_to(tmp_path, SUMS)) == one
    assert pickle.loads(pickle.dumps(one)).items.item(5, 0) == one.items.item(5, 0)
    assert textfile(written_to(tmp_path, SUMS[:-1])) != one


def test_a_file_of_one_row(tmp_path: Path) -> None:
    path = written_to(tmp_path, SUMS[:1])
    assert textfile(path, held_out=0.0).items.item(7, 0).answer == "2"
    with pytest.raises(AssayError, match="has no held-out row"):
        textfile(path, held_out=0.0).items.item(0, 1)


UNUSABLE = [
    (b"", "has no rows"),
    (b"\n \n\t\n", "has no rows"),
    (b'{"prompt": "a", "answer": "b"}\n{"prompt": "a"', "line 2 is not JSON"),
    (b'{"prompt": "a", "answer": "b"}\n\n["a"]', r"line 3 is not a JSON object but \[\"a\"\]"),
    (b"null", "line 1 is not a JSON object but null"),
    (b"[" * 100000, "line 1 is not JSON"),
    (b'{"prompt": "a", "answer": ' + b"9" * 10000 + b"}", "line 1 is not JSON"),
    (b'{"promt": "a", "answer": "b"}', r"no field 'prompt' \(it has: promt, answer\). Did you mean 'promt'\?"),
    (b'{"\\u001b[2J": "a", "answer": "b"}', r"no field 'prompt' \(it has: \\x1b\[2J, answer\)"),
    (b'{"prompt": null, "answer": "b"}', "line 1: 'prompt' is null. It must be text or a number"),
    (b'{"prompt": "a", "answer": NaN}', "line 1: 'answer' is NaN"),
    (b'{"prompt": "a", "answer": true}', "line 1: 'answer' is true"),
    (b'{"prompt": "a", "answer": []}', "line 1: 'answer' is an empty list"),
    (b'{"prompt": " ", "answer": "b"}', "line 1: 'prompt' is empty"),
    (b'{"prompt": "a", "answer": "b ####"}', "line 1: 'answer' must have one text after '####'"),
    (b'{"prompt": "a", "answer": "#### b #### c"}', "line 1: 'answer' must have one text after '####'"),
    (b'{"prompt": "a", "answer": "\\ud800"}', "line 1: 'answer' has half of a surrogate pair"),
    (b'{"prompt": "\xe9", "answer": "b"}', "line 1 is not UTF-8"),
    ('{"prompt": "a", "answer": "b"}'.encode("utf-16"), "line 1 is not UTF-8"),
    (b'{"id": 7, "prompt": "a", "answer": "b"}\n' * 2, "line 2: the id 7 is also that of .*line 1"),
    (b'{"answer": "b", "prompt": "' + b"a" * (1 << 17) + b'"}', "line 1: prompt 'a.* tokens, but max_prompt is 131072"),
    (b"a" * (17 << 20), "line 1 is longer than 16777216 bytes"),
]


@pytest.mark.parametrize(("content", "message"), UNUSABLE, ids=range(len(UNUSABLE)))
def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(AssayError, match=message):
        textfile(str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(AssayError, match="there is no file"):
            textfile(str(path))


def test_a_byte_order_mark_numbers_and_other_columns_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = '\ufeff{"question": "two", "answer": 2}\r\n{"question": "é\u202e", "answer": 2.5}\n'
    path.write_bytes(rows.encode("utf-8"))
    task = textfile(str(path), columns=("question", "answer"), held_out=0.0)
    assert [task.items.item(i, 0) for i in range(2)] == [Item("two", "2", "2"), Item("é\u202e", "2.5", "2.5")]
    judged = task.judge(played(task, ["2", "2"]), 0)
    assert task.describe(judged, 1)["prompt"] == r"é\u202e"


def test_answers_inside_their_prompts_are_counted(tmp_path: Path) -> None:
    rows = [
        {"prompt": "What is 6*7? Hint: 42.", "answer": "42"},
        {"prompt": "What is 6*7? Not 421.", "answer": "42"},
        {"prompt": "What is 6*7?", "answer": "42"},
    ]
    with pytest.warns(UserWarning, match="in 1 of 3 rows the prompt contains the answer"):
        textfile(written_to(tmp_path, rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        textfile(written_to(tmp_path, rows[1:]))


def test_any_tokenizer_will_do_and_what_it_cannot_write_is_named(tmp_path: Path) -> None:
    path = written_to(tmp_path, [{"prompt": "one plus one is", "answer": "two"}, {"prompt": "One", "answer": "1"}])
    with pytest.raises(AssayError, match=r"line 2: the alphabet .* lacks the character 'O'"):
        textfile(path, tokenizer=CharacterTokenizer())
    small = textfile(written_to(tmp_path, [{"prompt": "one", "answer": "1"}]), tokenizer=CharacterTokenizer())
    assert small.spec.action == Vocabulary(64, 0, 1, 2)


# ---------------------------------------------------------------------------------------------------- pairs
def test_pairs_stand_next_to_each_other(tmp_path: Path) -> None:
    task = preferences(written_to(tmp_path, PAIRS))
    assert isinstance(task, PairsTask)
    assert isinstance(task, DemonstratedTask)
    record = task.pairs(np.array([5, 2]), 0)
    assert len(record) == 4
    assert record.group is not None
    assert record.source is not None
    assert record.group.tolist() == [5, 5, 2, 2]
    assert record.column("chosen").tolist() == [1.0, -1.0, 1.0, -1.0]
    assert record.column("sample").tolist() == [0, 1, 0, 1]
    assert record.source.tolist() == [Origin.DATASET] * 4
    assert record.reward.sum(1).tolist() == [1.0, 0.0, 1.0, 0.0]
    assert not record.logp.any()
    number = task.prompts.items.item(5, 0).answer
    decided = [task.prompts.tokenizer.decode(record.action[row][record.mask[row]].tolist()) for row in range(2)]
    assert decided == [number, f"no {number}"]
    assert record.terminal.sum(1).tolist() == [1, 1, 1, 1]
    assert task.describe(record, 1)["completion"] == f"no {number}"
    shown = task.demonstrate(np.array([5, 2]), 0)
    assert torch.equal(shown.action, record.action[::2, : shown.num_columns])


def test_pairs_of_the_splits_differ_and_nobody_judges(tmp_path: Path) -> None:
    task = preferences(written_to(tmp_path, PAIRS))
    prompts = [{item.prompt for item in task.prompts.items_of(np.arange(100), split)} for split in (0, 1)]
    assert not prompts[0] & prompts[1]
    with pytest.raises(AssayError, match="no verifier"):
        task.judge(task.pairs(np.arange(2), 0), 0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "chosen": "b"}, "no field 'rejected'"),
        ({"prompt": "a", "choosen": "b", "rejected": "c"}, "Did you mean 'choosen'"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "'chosen' and 'rejected' are equal"),
        ({"chosen": "b", "rejected": "c"}, "no field 'prompt'"),
    ],
)
def test_pairs_that_cannot_be_used_are_refused(tmp_path: Path, row: dict[str, str], message: str) -> None:
    with pytest.raises(AssayError, match=message):
        preferences(written_to(tmp_path, [row]))
