"""Comparisons: parallel processes, paired seeds, resuming after kills, and failures that are never dropped."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.core import store
from assay.core.errors import AssayError
from assay.report import comparison as shown
from assay.report import page
from assay.runs import comparison
from assay.runs.arms import Arm, Setup, parsed_arms, plain_name
from assay.runs.comparison import Outcome
from assay.runs.jobs import Failure, Result, result_of, run_jobs
from assay.runs.options import CadenceOptions, EnvironmentOptions, RunOptions
from assay.runs.plan import make_plan
from assay.runs.pools import Job
from assay.statistics.sequential import SequentialTest
from tests.warm import Process

QUICK = {"steps": 2}


def setup(folder: Path, words: tuple[str, ...] = ("reinforce", "rloo"), **changes: object) -> Setup:
    tasks = changes.pop("tasks", ("bandit",))
    values: dict[str, object] = {"seeds": 2, "options": QUICK} | changes
    return Setup(parsed_arms(words), tasks, folder, **values)  # type: ignore[arg-type]


def result(arm: str, seed: int, score: float, task: str = "t") -> Result:
    return Result(Job(arm, task, seed, Path("nowhere"), "grpo"), score, 10, 1.0, ())


def outcome_of(scores: dict[str, list[float]], tasks: tuple[str, ...] = ("t",)) -> Outcome:
    arms = tuple(Arm(name, "grpo") for name in scores)
    outcome = Outcome(Setup(arms, tasks, Path("nowhere")))
    for name, values in scores.items():
        for seed, value in enumerate(values):
            outcome.add(result(name, seed, value))
    return outcome


# ---------------------------------------------------------------------------------------------------- words
def test_arms_have_settings_of_their_own_and_equal_words_are_two_arms() -> None:
    arms = parsed_arms(["grpo", "grpo:group_size=4,policy.learning_rate=1e-4", "grpo"])
    assert [arm.name for arm in arms] == ["grpo", "grpo:group_size=4,policy.learning_rate=1e-4", "grpo-2"]
    assert arms[1].settings == {"group_size": "4", "policy.learning_rate": "1e-4"}


@pytest.mark.parametrize(
    ("words", "message"),
    [(["grop"], "no method 'grop'"), (["grpo:members"], "no variant 'members'")],
)
def test_words_that_mean_nothing_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(AssayError, match=message):
        parsed_arms(words)


def test_names_of_folders_stay_inside() -> None:
    assert plain_name("../../etc/passwd") == "etc-passwd"
    assert plain_name("/a/b/pairs.jsonl") == "pairs"
    assert plain_name("HalfCheetah-v5") == "HalfCheetah-v5"
    assert plain_name("...") == "arm"


def of_decisions(num: int) -> dict[str, object]:
    return {"options": RunOptions(environment=EnvironmentOptions(decisions=num))}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "--seeds is 0"),
        ({"tasks": ("bandit", "bandit")}, "Name each task once"),
        ({"minutes": 0.0}, "--budget is 0"),
        ({"tasks": ("bandyt",)}, "no task 'bandyt'"),
        ({"options": {"settings": {"nothing": 1}}}, "no setting 'nothing'"),
        ({"seeds": None, "words": ("rloo",)}, "Name at least two methods"),
        ({"options": of_decisions(100)}, "--decisions needs rollouts of fixed length"),
        ({"options": of_decisions(0), "words": ("ppo",)}, "--decisions is 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_a_run_starts(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(AssayError, match=message):
        comparison.run(setup(tmp_path / "c", **changes))  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


# ---------------------------------------------------------------------------------------------------- statistics
def test_identical_arms_differ_by_nothing() -> None:
    first, second = comparison.rows(outcome_of({"a": [0.1, 0.5, 0.3], "b": [0.1, 0.5, 0.3]}))
    assert first["difference"] is None
    assert second["difference"]["value"] == second["difference"]["low"] == second["difference"]["high"] == 0.0
    assert second["improvement"]["value"] == 0.5


def test_intervals_stay_inside_the_range_that_the_configs_determine(tmp_path: Path) -> None:
    outcome = outcome_of({"a": [], "b": []})
    for arm, scores in {"a": [0.9, 1.0, 0.2], "b": [0.05, 0.0, 0.1]}.items():
        for seed, score in enumerate(scores):
            outcome.add(replace(result(arm, seed, score), job=Job(arm, "t", seed, tmp_path / arm, "grpo")))
    before = comparison.rows(outcome)
    assert before[0]["score"]["high"] > 1.0
    assert before[1]["difference"]["low"] < -1.0
    trained = make_plan("grpo", "sorting-3").config()
    for arm in "ab":
        store.write_json(tmp_path / arm / "config.json", trained)
    first, second = comparison.rows(outcome)
    assert (first["score"]["high"], second["score"]["low"], second["difference"]["low"]) == (1.0, 0.0, -1.0)
    assert second["score"]["high"] == before[1]["score"]["high"], "what is inside stays as it is"


def test_differences_are_paired_by_seed_whatever_the_order_of_arrival() -> None:
    outcome = outcome_of({"a": [], "b": []})
    for seed in (2, 0, 1):
        outcome.add(result("b", seed, 10.0 * seed + 1))
    for seed in (1, 2, 0):
        outcome.add(result("a", seed, 10.0 * seed))
    row = comparison.rows(outcome)[1]
    assert (row["difference"]["value"], row["difference"]["low"], row["difference"]["high"]) == (1.0, 1.0, 1.0)


def test_a_lost_seed_leaves_the_pairs_that_are_there_and_is_listed() -> None:
    outcome = outcome_of({"a": [0.0, 1.0, 2.0], "b": [1.0, 2.0]})
    outcome.add(Failure(Job("b", "t", 2, Path("nowhere"), "grpo"), "it broke"))
    row = comparison.rows(outcome)[1]
    assert (row["seeds"], row["failed"], row["difference"]["count"]) == (2, 1, 2)
    assert comparison.facts(outcome)["failures"][0]["reason"] == "it broke"


def test_one_seed_has_an_estimate_and_no_interval() -> None:
    row = comparison.rows(outcome_of({"a": [1.0], "b": [2.0]}))[1]
    assert row["score"]["value"] == 2.0
    assert np.isinf(row["score"]["low"])
    assert (row["improvement"]["low"], row["improvement"]["high"]) == (0.0, 1.0)


def test_an_arm_without_any_result_has_a_row() -> None:
    row = comparison.rows(outcome_of({"a": [1.0], "b": []}))[1]
    assert (row["seeds"], row["seconds"], row["difference"]) == (0, None, None)


def test_several_tasks_are_averaged_only_if_every_range_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the page: shares of the possible range. Scores that happen to lie between 0 and 1 are no common scale."""
    outcome = outcome_of({"a": [0.0, 0.2], "b": [0.5, 0.6]}, tasks=("t", "u"))
    for arm, values in {"a": [10.0, 10.0], "b": [30.0, 40.0]}.items():
        for seed, value in enumerate(values):
            outcome.add(result(arm, seed, value, "u"))
    rows = comparison.aggregate(outcome)
    assert rows[1]["improvement"]["value"] == 1.0
    assert rows[0]["iqm"] is None
    known = {"t": (0.0, 1.0), "u": (0.0, 100.0)}
    monkeypatch.setattr(comparison, "score_range", lambda found: known[next(iter(found)).job.task])
    assert comparison.aggregate(outcome)[0]["iqm"]["value"] == pytest.approx(0.1)


