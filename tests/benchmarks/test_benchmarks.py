"""Every benchmark runs at toy size, so that a change of the package cannot break one unseen. No timing is looked at."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import benchmarks.__main__ as command
from benchmarks import (
    arms,
    batches,
    cadence,
    coverage,
    one_gpu,
    ranks,
    real_model,
    real_model_page,
    sequential_power,
    thresholds,
    weights,
)

FOLDER = Path(arms.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("__"))
COMMANDS = [name for name in MODULES if "argparse" in (FOLDER / f"{name}.py").read_text()]
PEERS = {
    "ppo_cartpole": ("gymnasium", "stable_baselines3"),
    "off_policy": ("gymnasium", "stable_baselines3"),
    "grpo_tokens": ("transformers", "trl"),
}


@pytest.mark.parametrize("name", MODULES)
def test_it_can_be_imported_and_says_what_it_measures(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__


@pytest.mark.parametrize("name", COMMANDS)
def test_it_has_a_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(f"benchmarks.{name}").main()
    assert "usage" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")  # of the peers
@pytest.mark.parametrize("name", command.BENCHMARKS)
def test_every_arm_of_make_bench_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: importing the peers takes longer than a toy."""
    for peer in PEERS[name]:
        pytest.importorskip(peer, reason=f"{peer} is not installed")

    def here(module: str, words: Sequence[str], threads: int) -> dict[str, Any]:
        return dict(importlib.import_module(module).arm(words))

    monkeypatch.setattr(arms, "run_arm", here)
    assert command.main([name, "--toy", "--out", str(tmp_path / "results.json")]) == 0
    rows = json.loads((tmp_path / "results.json").read_text())[name]
    assert any(row["arm"].startswith("assay") for row in rows)
    assert all(len(row) > 1 for row in rows)


def test_an_arm_is_a_process_of_its_own() -> None:
    found = arms.run_arm("benchmarks.off_policy", ["assay", "td3", "8", "--toy"], 1)
    assert found.get("cpu_ms_an_update", 0) > 0, found


def test_an_arm_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(arms, "run_arm", lambda *words: {"error": "KeyError: 'source'"})
    assert command.main(["off_policy", "--toy", "--out", str(tmp_path / "results.json")]) == 1
    assert "failed: off_policy, assay td3 8: KeyError: 'source'" in capsys.readouterr().err


def test_coverage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["coverage", "--experiments", "2", "--resamples", "10"])
    coverage.main()
    assert len(capsys.readouterr().out.splitlines()) == 3 + len(coverage.RUNS) * len(coverage.TASKS)


def test_sequential_power(capsys: pytest.CaptureFixture[str]) -> None:
    sequential_power.printed(sequential_power.measure(2))
    assert "told apart" in capsys.readouterr().out


def test_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "thresholds.json"
    given = ["--toy", "--workers", "0", "--only", "ppo on cartpole", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["thresholds", *given])
    thresholds.main()
    (row,) = json.loads(out.read_text())["rows"].values()
    assert len(row["after"]) == 2


def test_the_output_layer_of_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    out = tmp_path / "one_gpu.json"
    monkeypatch.setattr(sys, "argv", ["one_gpu", "logp", "--toy", "--out", str(out)])
    one_gpu.main()
    failed = {row["way"]: row["error"] for row in json.loads(out.read_text())["logp"] if "error" in row}
    assert set(failed) <= {"Liger, known slope"}, "which needs its package, and a GPU"


@pytest.mark.all_cases
@pytest.mark.filterwarnings("ignore")
def test_pretrained_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    from benchmarks import pretrained_gain
    from tests.models.test_transformers import save_qwen

    (tmp_path / "model").mkdir()
    given = [save_qwen(tmp_path / "model"), "--steps", "1", "--out", str(tmp_path / "gain")]
    monkeypatch.setattr(sys, "argv", ["pretrained_gain", *given])
    pretrained_gain.main()
    assert "change" in capsys.readouterr().out


def test_batches_of_both_kinds_are_timed() -> None:
    found = batches.measure(rows=400, length=100, repeats=2)
    assert set(found) == {"transitions", "windows of 20"}
    assert all(one["cpu_ms"] > 0.0 and one["least_ms"] <= one["wall_ms"] for one in found.values())


