"""Patches of a user's files: what is paid and counted, on a chat model's template too, what is refused, and time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay
from assay.claims.testbeds.language.repair import PATH, Repair, repair
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.methods.swe_rl import EditSimilarity, Matcher, between, diffs, edited, edits_in, similarity
from assay.tasks.language.textfile import textfile

SIZES = {"actor.width": 16, "actor.layers": 1, "actor.heads": 2}


def file_of(folder: Path, **changed: object) -> str:
    """A file of issues, each with a file, the fixed file and an answer that fixes it."""
    lines = []
    for number in range(40):
        edit = f"### a.py\n<<<<<<< SEARCH\nx = {number}\n=======\nx = {number + 1}\n>>>>>>> REPLACE\n"
        row: dict[str, object] = {
            "prompt": f"x is too small by one.\n### a.py\nx = {number}\n",
            "answer": f"<think>one more</think><solution>{edit}</solution>",
            "files": {"a.py": f"x = {number}\n"},
            "fixed": {"a.py": f"x = {number + 1}\n"},
        }
        lines.append(json.dumps({name: value for name, value in {**row, **changed}.items() if value is not None}))
    (folder / "issues.jsonl").write_text("\n".join(lines))
    return str(folder / "issues.jsonl")


def paid_for_answers(task: Any) -> list[float]:
    """What the answers of the task's own rows are paid."""
    part, scene = EditSimilarity(), Scene(task)
    part.init(scene)
    return part.apply(task.demonstrate(np.arange(4), 0), scene, {}).reward.sum(1).tolist()


def test_answers_of_a_file_are_paid_1_and_a_model_from_scratch_is_malformed(tmp_path: Path) -> None:
    data = file_of(tmp_path)
    assert paid_for_answers(textfile(data)) == [1.0] * 4
    run = assay.train("swe-rl", data, steps=2, warmup=0, prompts=2, group_size=2, evaluations=0, settings=SIZES,
                      out=tmp_path / "run")  # fmt: skip
    seen = [row for row in run.curves if "malformed" in row]
    assert [(row["malformed"], row["fixed_exactly"]) for row in seen] == [(1.0, 0.0)] * 2
    assert all(row["reward_per_decision"] < 0 for row in seen)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"fixed": None}, "has no field 'fixed'.*Write JSON lines such as"),
        ({"files": None}, "'files' of 'x is too small.*must hold the text of each file"),
        ({"fixed": ["x = 1"]}, "'fixed' of .*must hold the text of each file"),
        ({"fixed": {"a.py": "x = 0\n"}, "files": {"a.py": "x = 0\n"}}, "changes no line of 'files'"),
    ],
)
def test_rows_without_files_or_fixes_are_refused(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    with pytest.raises(AssayError, match=said):
        assay.train("swe-rl", file_of(tmp_path, **changed), steps=1, warmup=0, settings=SIZES, out=tmp_path / "run")
    with pytest.raises(AssayError, match="longest is 0"):
        EditSimilarity(0)


def test_a_chat_model_is_paid_by_what_its_template_lets_it_say(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from assay.tasks.adapters.pretrained import with_model
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    data, model = file_of(tmp_path), save_chat_model(tmp_path / "model", TEMPLATES["chatml"])
    assert paid_for_answers(with_model(textfile(data), model)) == [1.0] * 4
    run = assay.train("swe-rl", data, model=model, steps=1, prompts=2, group_size=2, evaluations=0, max_tokens=8,
                      out=tmp_path / "run")  # fmt: skip
    assert [row["malformed"] for row in run.curves if "malformed" in row] == [1.0]


def test_hostile_patches_cost_a_second_each_not_minutes() -> None:
    true = "ab" * 2048
    before = time.process_time()
    for found in ("aab" * 1365, "aabb" * 1024, "b" + "a" * 4095, " " * 4096):
        assert 0.0 <= similarity({"f": found}, {"f": true}, 4096) <= 1.0
    assert Matcher(true, true).ratio() == 1.0
    assert time.process_time() - before < 60.0
    bomb = [("f", "a", "\n".join(["a"] * 1000))] * 20
    assert edited({"f": "a\n"}, bomb) is None
    assert edits_in("### f\n" + "<<<<<<< SEARCH\n" * 100_000) == []


def test_the_testbed_starts_as_often_right_as_its_digits_say_and_writes_its_edits() -> None:
    items = Repair(16)
    for prompt in range(4):
        item = items.item(prompt, 0)
        files, fixed = item.facts["files"], item.facts["fixed"]
        assert isinstance(files, dict)
        assert isinstance(fixed, dict)
        solution = between(items.written(item, item.answer), "<solution>", "</solution>")
        assert solution is not None
        assert edited(files, edits_in(solution)) == fixed
        (one,) = diffs(files, fixed).values()
        assert one.count("\n+") == one.count("\n-") == 1
        assert len(files[PATH].splitlines()) == 16
    assert (repair(4).max_tokens, repair(16).max_tokens) == (3, 4)
    with pytest.raises(AssayError, match="lines must be 2 to 100"):
        repair(1)