def test_auto_refuses_tasks_of_different_scales() -> None:
    outcome = outcome_of({"a": [1.0], "b": [2.0]}, tasks=("t", "u"))
    outcome.add(result("a", 0, 300.0, "u"))
    outcome.add(result("b", 0, 200.0, "u"))
    with pytest.raises(AssayError, match="needs scores between 0 and 1"):
        comparison.single_scores(outcome)


# ---------------------------------------------------------------------------------------------------- running
def test_runs_every_arm_on_every_task_and_seed_and_writes_what_it_found(tmp_path: Path) -> None:
    plan = setup(tmp_path / "c", tasks=("bandit", "chain"))
    outcome = comparison.run(plan)
    assert len(outcome.results) == 8
    assert not outcome.failures
    assert not outcome.missing
    saved = json.loads((tmp_path / "c/comparison.json").read_text())
    assert len(saved["runs"]) == 8
    assert [row["arm"] for row in saved["aggregate"]] == ["reinforce", "rloo"]
    paths = shown.save(outcome)
    assert {path.suffix for path in paths} >= {".html"}
    assert all(path.stat().st_size > 1000 for path in paths)


def test_paired_seeds_give_equal_words_equal_scores(tmp_path: Path) -> None:
    outcome = comparison.run(setup(tmp_path / "c", ("rloo", "rloo")))
    a, b = (outcome.table(name, [0, 1]) for name in ("rloo", "rloo-2"))
    assert np.array_equal(a, b)


