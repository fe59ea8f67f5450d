"""Files of prompts, conversations and pairs: what they mean, their order, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.core.errors import AssayError, DataWarning
from assay.core.record import Draw
from assay.engine.loop import Loop
from assay.rollouts.text import Conversation, Message
from assay.runs import catalogue
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.plan import make_plan
from assay.runs.resolved import anchored
from assay.runs.run import execute, resume
from assay.runs.signals import Stopped
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import Files, TextFile

USER, SYSTEM = {"role": "user", "content": "1+1="}, {"role": "system", "content": "Add."}
SAID = {"role": "assistant", "content": "so it is #### 2"}
TURNS = [USER, {"role": "assistant", "content": "no"}, USER, SAID]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def sums(path: Path, number: int, word: str = "after", **more: Any) -> str:
    return written(path, [{"prompt": f"{word} {k}", "answer": f"n{k + 1}", **more} for k in range(number)])


def first(path: str) -> Any:
    task: Any = catalogue.find_task(path)
    return task.items.rows[0] if isinstance(task, PromptTask) else task.prompts.items.rows[0]


def test_a_row_may_list_several_right_answers(tmp_path: Path) -> None:
    rows = [{"prompt": f"half of {k}", "answer": [f"{k / 2}", f"{k}/2", "x #### one half"]} for k in range(20)]
    task: Any = catalogue.find_task(written(tmp_path / "a.jsonl", rows))
    item = next(one for one in task.items.rows if one.prompt == "half of 3")
    said = {"1.5": 1.0, "3/2": 1.0, "1.50": 1.0, "one half": 1.0, "3": 0.0, "1.5 3/2": 0.0}
    assert {text: task.items.verify(item, text).value for text in said} == said
    assert (item.answer, item.demonstration) == ("1.5", "1.5")


def test_a_solution_beside_the_answer_is_the_demonstration_and_verifies(tmp_path: Path) -> None:
    rows = [{"problem": f"after {k}?", "solution": f"add 1 to {k}", "answer": str(k + 1)} for k in range(18)]
    rows += [{"problem": "2 + 2?", "solution": "two pairs\n#### 4", "answer": "4"}]
    rows += [{"problem": "2 + 3?", "solution": "facts of a row", "answer": "by hand\n#### 5"}]
    task: Any = catalogue.find_task(written(tmp_path / "a.jsonl", rows))
    shown = {one.prompt: (one.answer, one.demonstration) for one in task.items.rows}
    assert shown["after 3?"] == ("4", "add 1 to 3\n#### 4")
    assert shown["2 + 2?"] == ("4", "two pairs\n#### 4")
    assert shown["2 + 3?"] == ("5", "by hand\n#### 5")
    assert {task.items.verify(one, one.demonstration).value for one in task.items.rows} == {1.0}
    assert task.items.rows[3].facts["solution"] == "add 1 to 3"


# ---------------------------------------------------------------------------------------------------- conversations
@pytest.mark.parametrize(
    ("row", "messages", "answer", "demonstration"),
    [
        ({"messages": [USER, SAID]}, ["user"], "2", SAID["content"]),
        ({"messages": [SYSTEM, USER, SAID]}, ["system", "user"], "2", SAID["content"]),
        ({"messages": [SYSTEM, USER], "answer": "2"}, ["system", "user"], "2", "2"),
        ({"messages": [USER, SAID], "answer": "two"}, ["user"], "two", SAID["content"]),
        ({"messages": TURNS}, ["user", "assistant", "user"], "2", SAID["content"]),
        ({"prompt": [SYSTEM, USER], "answer": "2"}, ["system", "user"], "2", "2"),
    ],
)
def test_messages_are_a_prompt_and_an_answer(
    tmp_path: Path, row: dict[str, Any], messages: list[str], answer: str, demonstration: str
) -> None:
    item = first(written(tmp_path / "a.jsonl", [row]))
    assert isinstance(item.prompt, Conversation)
    assert [message.role for message in item.prompt.messages] == messages
    assert (item.answer, item.demonstration) == (answer, demonstration)


def test_a_conversation_is_text_for_models_without_a_template() -> None:
    assert Conversation([Message("user", "1+1=")]) == "1+1="
    assert Conversation([Message("system", "Add."), Message("user", "1+1=")]) == "system: Add.\n\nuser: 1+1="


PAIR = {"role": "assistant", "content": "3"}


@pytest.mark.parametrize(
    ("row", "roles"),
    [
        ({"prompt": "1+1=", "chosen": "2", "rejected": "3"}, None),
        ({"chosen": [USER, {**SAID, "content": "2"}], "rejected": [USER, PAIR]}, ["user"]),
        ({"prompt": [SYSTEM, USER], "chosen": [{**SAID, "content": "2"}], "rejected": [PAIR]}, ["system", "user"]),
        ({"prompt": [USER], "chosen": "2", "rejected": "3"}, ["user"]),
    ],
)
def test_pairs_come_in_the_usual_formats(tmp_path: Path, row: dict[str, Any], roles: list[str] | None) -> None:
    item = first(written(tmp_path / "pairs.jsonl", [row]))
    assert (item.demonstration, item.facts["rejected"]) == ("2", "3")
    assert roles is None or [message.role for message in item.prompt.messages] == roles


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [USER]}, "line 1: 'messages' ends with the role 'user'"),
        ({"messages": [SAID]}, "line 1: 'messages' has an answer and no prompt"),
        ({"messages": []}, "line 1: 'messages' is .*must be a list of messages"),
        ({"messages": [{"role": "user", "content": " "}, SAID]}, r"line 1: 'messages\[0\]' is empty"),
        ({"messages": [{"role": "user"}, SAID]}, r"'content' of 'messages\[0\]' is not text"),
        ({"messages": [{"text": "a"}, SAID]}, r"'messages\[0\]' is not a message"),
        ({"messages": [USER, {**SAID, "tool_calls": [1]}]}, r"a call of 'messages\[1\]' is 1. Write"),
        ({"messages": [USER, SAID], "tools": [1]}, "line 1: 'tools' is .*list of objects"),
        ({"prompt": "a", "answer": " "}, "line 1: 'answer' is empty"),
        ({"prompt": "a", "completion": "b", "label": True}, r"no prompt has a good and a bad completion \(1 good, 0"),
        ({"prompt": "a", "completion": "b", "label": "yes"}, "line 1: 'label' is 'yes'. Use true"),
        ({"prompt": "a", "completion": "b", "score": 0.5}, "single completions with a score"),
        ({"chosen": [USER, SAID], "rejected": [SYSTEM, SAID]}, "differ before their last message"),
        ({"prompt": "a", "chosen": [USER, SAID], "rejected": [SAID]}, "2 messages after an explicit 'prompt'"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(AssayError, match=message):
        first(written(tmp_path / "a.jsonl", [row]))


def test_labelled_completions_are_joined_to_pairs(tmp_path: Path) -> None:
    said = [
        ("a", "1", True),
        ("b", "2", False),
        ("a", "3", False),
        ("a", "4", True),
        ("b", "5", True),
        ("c", "6", False),
    ]
    rows = [{"prompt": prompt, "completion": text, "label": label} for prompt, text, label in said]
    with pytest.warns(DataWarning, match="2 of 6 completions have no partner"):
        task = catalogue.find_task(written(tmp_path / "a.jsonl", rows))
    assert isinstance(task, PairsTask)
    items: Any = task.prompts.items
    assert [(item.prompt, item.answer, item.facts["rejected"]) for item in items.rows] == [
        ("a", "1", "3"),
        ("b", "5", "2"),
    ]


# ---------------------------------------------------------------------------------------------------- order
def test_a_pass_takes_every_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    task: Any = catalogue.find_task(sums(tmp_path / "a.jsonl", 30))
    number = task.num_training
    passes = task.order(np.arange(3 * number), Draw(0)).reshape(3, number)
    for place, one in enumerate(passes):
        assert sorted((one % number).tolist()) == list(range(number))
        assert set(one // number) == {place}  # a repetition is a start of its own, so its samples differ
    assert not np.array_equal(passes[0] % number, passes[1] % number)
    assert not np.array_equal(passes[0], task.order(np.arange(number), Draw(1)))
    assert passes.ravel()[7:50].tolist() == task.order(np.arange(7, 50), Draw(0)).tolist()


def test_rows_can_be_taken_in_order(tmp_path: Path) -> None:
    items = catalogue.find_task(sums(tmp_path / "a.jsonl", 30)).items  # type: ignore[attr-defined]
    ordered = TextFile(items.path, items.digest, items.held_out, items.seed, items.rows, in_order=True)
    assert ordered.order(np.arange(80), Draw(0)).tolist() == list(range(80))


def test_weights_are_the_files_shares_of_a_pass(tmp_path: Path) -> None:
    a, b = sums(tmp_path / "a.jsonl", 60), sums(tmp_path / "b.jsonl", 20, "before")
    task: Any = catalogue.find_task(f"{a}=0.25,{b}=0.75,{sums(tmp_path / 'test.jsonl', 5, 'next of')}")
    assert isinstance(task.items, Files)
    assert (task.num_training, task.num_testing, task.source_names) == (80, 5, ("a", "b"))
    starts = task.order(np.arange(160), Draw(0))
    assert len(set(starts.tolist())) == 160
    from_a = np.array([task.source_of(start) == 0 for start in starts.tolist()])
    assert from_a[:80].sum() == from_a[80:].sum() == 20
    taken = starts[from_a] % 80
    assert len(set(taken.tolist())) == 40  # of 60 rows, two passes take 40 different ones
    rows, counts = np.unique(starts[~from_a] % 80, return_counts=True)
    assert (len(rows), set(counts.tolist())) == (20, {6})


def test_words_around_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sums(tmp_path / "a.jsonl", 20)
    sums(tmp_path / "b.jsonl", 20, "before")
    assert anchored("a.jsonl=0.5,b.jsonl=2") == f"{tmp_path}/a.jsonl=0.5,{tmp_path}/b.jsonl=2"
    task: Any = catalogue.find_task("a.jsonl=1,b.jsonl=1")
    assert task.num_training + task.num_testing == 40
    with pytest.raises(AssayError, match=r"the weight of a.jsonl is 'x'"):
        catalogue.find_task("a.jsonl=x,b.jsonl=1")
    with pytest.raises(AssayError, match="does not say what each file is for"):
        catalogue.find_task("a.jsonl,b.jsonl=1")


def test_a_stopped_run_on_a_shuffled_file_resumes_bitwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sums(tmp_path / "a.jsonl", 12, source="x")
    given = {"actor.width": 16, "actor.layers": 1, "actor.heads": 1}
    options = RunOptions(language=LanguageOptions(max_tokens=4, prompts=5, group_size=2))
    plan = make_plan("grpo", path, steps=4, settings=given, warmup=0, options=options)
    whole = execute(plan, tmp_path / "whole")
    step, count = Loop.step, [0]

    def stopping(self: Any) -> Any:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Loop, "step", stopping)
    with pytest.raises(Stopped):
        execute(plan, tmp_path / "half")
    monkeypatch.setattr(Loop, "step", step)
    again = resume(tmp_path / "half")
    for name, value in whole.policy.state_dict().items():
        assert np.array_equal(value.numpy(), again.policy.state_dict()[name].numpy())
    assert "reward_from/x" in whole.curves[-1]


# ---------------------------------------------------------------------------------------------------- sizes
def test_a_large_file_is_read_in_seconds(tmp_path: Path) -> None:
    """20,000 rows of 1 kB here; 150,000 take 7.5 times as long."""
    row = '{"prompt": "%d ' + "word " * 200 + '", "answer": "x%d"}\n'
    (tmp_path / "a.jsonl").write_text("".join(row % (k, k) for k in range(20_000)))
    begin = time.process_time()
    task: Any = catalogue.find_task(str(tmp_path / "a.jsonl"))
    task.order(np.arange(64), Draw(0))
    assert time.process_time() - begin < 4.0
    assert task.num_training + task.num_testing == 20_000


def test_long_prompts_and_the_system_prompt_stand_in_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    from assay.models.pretrained.chat_texts import Framed
    from assay.models.pretrained.transformers import PretrainedTokenizer
    from assay.tasks.adapters.pretrained import ANSWER, with_model
    from tests.models import test_transformers as made

    folder = tmp_path / "qwen"
    made.save_qwen(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    long = {"messages": [SYSTEM, {"role": "user", "content": "word " * 900}, SAID]}
    task: Any = with_model(catalogue.find_task(written(tmp_path / "a.jsonl", [long])), str(folder))
    assert task.max_tokens == ANSWER
    (ids,) = task.begin(np.array([0]), 0).context["tokens"].tolist()
    assert len(ids) > 4000
    tokenizer = PretrainedTokenizer(str(folder))
    whole = "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n1+1=<|im_end|>\n<|im_start|>assistant\n"
    told = [tokenizer.vocabulary.bos, *tokenizer.encode(Framed("1+1=", "Add."))]
    assert told == tokenizer.raw(whole)
    assert told == [
        tokenizer.vocabulary.bos,
        *tokenizer.encode(Framed(Conversation([Message("system", "Add."), Message("user", "1+1=")]), "Other.")),
    ]
    texts = ["1+1=", Framed("1+1=", "Add."), "", made.HOSTILE]
    counts = [len(tokenizer.encode(one)) + isinstance(one, Framed) for one in texts]
    assert tokenizer.lengths(texts) == counts
    with monkeypatch.context() as patch:
        patch.setattr(PretrainedTokenizer, "encode", None)  # only texts that spell a control token need it
        assert tokenizer.lengths(texts[:3]) == counts[:3]
    hostile = tokenizer.encode(Framed(Conversation([Message("system", made.HOSTILE), Message("user", "1")])))
    assert sum(index in tokenizer.control for index in hostile) == len(told[1:]) - sum(
        index not in tokenizer.control for index in told[1:]
    )
    with pytest.raises(AssayError, match=r"a.jsonl, line 1: the prompt has \d+ tokens, and answers have up to 7000"):
        with_model(catalogue.find_task(str(tmp_path / "a.jsonl")), str(folder), max_tokens=7000)
