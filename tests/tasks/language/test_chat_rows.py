"""Chat rows without a template, their formats, and the files and folders they come in."""

from __future__ import annotations

import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.rollouts.text import Conversation, Said
from assay.runs import catalogue
from assay.runs.resolved import anchored
from assay.tasks.language.rows import pair
from assay.tasks.language.sources import json_of_row
from tests.optional import Optional

pyarrow = Optional("pyarrow")
datasets = Optional("datasets")

TURNS = [("user", "hi"), ("assistant", "hello"), ("user", "again"), ("assistant", "fine")]


def chat(*turns: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}


def numbered(number: int) -> list[dict[str, Any]]:
    return [chat(("user", f"q{k}"), ("assistant", f"a{k}")) for k in range(number)]


def first(path: str) -> Any:
    task: Any = catalogue.find_task(path)
    return task.items.rows[0]


def prompts(address: Path | str, split: int = 0) -> list[str]:
    task: Any = catalogue.find_task(str(address))
    return [str(item.prompt) for item in task.items.splits[split]]


# ---------------------------------------------------------------------------------------------------- bytes
def test_without_a_template_replies_are_trained_where_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(chat(*TURNS)) + "\n")
    task: Any = catalogue.find_task(f"{file}")
    split = 0 if task.items.splits[0] else 1
    shown, alone = task.supervise(np.arange(1), split), task.demonstrate(np.arange(1), split)
    assert torch.equal(shown.action, alone.action), "the text is the same, more of it is trained"
    text = bytes(int(token) - 3 if token > 2 else 0 for token in shown.action[0])
    assert text == b"\0user: hi\n\nassistant: hello\n\nuser: againfine\0"
    begin = text.index(b"hello")
    places = [*range(begin, begin + 5), *range(len(text) - 5, len(text))]
    assert shown.mask[0].nonzero()[:, 0].tolist() == places
    assert int(alone.mask.sum()) == 5
    assert shown.terminal.nonzero().tolist() == [[0, len(text) - 1]]
    assert float(shown.column("score")) == 1.0


def test_rows_with_tool_calls_are_text_without_a_template(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": ""},
        {"role": "assistant", "content": "done"},
    ]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": messages}))
    item = first(str(tmp_path / "a.jsonl"))
    called = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert str(item.prompt) == f"user: 1\n2\n\nassistant: {called}\n\ntool: "
    assert item.prompt.messages[1].calls == [{"name": "add", "arguments": {"a": 1}}]
    (tmp_path / "b.jsonl").write_text(json.dumps({"messages": messages[:2]}))
    assert first(str(tmp_path / "b.jsonl")).demonstration == called


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"tool_calls": [{"function": {"name": "add", "arguments": "{"}}]}, r"a call of 'messages\[1\]' is .*Write"),
        ({"tool_calls": [{"function": {"arguments": {}}}]}, r"a call of 'messages\[1\]' is .*Write"),
        ({"tool_calls": "add"}, r"'tool_calls' of 'messages\[1\]' must be a list"),
        ({"content": "x", "train": "yes"}, r"'train' of 'messages\[1\]' is \"yes\". Use true or false"),
        ({"content": [{"type": "image"}]}, r"'content' of 'messages\[1\]' is not text"),
        ({"content": "x", "train": False}, "no reply is marked"),
    ],
)
def test_a_message_that_cannot_be_read_is_named(tmp_path: Path, message: dict[str, Any], error: str) -> None:
    row = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", **message}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(AssayError, match=f"line 1: {error}"):
        first(str(tmp_path / "a.jsonl"))


# ---------------------------------------------------------------------------------------------------- formats
def test_other_names_for_the_same_rows(tmp_path: Path) -> None:
    shared = [{"from": role, "value": text} for role, text in (("human", "hi"), ("gpt", "hello"), ("human", "again"))]
    rows = {
        "sharegpt": {"conversations": [{"from": "system", "value": "s"}, *shared, {"from": "gpt", "value": "fine"}]},
        "alpaca": {"instruction": "add", "input": "1 and 2", "output": "3"},
        "bare": {"instruction": "add", "input": "", "output": "3"},
        "completion": {"prompt": "add", "completion": "3"},
        "message": {"prompt": "add", "completion": [{"role": "assistant", "content": "3"}]},
    }
    found = {}
    for name, row in rows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(row))
        found[name] = first(str(tmp_path / f"{name}.json"))
    item = found["sharegpt"]
    assert isinstance(item.prompt, Conversation)
    assert [message.role for message in item.prompt.messages] == ["system", "user", "assistant", "user"]
    assert [message.trained for message in item.prompt.messages] == [False, False, True, False]
    assert isinstance(item.demonstration, Said)
    said = {name: (str(one.prompt), one.demonstration) for name, one in found.items() if name != "sharegpt"}
    assert said["alpaca"] == ("add\n\n1 and 2", "3")
    assert said["bare"] == said["completion"] == said["message"] == ("add", "3")


def test_headings_in_a_chat_are_no_final_answers(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(chat(("user", "q"), ("assistant", "#### One\nx\n#### Two\ny"))))
    task: Any = catalogue.find_task(str(tmp_path / "a.jsonl"))
    item = task.items.rows[0]
    assert task.items.verify(item, item.demonstration).value == 1.0
    assert task.items.verify(item, "#### One").value == 0.0