def test_finished_runs_are_read_and_not_repeated(tmp_path: Path) -> None:
    first = comparison.run(setup(tmp_path / "c"))
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    again = comparison.run(setup(tmp_path / "c", seeds=3))
    assert len(again.results) == 6
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert np.array_equal(first.table("rloo", [0, 1]), again.table("rloo", [0, 1]))


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    comparison.run(setup(tmp_path / "c"))
    with pytest.raises(AssayError, match="holds a run with other settings"):
        comparison.run(setup(tmp_path / "c", options={"steps": 2, "settings": {"group_size": 2}}))


def test_a_run_that_fails_is_listed_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    outcome = comparison.run(setup(tmp_path / "c", ("rloo", "rloo:policy.weight_decay=1e40")))
    assert len(outcome.of("rloo")) == 2
    assert {failure.job.arm for failure in outcome.failures} == {"rloo:policy.weight_decay=1e40"}
    assert "guard" in outcome.failures[0].reason
    assert shown.task_table(comparison.rows(outcome), "bandit", "rloo").row_count == 2


def test_a_process_that_dies_is_a_failure_and_not_the_end(tmp_path: Path) -> None:
    jobs = [Job("a", "bandit", seed, tmp_path / f"{seed}", "rloo", {"steps": 5000}) for seed in (0, 1)]
    jobs.append(Job("b", "bandit", 0, tmp_path / "b", "rloo", QUICK))
    killed = []

    def kill(children: object) -> None:
        for child in children:  # type: ignore[attr-defined]
            if child.job.arm == "a" and child.process.pid not in killed and child.job.folder.exists():
                killed.append(child.process.pid)
                os.kill(child.process.pid, signal.SIGKILL)

    found = list(run_jobs(jobs, 2, watch=kill))
    assert [type(one) for one in found].count(Failure) == 2
    assert all("signal 9" in one.reason for one in found if isinstance(one, Failure))
    assert [one.job.arm for one in found if isinstance(one, Result)] == ["b"]


def test_no_run_starts_after_the_budget_and_what_is_missing_is_said(tmp_path: Path) -> None:
    outcome = comparison.run(setup(tmp_path / "c", seeds=40, minutes=0.02, workers=1))
    assert outcome.missing
    assert len(outcome.missing) + len(outcome.results) == 80
    assert json.loads((tmp_path / "c/comparison.json").read_text())["missing"]


def test_a_corrupt_journal_is_one_sentence(tmp_path: Path) -> None:
    comparison.run(setup(tmp_path / "c"))
    journal = next(tmp_path.rglob("metrics.jsonl"))
    text = journal.read_text().splitlines()
    journal.write_text("\n".join([text[0], "{broken", *text[2:]]) + "\n")
    with pytest.raises(AssayError, match=r"metrics\.jsonl"):
        comparison.run(setup(tmp_path / "c"))


def test_the_sequential_test_chooses_the_number_of_seeds(tmp_path: Path) -> None:
    test = SequentialTest(size=2, interims=2)
    outcome = comparison.run(setup(tmp_path / "c", ("rloo", "rloo"), seeds=None, test=test))
    assert outcome.decision is not None
    assert outcome.decision.finished
    assert [each["verdict"] for each in comparison.decided(outcome.decision)] == ["equal"]
    assert len(outcome.of("rloo")) == test.size * test.interims


