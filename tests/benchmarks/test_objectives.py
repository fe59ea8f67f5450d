"""The ranking of objectives: what is read off a curve, and which methods are in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import objectives


def test_a_curve_is_read_up_to_the_common_number_of_answers() -> None:
    rows = [
        {"step": 0, "pass_rate": 0.0},
        {"step": 1, "decisions_total": 100},
        {"step": 2, "decisions_total": 200, "pass_rate": 1.0},
        {"step": 3, "decisions_total": 400, "pass_rate": 0.0},
    ]
    area, end = objectives.height(rows, answers=100, places=3)
    assert (area, end) == pytest.approx((0.5, 1.0)), "0, 1/2 and 1 at 0, 100 and 200 tokens; later ones are not read"


def test_intervals_need_two_seeds_that_all_tasks_have() -> None:
    found = {task: {0: 0.2, 1: 0.4} for task in objectives.TASKS}
    whole = objectives.over_tasks(found)
    assert whole is not None
    assert whole.value == pytest.approx(0.3)
    assert objectives.over_tasks(found | {objectives.TASKS[0]: {0: 0.2}}) is None


def test_a_step_of_grpo_samples_its_groups() -> None:
    assert objectives.answers_a_step("grpo") == 256


def test_methods_are_trained_and_ranked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objectives, "TASKS", objectives.TASKS[:1])  # the mean over all of them is looked at above
    words = ["grpo", "rloo", "--seeds", "2", "--answers", "256", "--jobs", "2", "--out", str(tmp_path / "out")]
    assert objectives.main(words) == 0
    rows = json.loads((tmp_path / "out" / "objectives.json").read_text())["rows"]
    assert sorted(row["method"] for row in rows) == ["grpo", "rloo"]
    assert [row["rank"] for row in rows] == [1, 2]
    assert 1.0 > rows[0]["area"]["value"] >= rows[1]["area"]["value"] > 0.0
    assert (tmp_path / "out" / "report.html").is_file()
    assert "2 methods, 2 seeds" in capsys.readouterr().out
