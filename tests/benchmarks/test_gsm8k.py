"""GSM8K on a tiny model with four problems: a row of numbers, in one piece and in two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gsm8k
from benchmarks.gsm8k_reward import last_number, value_of
from tests.models.test_transformers import save_qwen

pytestmark = pytest.mark.filterwarnings("ignore:rewards and held-out scores are last_number")
SIZES = ["--steps", "2", "--max-tokens", "6", "--prompts", "2", "--group-size", "2", "--samples", "2"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("it is 1,234.50.", 1234.5), ("5-3", 3), ("x = -7", -7), ("10 - 4 = 6", 6), ("#### 18", 18), ("20% of it", 20),
     ("first 3, then 4", 4)],
)  # fmt: skip
def test_the_last_number_of_a_text(text: str, number: float) -> None:
    assert float(value_of(text) or 0) == number


def test_an_answer_is_right_by_its_last_number() -> None:
    said = ["so 6 * 7 = 42", "42, no, 41", "", "42.0", "It costs $42."]
    assert last_number(said, ["6 * 7 = <<6*7=42>>42\n#### 42"] * 5) == [1.0, 0.0, 0.0, 1.0, 1.0]
    assert last_number(["1200"], ["#### 1,200"]) == [1.0]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    rows = [{"question": f"{one}+30=", "answer": f"it is\n#### {one + 30}"} for one in range(1, 9)]
    for name, some in (("train", rows[:4]), ("test", rows[4:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    folders = ["--model", save_qwen(tmp_path / "model"), "--data", str(tmp_path), "--runs", str(tmp_path / "runs")]
    return [*folders, *SIZES, "--device", "cpu"]


def row_of(words: list[str], out: Path, code: int) -> dict[str, Any]:
    assert gsm8k.main([*words, "--out", str(out)]) == code
    row: dict[str, Any] = json.loads(out.read_text())
    return row


def test_a_run_in_two_pieces_is_the_run_in_one(words: list[str], tmp_path: Path) -> None:
    whole = row_of(["grpo", *words], tmp_path / "whole.json", 0)
    assert whole["status"] == "done"
    assert whole["before"]["problems"] == whole["after"]["problems"] == 4
    assert set(whole["change"]) == {"greedy", "pass@1"}
    assert 0.0 <= whole["after"]["pass@1"]["value"] <= whole["after"]["pass@2"]["value"] <= 1.0
    assert whole["generated_tokens"] > 0
    assert len(whole["before"]["right"]["greedy"]) == 4
    assert whole["settings"]["options"]["max_tokens"] == 6
    first = row_of(["grpo", *words, "--minutes", "0"], tmp_path / "parts.json", gsm8k.UNFINISHED)
    assert first["status"] == "stopped"
    second = row_of(["grpo", *words, "--resume", "--remove"], tmp_path / "parts.json", 0)
    assert [len(some["pieces"]) for some in (whole, first, second)] == [1, 1, 2]
    assert second["after"]["right"] == whole["after"]["right"]
    assert second["generated_tokens"] == whole["generated_tokens"]
    assert [name.name for name in (tmp_path / "runs").iterdir() if name.is_dir()] == [], "--remove"
    assert len(list((tmp_path / "runs").glob("before-*.json"))) == 1, "known after the first run"


@pytest.mark.all_cases
def test_a_run_that_has_no_time_for_its_scores_is_scored_later(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gsm8k, "stopping", lambda until: lambda *given: None)  # training itself takes its time
    assert row_of(["rloo", *words, "--minutes", "0"], tmp_path / "row.json", gsm8k.UNFINISHED)["status"] == "trained"
    assert row_of(["rloo", *words, "--resume"], tmp_path / "row.json", 0)["status"] == "done"


@pytest.mark.parametrize("method", [pytest.param("dr-grpo", marks=pytest.mark.all_cases), "dapo"])
def test_the_other_methods_of_the_table_run(method: str, words: list[str], tmp_path: Path) -> None:
    """The demonstrations have more tokens than --max-tokens allows, as some of GSM8K have."""
    row = row_of([method, *words], tmp_path / "row.json", 0)
    assert row["settings"]["steps"] == 2
    assert row["status"] == "done"
