"""Conversations whose utterances are executed: rows of SQL, bash and Python, their state, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.claims.laws.session import check_sessions
from assay.core.errors import AssayError
from assay.core.record import PolicyFault, Score
from assay.runs.catalogue import find_task
from assay.runs.options.sandbox import SandboxOptions
from assay.tasks.language import code_task
from assay.tasks.language.code_task import CodeSessions
from assay.tasks.language.dialogue import DialogueTask
from tests.sandbox.places import boxes, needs_boxes

TABLE = {"prompt": "costs, small first", "schema": "create table t (c); insert into t values (3), (1);", "query": "select c\nfrom t order by c"}  # fmt: skip  # noqa: E501
FILES = {"prompt": "sort", "files": {"a.txt": "2\n1\n"}, "solution": ["sort a.txt > b.txt", "echo it is sorted"]}
TESTED = {"prompt": "double", "tests": ["assert f(2) == 4", "assert f(3) == 6"]}
MBPP = {"text": "double", "test_list": ["assert f(2) == 4"], "test_setup_code": "", "code": "def f(x): return 2 * x"}


def task_of(folder: Path, *rows: dict[str, Any]) -> DialogueTask:
    """The task of a file with these rows."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = find_task(f"code:{path}")
    assert isinstance(task, DialogueTask)
    return task


def talked(task: DialogueTask, row: dict[str, Any], *said: str) -> list[Any]:
    """What a session of a row replies: texts, and outcomes."""
    partner = task.partner
    assert isinstance(partner, CodeSessions)
    item = next(item for item in partner.rows if item.prompt.startswith(row.get("prompt", "double")))
    session = partner.open(item, 0)
    replies = [session.reply(words) for words in said]
    session.close()
    return [reply.text if reply.outcome is None else reply.outcome for reply in replies]


def test_rows_of_sql_are_queried_demonstrated_and_repeatable(tmp_path: Path) -> None:
    task = task_of(tmp_path, TABLE)
    assert isinstance(task.partner, CodeSessions)
    assert all(finding.held for finding in check_sessions(task.partner))
    shown = task.demonstrate(np.arange(4), 0)
    assert shown.reward.sum(1).tolist() == [1.0] * 4, "the right query on one line, then submit"
    errors = ["```sql\nselect d from t\n```", "select c from t", "submit"]
    assert talked(task, TABLE, *errors) == ["no such column: d\n", "3\n1\n", Score(-1.0)]
    assert len(talked(task, TABLE, "with recursive n(i) as (select 1 union all select i + 1 from n limit 900) select i from n")[0].encode()) <= 401  # fmt: skip  # noqa: E501


@needs_boxes
def test_files_stay_between_commands_and_are_compared_with_those_of_the_right_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_task, "sandbox_of", lambda *given: boxes())
    task = task_of(tmp_path, FILES)
    assert talked(task, FILES, "```bash\nsort a.txt > b.txt\n```", "cat b.txt; exit 3") == ["\n", "1\n2\n[status 3]\n"]
    assert talked(task, FILES, "sort a.txt > b.txt", "echo it is sorted", "submit") == [
        "\n",
        "it is sorted\n",
        Score(1.0),
    ]
    assert talked(task, FILES, "ls", "submit")[-1] == Score(0.39), "another conversation's file is not there"
    assert talked(task, FILES, "skip") == [Score(0.0)]
    (killed,) = talked(task, FILES, "kill -9 -1")
    assert isinstance(killed, PolicyFault)


@needs_boxes
def test_names_stay_between_cells_and_rows_of_mbpp_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_task, "sandbox_of", lambda *given: boxes())
    task = SandboxOptions(sandbox_seconds=1.0).task(task_of(tmp_path, TESTED, {**MBPP, "text": "mbpp"}))
    assert isinstance(task, DialogueTask)
    cells = ["x = 2", "while True: pass", "def f(a):\n    return a * x\nf(5)", "1 / 0", "exit()", "submit"]
    told = ["\n", "timed out\n", "10\n", "ZeroDivisionError: division by zero\n", "SystemExit:\n", Score(1.0)]
    assert talked(task, TESTED, *cells) == told
    assert talked(task, TESTED, "x", "f = lambda a: 4", "submit") == [
        "NameError: name 'x' is not defined\n",
        "\n",
        Score(0.5),
    ]
    assert talked(task, {"prompt": "mbpp"}, "```python\ndef f(x): return 2 * x\n```", "submit")[-1] == Score(1.0)
    assert not isinstance(task.partner, CodeSessions) or not task.partner.is_repeatable


def test_the_sandbox_of_an_option_is_used_and_bash_needs_boxes_of_this_machine(tmp_path: Path) -> None:
    found = SandboxOptions(sandbox="unsafe", sandbox_seconds=3.0).task(task_of(tmp_path, TESTED))
    assert isinstance(found, DialogueTask)
    assert isinstance(found.partner, CodeSessions)
    assert (found.partner.sandbox, found.partner.seconds) == ("unsafe", 3.0)
    far = SandboxOptions(sandbox="http://127.0.0.1:8321")
    assert far.task(task_of(tmp_path, TESTED)) is not None
    with pytest.raises(AssayError, match="boxes of this machine"):
        far.task(task_of(tmp_path, TESTED, FILES))


def test_rules_are_those_of_the_languages_in_the_file(tmp_path: Path) -> None:
    partner = task_of(tmp_path, TABLE, TESTED).partner
    assert isinstance(partner, CodeSessions)
    assert "SELECT" in partner.introduction
    assert "Python" in partner.introduction
    assert "bash" not in partner.introduction
    assert not partner.is_repeatable


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "q"}, "none of the fields 'schema', 'tests' and 'solution'"),
        ({**TABLE, "query": "select d from t"}, "no such column: d"),
        ({**TABLE, "schema": "create"}, "cannot be executed"),
        ({"prompt": "q", "query": "select 1"}, "no field 'schema'"),
        ({**FILES, "files": {"../x": "y"}}, "Name a file in the folder"),
        ({**FILES, "solution": 3}, "must be commands"),
        ({**TESTED, "tests": []}, "must be a list of assertions"),
        ({**TESTED, "tests": [{"stdin": "1", "stdout": "1"}]}, "not for conversations"),
        ({**TABLE, "prompt": ""}, "'prompt' is empty"),
    ],
)
def test_bad_rows_are_named_before_anything_is_computed(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=words) as refused:
        task_of(tmp_path, row)
    assert "line 1" in str(refused.value)