# ---------------------------------------------------------------------------------------------------- files
def test_arrays_and_gzip_have_the_same_rows_as_lines(tmp_path: Path) -> None:
    rows = numbered(40)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.json").write_text(json.dumps(rows, indent=1))
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as file:
        file.write(lines)
    with gzip.open(tmp_path / "d.json.gz", "wt") as file:
        file.write(json.dumps(rows))
    expected = prompts(tmp_path / "a.jsonl")
    assert len(expected) > 30
    for name in ("b.json", "c.jsonl.gz", "d.json.gz"):
        assert prompts(tmp_path / name) == expected, name
    (tmp_path / "e.jsonl.gz").write_bytes((tmp_path / "c.jsonl.gz").read_bytes()[:50])
    with pytest.raises(AssayError, match=r"e.jsonl.gz cannot be read .* Is it complete\?"):
        prompts(tmp_path / "e.jsonl.gz")
    (tmp_path / "f.json").write_text("[{},")
    with pytest.raises(AssayError, match="is not a JSON array"):
        prompts(tmp_path / "f.json")


def test_a_csv_file_with_a_header_has_rows_of_texts(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("\ufeffprompt,answer\n" + "".join(f'"q{k}, please",{k}\n' for k in range(40)), encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(
        "".join(json.dumps({"prompt": f"q{k}, please", "answer": str(k)}) + "\n" for k in range(40))
    )
    assert prompts(file) == prompts(tmp_path / "b.jsonl")
    for text, why in {
        "prompt;answer\na;b\n": "Separate the columns by commas",
        "prompt,prompt\na,b\n": "one twice",
        "prompt,answer\na,b,c\n": "row 1 has 3 values and the header 2 names",
        'prompt,answer\n"a': "cannot be read as CSV",
    }.items():
        file.write_text(text)
        with pytest.raises(AssayError, match=why):
            prompts(file)


def test_a_table_s_dates_are_texts_and_bytes_are_refused_by_their_column(tmp_path: Path) -> None:
    file = Path("a.parquet")
    assert json_of_row({"day": date(2020, 1, 2)}, file) == b'{"day": "2020-01-02"}'
    with pytest.raises(AssayError, match=r"a\.parquet: column 'raw' holds bytes"):
        json_of_row({"day": date(2020, 1, 2), "raw": b"x"}, file)


def test_a_pair_of_a_text_and_of_messages_is_refused() -> None:
    chosen = [{"role": "assistant", "content": "a"}]
    with pytest.raises(AssayError, match="Give both in one form"):
        pair({"prompt": "q", "chosen": chosen, "rejected": "b"}, "line 1")


def test_a_folder_names_its_splits(tmp_path: Path) -> None:
    rows = numbered(40)
    for name, some in {"train.jsonl": rows[:30], "test.json": rows[30:35], "validation.json": rows[35:]}.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in some))
    assert prompts(tmp_path) == [f"q{k}" for k in range(30)]
    assert prompts(tmp_path, 1) == [f"q{k}" for k in range(30, 35)]
    assert anchored(str(tmp_path)) == str(tmp_path.resolve())
    weighed = f"{tmp_path}=1,{tmp_path}"
    assert (prompts(weighed), prompts(weighed, 1)) == (prompts(tmp_path), prompts(tmp_path, 1))
    (tmp_path / "train.json").write_text("[]")
    with pytest.raises(AssayError, match=r"has several files of 'train': train\.json, train\.jsonl\. Keep one"):
        prompts(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "test.jsonl").write_text("{}")
    with pytest.raises(AssayError, match=r"is a folder without training rows \(it has: test\). Give a file"):
        prompts(empty)


def test_tables_and_their_pieces(tmp_path: Path) -> None:
    rows = numbered(40)
    rows[0]["messages"][1]["tool_calls"] = [{"function": {"name": "a", "arguments": {"x": 1}}}]
    rows[1]["messages"][1]["tool_calls"] = [{"function": {"name": "b", "arguments": {"y": "z"}}}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = [str(row.demonstration) for row in catalogue.find_task(str(tmp_path / "a.jsonl")).items.rows]  # type: ignore[attr-defined]
    data = tmp_path / "hub" / "data"
    data.mkdir(parents=True)
    table = pyarrow.Table.from_pylist(rows)  # every call has x and y now, one of them null
    for place, piece in enumerate((table.slice(0, 25), table.slice(25))):
        Optional("pyarrow.parquet").write_table(piece, data / f"train-0000{place}-of-00002.parquet")
    with pyarrow.OSFile(str(tmp_path / "b.arrow"), "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for path in (tmp_path / "hub", tmp_path / "b.arrow"):
        task: Any = catalogue.find_task(str(path))
        assert [str(row.demonstration) for row in task.items.rows] == expected, path
    assert task.name == "b"
    assert catalogue.find_task(str(tmp_path / "hub")).name == "data-train"
    (tmp_path / "c.arrow").write_bytes(b"none")
    with pytest.raises(AssayError, match="cannot be read as Arrow"):
        prompts(tmp_path / "c.arrow")


def test_folders_of_datasets(tmp_path: Path) -> None:
    made = datasets.Dataset.from_list(numbered(40))
    made.save_to_disk(str(tmp_path / "one"))
    both = made.train_test_split(test_size=0.25, shuffle=False)
    both.save_to_disk(str(tmp_path / "two"), num_shards={"train": 2, "test": 1})
    assert sorted(prompts(tmp_path / "one") + prompts(tmp_path / "one", 1)) == sorted(f"q{k}" for k in range(40))
    assert prompts(tmp_path / "two") == [f"q{k}" for k in range(30)]
    assert prompts(tmp_path / "two", 1) == [f"q{k}" for k in range(30, 40)]
    next((tmp_path / "one").glob("*.arrow")).unlink()
    with pytest.raises(AssayError, match=r"lacks some of its files data-00000-of-00001\.arrow\. Save"):
        prompts(tmp_path / "one")
    renamed = made.rename_column("messages", "chats")
    renamed.save_to_disk(str(tmp_path / "other"))
    with pytest.raises(AssayError, match=r"other, line 1 has no field 'prompt' \(it has: chats\)"):
        prompts(tmp_path / "other")
