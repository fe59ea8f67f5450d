"""The table of what every method learns: one run, what its numbers mean, and that it continues where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.runs.options import run_options
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from assay.runs.run import execute
from benchmarks import learning


def run_of(start: float, end: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    """A finished run as the file has it."""
    facts = {"task": "t", "steps": 5, "planned": 9, "start": start, "after_phases": start, "end": end}
    return facts | {"low": low, "high": high, "reward_start": 0.5, "reward_end": 0.25, "alarms": []} | more


def test_a_run_has_start_end_and_the_reward_it_trains_on(tmp_path: Path) -> None:
    found = learning.measured_run("policy-cliff", 0, 60.0, tmp_path, steps=20)
    assert (found["steps"], found["planned"]) == (20, 20)
    assert found["end"] > found["start"]
    assert found["reward_end"] > found["reward_start"]


def test_the_limit_ends_a_run_and_the_steps_are_told(tmp_path: Path) -> None:
    found = learning.measured_run("policy-cliff", 0, 0.0, tmp_path, steps=40)
    assert found["steps"] < found["planned"] == 40


def test_the_reward_of_an_answer_is_that_of_a_decision_times_the_length() -> None:
    rows = [{"step": 0}, {"reward_per_decision": 0.5, "length": 4.0}, {"reward_per_decision": 0.5}]
    assert learning.trained_rewards(rows) == [2.0]
    assert learning.ends_of([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == (1.0, 4.0)
    assert learning.ends_of([]) == (None, None)


def test_a_shared_warmup_gives_the_run_of_an_own_one(tmp_path: Path) -> None:
    few = run_options({"eval_prompts": 4})
    plan = make_plan("grpo", "sorting-3", steps=1, warmup=1, evaluations=0, options=few)
    for name in ("own", "shared"):
        with learning.shared_warmup(plan, tmp_path / name, tmp_path):
            assert (tmp_path / name / "phase-1-warmup").is_dir() == (name == "shared")
            execute(plan, tmp_path / name, mode=Mode.SILENT)
    texts = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("own", "shared")]
    own, shared = ([{**json.loads(line), "time": 0} for line in lines] for lines in texts)
    assert own == shared


def test_verdicts_need_seeds_that_agree() -> None:
    seeds = [run_of(0.1, 0.5, 0.3, 0.5), run_of(0.1, 0.2, 0.05, 0.2), run_of(0.1, 0.11, -0.1, 0.1)]
    assert "| above |" in learning.table({"runs": {"m": dict(enumerate(seeds))}, "causes": {}, "cpu_seconds": 1})[4]
    seeds[2] = run_of(0.5, 0.1, -0.5, -0.3)
    lines = learning.table({"runs": {"m": dict(enumerate(seeds))}, "causes": {"m": "noise"}, "cpu_seconds": 1})
    assert "5 of 9" in lines[4]
    assert "| not shown |  | noise |" in lines[4]
    assert lines[0].startswith("0 of 1 methods")


def test_runs_that_are_there_are_kept_and_the_page_gets_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def quick(method: str, seed: int, *rest: object) -> dict[str, Any]:
        asked.append((method, seed))
        return {"error": "no"} if len(asked) == 1 else run_of(0.0, 1.0, 0.5, 1.0, cpu_seconds=1.0)

    monkeypatch.setattr(learning, "separate_run", quick)
    words = ["ppo", "bc", "--seeds", "2", "--workers", "1", "--out", str(tmp_path / "numbers.json")]
    assert learning.main(words) == 1
    assert learning.main(words) == 0
    assert len(asked) == 5, "four runs, and the failed one again"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{learning.BEGIN}old\n{learning.END}after\n")
    assert learning.main([*words, "--table", "--page", str(page)]) == 0
    assert "2 of 2 methods end above their start" in page.read_text()
    assert "old" not in page.read_text()


def test_a_failed_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning.sys, "executable", "/bin/false")
    assert learning.separate_run("ppo", 0, 1.0, tmp_path, None) == {"error": "exit code 1"}
