"""Tuning by training: ranges as they are written, and runs as an objective."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.runs import search
from assay.runs.search import Training, parsed_space
from assay.statistics.intervals import Estimate
from assay.statistics.search_space import Choice, Uniform, Whole
from assay.statistics.tuning import RandomSearch, Tuned, TuningPlan


def test_ranges_as_they_are_written() -> None:
    space = search.parsed_space(["a.b=1e-5:1e-2:log", "c=2:16", "d=true,false", "e=0.5:2"])
    assert space.settings == {
        "a.b": Uniform(1e-5, 1e-2, log=True),
        "c": Whole(2, 16),
        "d": Choice(("true", "false")),
        "e": Uniform(0.5, 2.0),
    }


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("a", "is not a range"),
        ("a=", "is not a range"),
        ("a=1:2:3", "Only :log may follow"),
        ("a=x:2.0", "must be numbers"),
        ("a=0:1:log", "above 0"),
        ("a=3:1", "in order"),
    ],
)
def test_what_is_no_range_is_refused(word: str, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        search.parsed_space([word])


def test_a_space_that_the_recipe_does_not_have_is_refused(tmp_path: Path) -> None:
    training = search.Training("rloo", "bandit", 2, tmp_path, {})
    with pytest.raises(AssayError, match="no setting 'nothing'"):
        training.check(search.parsed_space(["nothing=1:2"]))
    with pytest.raises(AssayError, match="LeaveOneOut"):
        training.check(search.parsed_space(["group_size=1:2"]))


def test_a_failed_run_is_no_number(tmp_path: Path) -> None:
    training = search.Training("rloo", "bandit", 3, tmp_path, {})
    assert math.isnan(training({"policy.weight_decay": 1e40}, 0, 1.0, lambda part, value: None))


def test_tune_reports_on_fresh_seeds_and_goes_on_without_repeating(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "rloo", "policy.learning_rate=1e-3:1:log", "--task", "bandit", "--trials", "2", "--steps", "2"]
    words += ["--tuning-seeds", "1", "--seeds", "2", "--out", str(tmp_path / "t")]
    assert cli.main([*words, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["tuning_runs"], first["tuning_steps"], len(first["trials"])) == (2, 4, 2)
    assert first["reported"]["count"] == 2
    runs = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl"))
    assert len(runs) == 4
    assert cli.main(words) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("trials on the tuning seeds", "chosen", "reported", "optimism", "budget"))
    assert sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")) == runs


def test_what_is_reported_stays_inside_the_possible_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training("reinforce", "cartpole", 1, tmp_path, {})
    wide = Estimate(305.0, -1163.0, 1774.0, 3)
    space = parsed_space(["policy.learning_rate=1e-4,1e-3"])
    plan = TuningPlan(1, (0,), (1, 2), 1)
    found = Tuned({}, (), plan, 1, 1, Estimate(400.0, -9.0, 900.0, 3), wide, Estimate(95.0, -1e4, 1e4, 3))
    monkeypatch.setattr(search, "run_search", lambda *given, **named: found)
    told = search.tuned(training, space, 1, 1, 2, RandomSearch())
    assert (told.reported.low, told.reported.high) == (0.0, 500.0)
    assert (told.tuning.high, told.optimism.low, told.optimism.high) == (500.0, -500.0, 500.0)