OFTEN = {"steps": 20, "options": RunOptions(cadence=CadenceOptions(save_every="1steps"))}
PARENT = """
import sys
from pathlib import Path
from tests.runs.test_comparison import OFTEN, comparison, setup
comparison.run(setup(Path(sys.argv[1]), ("rloo", "reinforce"), options=OFTEN))
"""


def test_a_killed_comparison_leaves_no_orphans_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    parent = Process(PARENT, str(tmp_path / "cut"))
    deadline = time.monotonic() + 120
    while not list((tmp_path / "cut").glob("*/*/*/checkpoints/step-*")):
        assert time.monotonic() < deadline
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    assert parent.ended()[0] == -signal.SIGKILL
    for name in ("cut", "whole"):
        comparison.run(setup(tmp_path / name, ("rloo", "reinforce"), options=OFTEN))
    cut, whole = (json.loads((tmp_path / name / "comparison.json").read_text()) for name in ("cut", "whole"))
    assert [run["score"] for run in cut["runs"]] == [run["score"] for run in whole["runs"]]
    assert len(cut["runs"]) == 4


def test_an_unfinished_run_has_no_result(tmp_path: Path) -> None:
    job = Job("a", "bandit", 0, tmp_path, "rloo")
    assert result_of(job, 5) is None
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "evaluation": 1.0}\n')
    assert result_of(job, 5) is None
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "reward": 1.0}\n')
    with pytest.raises(AssayError, match="has no held-out score at its end"):
        result_of(job, 5)


def test_as_many_decisions_are_as_many_steps_as_each_needs(tmp_path: Path) -> None:
    plan = setup(tmp_path, ("ppo", "a2c"), options=of_decisions(1000))
    assert [plan.job(arm, "bandit", 0).plan().steps for arm in plan.arms] == [4, 8]
    rows = [{"task": "t", "decisions": value} for value in (100.0, 121.0)]
    assert shown.is_uneven(rows)
    assert not shown.is_uneven([rows[0], {"task": "u", "decisions": 900.0}, {"task": "t", "decisions": None}])


def test_scores_are_read_where_all_have_taken_as_many_decisions(tmp_path: Path) -> None:
    options = {"steps": 6, "options": RunOptions(cadence=CadenceOptions(evaluations=3))}
    outcome = comparison.run(setup(tmp_path, ("ppo", "a2c"), options=options, equal_decisions=True))
    level = outcome.levels["bandit"]
    assert level == outcome.of("a2c")[0].decisions < outcome.of("ppo")[0].decisions
    for found in outcome.of("ppo"):
        lines = [row for row in found.curves if "evaluation" in row]
        path = [row.get("decisions_total", 0) for row in lines]
        assert found.score == pytest.approx(np.interp(level, path, [row["evaluation"] for row in lines]))
    facts = json.loads((tmp_path / "comparison.json").read_text())
    shown_on_page = page.gather([tmp_path])
    assert facts["levels"] == shown_on_page["comparison"]["levels"] == {"bandit": level}
    for row, told in zip(facts["rows"], shown_on_page["comparison"]["rows"], strict=True):
        assert told["estimate"] == pytest.approx(row["score"]["value"], abs=1e-12)
    assert f"after {level:,} decisions on bandit" in shown_on_page["methods_text"]


def test_a_method_that_takes_no_decisions_is_not_compared_at_equally_many(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="but sft takes none"):
        comparison.run(setup(tmp_path, ("grpo", "sft"), tasks=("addition-1",), equal_decisions=True))


def test_other_code_is_not_mixed_with_what_was_run_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison.run(setup(tmp_path / "c", seeds=1))
    comparison.run(setup(tmp_path / "c", seeds=1))
    monkeypatch.setattr(comparison, "code_of", lambda modules: {"assay.parts.credit.outcome": "changed"})
    with pytest.raises(AssayError, match=r"started with other code \(assay\.parts\.credit\.outcome"):
        comparison.run(setup(tmp_path / "c", seeds=1))
