"""The comparisons with control peers at toy size: every arm runs, the queue resumes and keeps its limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.datasets import files, made
from assay.runs import catalogue
from benchmarks import peers_control, peers_offline, peers_page, peers_runs
from benchmarks.peers_runs import Job, Queue, finished

TASK = "InvertedDoublePendulum-v5"
STUB = """
import json, sys, time
key = sys.argv[2]
if "slow" in key:
    time.sleep(30)
if "bad" in key:
    raise ValueError("no such arm")
print("something else")
print(json.dumps({"score": 1.0, "key_seen": key}))
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that takes the place of a benchmark's arms; results go into the folder."""
    (tmp_path / "stub_arms.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "rows.jsonl"


def run(out: Path, keys: Sequence[str], minutes: float = 1.0, seconds: float = 0.1) -> Queue:
    """A queue that has run these keys."""
    queue = Queue("stub_arms", (), out, 2, minutes)
    queue.run(Job(key, "kind", seconds) for key in keys)
    return queue


def test_a_finished_run_is_not_repeated(stub: Path) -> None:
    assert run(stub, ["a", "b"]).done == 2
    assert set(finished(stub)) == {"a", "b"}
    stub.write_text(stub.read_text() + '{"key": "c", "sco')
    stub.write_text(stub.read_text() + "\n")
    assert run(stub, ["a", "b", "c"]).done == 1


def test_nothing_is_started_that_cannot_end_in_time(stub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(stub, ["a"], minutes=0.5, seconds=40.0).done == 0
    assert "not started for lack of time: 1" in capsys.readouterr().out


def test_a_run_that_takes_too_long_is_stopped_and_one_that_fails_is_told(stub: Path, capsys: Any) -> None:
    queue = run(stub, ["slow", "bad"], minutes=0.03)
    assert (queue.done, queue.failed) == (0, ["bad"])
    said = capsys.readouterr().out
    assert "stopped at the limit: slow" in said
    assert "failed: bad: ValueError: no such arm" in said


def test_the_held_out_score_is_the_raw_return_of_the_same_starts() -> None:
    pytest.importorskip("mujoco", reason="the extra 'control' is not installed")
    import gymnasium

    def still(seen: np.ndarray) -> np.ndarray:
        return np.zeros((len(seen), 1), np.float32)

    expected = []
    for place in range(2):
        environment, total, over = gymnasium.make(TASK), 0.0, False
        environment.reset(seed=peers_runs.FIRST_SEED + place)
        while not over:
            _, reward, terminated, truncated, _ = environment.step(np.zeros(1, np.float32))
            total, over = total + float(reward), terminated or truncated
        expected.append(total)
    assert peers_runs.held_out(TASK, still, 2) == pytest.approx(expected)


# ---------------------------------------------------------------------------------------------------- arms
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["sac", "td3", pytest.param("ppo", marks=pytest.mark.all_cases)])
@pytest.mark.parametrize("side", peers_control.SIDES)
def test_an_arm_of_control(side: str, method: str, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("mujoco", "stable_baselines3") if side != "assay" else ("mujoco",):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.setattr(peers_control, "EVALUATIONS", {method: 2})
    decisions = 2_048 if method == "ppo" else 120
    assert peers_control.main(["--one", f"{side}/{method}/{TASK}/0/{decisions}"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0.8 * decisions < row["decisions"] <= decisions
    assert row["updates"] > 0
    assert len(row["curve"]) == (1 if method == "ppo" else 2)
    assert row["curve"][-1] == [row["decisions"], row["score"]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", peers_offline.UPDATES)
@pytest.mark.parametrize("side", peers_offline.SIDES)
def test_an_arm_of_offline(side: str, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco", reason="the extra 'control' is not installed")
    if side == "d3rlpy":
        pytest.importorskip("gym", reason="d3rlpy is not installed, and in no extra")
        pytest.importorskip("structlog", reason="d3rlpy is not installed, and in no extra")
    files.write(made.Random(20).make(catalogue.find_task(TASK)), peers_offline.path_of(tmp_path, TASK, "medium"))
    key = f"{side}/{method}/{TASK}/medium/0/5"
    assert peers_offline.main(["--one", key, "--data", str(tmp_path)]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [done for done, _ in row["curve"]] == [1, 2, 3, 4, 5]


def test_the_jobs_are_those_of_both_sides_and_long_ones_come_last() -> None:
    control, offline = list(peers_control.jobs(5, 20_000)), list(peers_offline.jobs(3, 1.0))
    assert len({job.key for job in control}) == len(control) == (2 * 3 + len(peers_control.VARIANTS)) * 3 * 5
    assert len({job.key for job in offline}) == len(offline) == 2 * 3 * 3 * 3 * 3
    assert {job.kind for job in offline[-54:]} == {"assay/cql", "d3rlpy/cql"}


# ---------------------------------------------------------------------------------------------------- tables
def rows_of(scores: dict[str, list[float]], **more: Any) -> list[dict[str, Any]]:
    """Rows of both sides with these scores."""
    return [
        {"key": f"{side}/{seed}", "side": side, "seed": seed, "score": value, "curve": [[1, 0.0], [2, value]],
         "seconds": 3.0, "cpu": 2.0, "decisions": 10, "updates": 10, **more}
        for side, values in scores.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip


def test_the_table_reads_the_interval_of_the_difference() -> None:
    scores = {"assay": [10.0, 11.0, 12.0], "stable-baselines3": [1.0, 2.0, 3.0]}
    rows = {row["key"]: row for row in rows_of(scores, method="sac", task=TASK)}
    line = list(peers_page.table(rows, ("method", "task"), peers_control.SIDES, "decisions"))[-1]
    assert "| +9 [+7, +11] | above |" in line
    assert peers_page.area(rows["assay/0"]) == 5.0


def test_tables_and_figures_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plots' is not installed")
    results = tmp_path / "results.jsonl"
    control = rows_of({"assay": [1.234567], "stable-baselines3": [2.0]}, method="ppo", task="Hopper-v5")
    offline = rows_of({"d3rlpy": [1.0]}, method="iql", task="Hopper-v5", kind="medium")
    results.write_text("".join(json.dumps(row) + "\n" for row in (*control, *offline)))
    names = ("control", "data", "offline", *peers_control.VARIANTS)
    (tmp_path / "page.md").write_text("".join(f"<!-- {name} -->\n<!-- end of {name} -->\n" for name in names) + "last")
    monkeypatch.setattr(peers_page, "ROWS", {name: tmp_path / f"{name}.jsonl" for name in ("control", "offline")})
    monkeypatch.setattr(peers_page, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(peers_page, "DOCS", tmp_path)
    peers_page.main(["--rows", str(results)])
    assert '"score": 1.23,' in (tmp_path / "control.jsonl").read_text()
    assert "| ppo | Hopper-v5 | 1 | 1 | 2 |" in (page := (tmp_path / "page.md").read_text())
    assert page.endswith("last")
    assert (tmp_path / "peers_control.png").stat().st_size > 0
