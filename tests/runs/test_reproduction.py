"""`assay reproduce`: the same bits again, what differs where they are not, and the versions that may be why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.runs import library_versions as versions
from assay.runs.plan import plan_of
from assay.runs.progress import Mode
from assay.runs.reproduction import Outcome, compare_runs, compared_facts, largest_gap, reproduce
from assay.runs.run import train

RATE = 0.05


def trained(folder: Path, rate: float = RATE, steps: int = 3, seed: int = 0) -> Path:
    """A run of a few steps on the bandit."""
    settings = {"policy.learning_rate": rate}
    train("reinforce", "bandit", steps=steps, seed=seed, settings=settings, out=folder, mode=Mode.SILENT)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; to be read only."""
    return trained(tmp_path_factory.mktemp("reproduced") / "run")


def test_a_run_records_its_commit_and_every_package_that_computes(run: Path) -> None:
    recorded = json.loads((run / "config.json").read_text())["versions"]
    assert recorded["torch"].split("+")[0] == str(torch.__version__).split("+")[0]
    assert recorded["numpy"] == np.__version__
    assert recorded == versions.library_versions()
    assert versions.installed_version("no-such-package") is None


def test_the_commit_is_that_of_the_checkout_and_says_that_it_was_changed(tmp_path: Path) -> None:
    assert versions.source_commit(tmp_path) == "", "an installed package"
    (tmp_path / ".git").mkdir()
    assert versions.source_commit.__wrapped__(tmp_path) == "", "no repository"


def test_a_second_run_is_equal_to_the_bit(run: Path, tmp_path: Path) -> None:
    found = reproduce(run, tmp_path / "again", mode=Mode.SILENT)
    assert found.outcome is Outcome.EQUAL
    assert (found.unequal, found.first_step, found.weight_gap) == ((), None, 0.0)
    assert found.tensors > 2
    assert found.versions == {}
    assert found.is_recorded


@pytest.mark.parametrize(
    ("rate", "expected"), [(RATE * (1 + 1e-5), Outcome.WITHIN), (10 * RATE, Outcome.DIFFERS)], ids=["within", "differs"]
)
def test_other_numbers_are_measured_and_the_step_is_named(
    run: Path, tmp_path: Path, rate: float, expected: Outcome
) -> None:
    found = compare_runs(plan_of(run), run, trained(tmp_path / "other", rate), 1e-4)
    assert found.outcome is expected
    assert any(path.startswith("loop.engine.models.actor") for path in found.unequal)
    assert found.weight_gap > 0.0
    assert found.first_step == 2 or expected is Outcome.WITHIN


def test_a_gap_is_relative_to_the_model_and_other_shapes_have_none() -> None:
    ours, theirs = {"a": {"w": torch.tensor([4.0, 1.0])}}, {"a": {"w": torch.tensor([4.0, 2.0])}}
    assert largest_gap(ours, theirs) == 0.25
    assert largest_gap(ours, {"a": {"w": torch.ones(3)}}) == float("inf")
    assert largest_gap(ours, {"a": {"w": torch.tensor([4.0, float("nan")])}}) == float("inf")


def test_versions_that_differ_are_named_with_both() -> None:
    then, now = {"torch": "2.9", "numpy": "2.4"}, {"torch": "2.13", "numpy": "2.4", "mujoco": "3.3"}
    assert compared_facts(then, now) == {"torch": ("2.9", "2.13"), "mujoco": ("not there", "3.3")}


def test_a_run_that_is_not_finished_or_would_be_overwritten_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="the run itself"):
        reproduce(run, run)
    stopped = trained(tmp_path / "stopped")
    facts = json.loads((stopped / "config.json").read_text())
    (stopped / "config.json").write_text(json.dumps(facts | {"more_steps": 5}))
    with pytest.raises(AssayError, match="is not finished"):
        reproduce(stopped, tmp_path / "again")
    with pytest.raises(AssayError, match="--tolerance is 2"):
        reproduce(run, tmp_path / "again", tolerance=2.0)


def test_the_command_says_what_differs_and_ends_with_its_code(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", str(run), "--out", str(tmp_path / "again")]
    assert cli.main(words) == 0
    assert "equal bitwise: held-out score" in capsys.readouterr().out
    monkeypatch.setattr(versions, "__version__", "9.9")
    trained(tmp_path / "other", 10 * RATE)
    monkeypatch.setattr("assay.runs.reproduction.execute", lambda *words, **more: None)
    assert cli.main([*words[:3], str(tmp_path / "other")]) == 5
    printed = capsys.readouterr().out
    assert "differs: held-out score" in printed
    assert "metrics part at step 2" in printed
    assert "assay: 0.2.0 then, 9.9 now" in printed
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "equal bitwise"