def test_every_benchmark_is_run_somewhere() -> None:
    """Here, or in the tests of what it measures; modules that others are made of are run with these."""
    said = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    used = {
        alias.name
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks")
        for alias in (node.names if node.module == "benchmarks" else [ast.alias(str(node.module).split(".")[1])])
    }
    alone = [name for name in MODULES if name not in used]
    assert [name for name in alone if f"{name}.main(" not in said and f"{name}.measure(" not in said] == []


def answer(task: str, numbers: list[int], prompt: str) -> str:
    """The right answer to a question of the real model's tasks, worked out apart from them."""
    if task == "reversal":
        return ", ".join(prompt.split(": ")[1].split(". ")[0].split(", ")[::-1])
    if task == "later":
        hours, minutes = divmod(numbers[0] + 60 * numbers[1] + numbers[2], 60)
        return f"{hours}:{minutes:02d}"
    if task == "sequence":
        return str(2 * numbers[-1] - numbers[-2])
    worked = {"sorting": sorted(numbers), "subtraction": [2 * numbers[0] - sum(numbers)]}
    return ", ".join(map(str, worked.get(task, [sum(numbers)])))


def test_real_model_writes_answers_and_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runs themselves are those of tests of pretrained models; here the tasks, the order and the table."""
    for task in real_model.QUESTIONS:
        lines = real_model.problems(task, tmp_path / f"{task}.jsonl", 50).read_text().splitlines()
        for row in map(json.loads, lines):
            numbers = [int(one) for one in re.findall(r"\d+", row["prompt"])]
            assert row["answer"] == answer(task, numbers, row["prompt"]), row
            assert real_model.states(f"It is {row['answer']}.", row["answer"])
            assert not real_model.states("It is 1000.", row["answer"])
    for seed, score in ((0, 0.5), (1, 0.7)):
        folder = tmp_path / f"grpo-addition-{seed}"
        folder.mkdir()
        facts = {"method": "grpo", "task": "addition", "seconds": 1.0}
        facts |= {"start": 0.0, "start_content": 0.1, "strict": score, "content": score}
        (folder / "result.json").write_text(json.dumps(facts))
    monkeypatch.setattr(sys, "argv", ["real_model", "MODEL", "--seeds", "0", "--budget", "0", "--out", str(tmp_path)])
    real_model.main()
    (row,) = json.loads(capsys.readouterr().out)
    assert row["seeds"] == 2
    assert row["strict"]["value"] == pytest.approx(0.6)


def test_the_tables_of_the_real_model_are_those_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    page, runs = tmp_path / "page.md", tmp_path / "runs.json"
    page.write_text(real_model_page.PAGE.read_text())
    runs.write_text(real_model_page.RUNS.read_text())
    monkeypatch.setattr(real_model_page, "RUNS", runs)
    assert real_model_page.main([], page) == 0
    assert page.read_text() == real_model_page.PAGE.read_text()
    assert (tmp_path / "real_model.png").stat().st_size > 10_000


def test_the_shares_of_a_run_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert cadence.main(["--toy", "--steps", "2", "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed[printed.index("{\n") :])
    assert found["evaluations"] == 2
    assert found["checkpoints"] == 1
    assert set(found["shares"]) >= {"sample", "update", "evaluate", "save"}
    assert sum(found["shares"].values()) + found["other"] == pytest.approx(1.0, abs=0.01)


def test_a_step_is_timed_whatever_the_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert ranks.main(["--ranks", "2", "1", "--width", "16", "--steps", "1", "--starts", "2"]) == 0
    assert capsys.readouterr().out.endswith("weights are equal\n")


@pytest.mark.all_cases
def test_weights_reach_a_sampler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert weights.main(["--toy", "--device", "cpu", "--out", str(tmp_path / "weights.json")]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found == json.loads((tmp_path / "weights.json").read_text())
    assert set(found["ways"]) == {"file, between steps", "file, beside steps"}
    assert all(len(one["seconds"]["all"]) == 2 for one in found["ways"].values())
