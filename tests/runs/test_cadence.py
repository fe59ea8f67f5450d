"""Evaluations by the plan, early stops, longer and warm-started runs, seeds, callbacks and sinks."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.cli import main as cli
from assay.core import store
from assay.core.errors import AssayError
from assay.engine import evaluation
from assay.runs import run
from assay.runs.folder import read_metrics, without_time
from assay.runs.jobs import run_jobs
from assay.runs.options import CadenceOptions, RunOptions
from assay.runs.plan import make_plan, plan_of, repeat_command
from assay.runs.pools import Job
from assay.runs.progress import Mode

BANDIT = {"rollout.num_starts": 2, "rollout.group_size": 2}


def trained(folder: Path, cadence: CadenceOptions = CadenceOptions(), **more: Any) -> run.Run:
    told: dict[str, Any] = {"steps": 4, "out": folder, "settings": BANDIT, "mode": Mode.SILENT}
    return run.train("reinforce", "bandit", options=RunOptions(cadence=cadence), **told | more)


# ---------------------------------------------------------------------------------------------------- evaluations
@pytest.mark.parametrize(("name", "task"), [("ppo", "cartpole"), ("grpo", "sorting-5"), ("sac", "pendulum")])
@pytest.mark.parametrize("steps", [7, 100, 1000])
def test_evaluated_decisions_are_at_most_a_tenth_of_those_trained(name: str, task: str, steps: int) -> None:
    plan = make_plan(name, task, steps=steps)
    evaluated = evaluation.default_starts(plan.task) * evaluation.most_decisions(plan.task)
    within = [step for step in range(1, steps) if plan.is_evaluated(step)]
    assert len(within) <= 10
    if within:  # else only the two that always happen
        trained_on = steps * evaluation.trained_decisions(plan.recipe, plan.task)
        assert (len(within) + 2) * evaluated <= 0.1 * trained_on
    assert plan.is_evaluated(steps)


def test_the_readmes_run_on_halfcheetah_is_evaluated_on_a_tenth_of_the_trained_transitions() -> None:
    plan = make_plan("sac", "pendulum", steps=500)
    assert evaluation.trained_decisions(plan.recipe, plan.task) == 8 * 256
    assert evaluation.evaluated_every(plan.recipe, plan.task, 500, num=20) == 50
    assert evaluation.evaluated_every(plan.recipe, plan.task, 500, num=100) == 125  # as many decisions as HalfCheetah's
    assert evaluation.evaluated_every(plan.recipe, plan.task, 500, num=200) == 0
    assert evaluation.evaluated_every(plan.recipe, plan.task, 500, num=2000) == 0


def test_number_and_size_of_evaluations_are_options_that_decide(tmp_path: Path) -> None:
    cadence = CadenceOptions(evaluations=2, eval_episodes=3)
    done = trained(tmp_path / "run", cadence)
    assert done.curve("evaluation")[0] == [0, 2, 4]
    assert len(done.scores_after) == 3
    plan = make_plan("reinforce", "bandit", steps=4, settings=BANDIT, options=RunOptions(cadence=cadence))
    assert repeat_command(plan).count("--evaluations 2 --eval-episodes 3") == 1
    assert plan.config()["fingerprint"] == plan_of(tmp_path / "run").config()["fingerprint"]
    assert plan.config()["fingerprint"] != make_plan("reinforce", "bandit", steps=4).config()["fingerprint"]
    with pytest.raises(AssayError, match=r"--eval-prompts is 3, but the task has episodes. Use --eval-episodes"):
        make_plan("ppo", "cartpole", options=RunOptions(cadence=CadenceOptions(eval_prompts=3)))


def test_compared_runs_keep_ten_evaluations_unless_asked(tmp_path: Path) -> None:
    job = Job("ppo", "cartpole", 0, tmp_path, "ppo", {"steps": 50})
    assert job.plan().evaluate_every == 5
    asked = RunOptions(cadence=CadenceOptions(evaluations=2))
    assert Job("ppo", "cartpole", 0, tmp_path, "ppo", {"steps": 50, "options": asked}).plan().evaluate_every == 25


# ---------------------------------------------------------------------------------------------------- the end
def test_a_run_ends_when_its_score_is_reached_and_says_so(tmp_path: Path) -> None:
    cadence = CadenceOptions(evaluations=20, until="score=0.5")
    done = trained(tmp_path / "run", cadence, steps=20)
    last = done.curves[-1]
    assert 0 < last["step"] < 20
    assert last["evaluation"] >= 0.5 > done.curves[last["step"] - 1]["evaluation"]
    assert last["ended"] == done.ended == f"the held-out score {last['evaluation']:.4g} reached 0.5"
    assert f"Finished after {last['step']} steps: {done.ended}." in (tmp_path / "run" / "README.md").read_text()
    again = run.resume(tmp_path / "run", mode=Mode.SILENT)
    assert (again.ended, len(again.curves)) == (done.ended, len(done.curves)), "it counts as finished"
    longer = run.resume(tmp_path / "run", more_steps=3, mode=Mode.SILENT)
    assert longer.curves[-1]["step"] > last["step"]


@pytest.mark.parametrize("text", ["0.9", "score", "score=high", "reward=1", "score=inf"])
def test_another_target_is_refused(text: str) -> None:
    with pytest.raises(AssayError, match=f"--until is '{text}'"):
        CadenceOptions(until=text).check()


def test_a_finished_run_trains_on_and_its_first_steps_are_those_it_had(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = trained(folder, CadenceOptions(evaluations=2))
    more = run.resume(folder, more_steps=3, mode=Mode.SILENT)
    assert [row["step"] for row in more.curves] == list(range(8))
    assert without_time(more.curves[:5]) == without_time(first.curves)
    assert plan_of(folder).more_steps == 3
    assert run.resume(folder, mode=Mode.SILENT).curves[-1]["step"] == 7
    assert run.resume(folder, more_steps=1, mode=Mode.SILENT).curves[-1]["step"] == 8


def test_the_words_of_a_finished_run_with_more_steps_train_it_further(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    words = ["train", "reinforce", "--task", "bandit", "--steps", "2", "--set", "rollout.num_starts=2", "--keep", "1"]
    assert cli.main([*words, "--out", str(folder), "--json"]) == 0
    for last in (3, 4):
        assert cli.main([*words, "--out", str(folder), "--more-steps", "1", "--json"]) == 0
        assert read_metrics(folder)[-1]["step"] == last
    assert cli.main(["train", "--out", str(folder), "--more-steps", "1", "--json"]) == 0, "the folder is enough"
    capsys.readouterr()
    assert cli.main([*words, "--out", str(folder), "--more-steps", "1", "--keep", "3"]) == 2
    assert "--more-steps keeps the settings of" in capsys.readouterr().err
    assert read_metrics(folder)[-1]["step"] == 5


def test_schedules_stay_at_their_last_value_in_added_steps(tmp_path: Path) -> None:
    seen = []
    trained(tmp_path / "run")
    plan = run.extended(plan_of(tmp_path / "run"), tmp_path / "run", 4)
    assert (plan.steps, plan.last_step) == (4, 8)
    run.resume(tmp_path / "run", more_steps=4, callbacks=(lambda *told: seen.append(told[0]),), mode=Mode.SILENT)
    assert seen == [5, 6, 7, 8]
    saved = store.load(tmp_path / "run" / "checkpoints")
    assert saved is not None
    assert saved.tree["loop"]["progress"]["num_steps"] == 4, "schedules see the planned steps"


def test_more_steps_of_an_unfinished_run_are_refused(tmp_path: Path) -> None:
    def stop(step: int, metrics: Any, policy: Any) -> None:
        raise ValueError

    with pytest.raises(AssayError):
        trained(tmp_path / "run", callbacks=(stop,))
    with pytest.raises(AssayError, match=r"--more-steps is 3, but .* is at step 1 of 4. Finish it first"):
        run.resume(tmp_path / "run", more_steps=3)


# ---------------------------------------------------------------------------------------------------- warm starts
def test_a_run_starts_from_the_weights_of_another(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    cadence = CadenceOptions(from_=str(tmp_path / "first"))
    second = trained(tmp_path / "second", cadence, seed=7)
    assert second.scores_before.tolist() == first.scores_after.tolist()
    config = json.loads((tmp_path / "second" / "config.json").read_text())
    assert config["start"]["path"] == str(tmp_path / "first" / "checkpoints" / "step-00000004")
    other = make_plan("reinforce", "bandit", steps=4, settings=BANDIT, seed=7)
    assert other.config()["fingerprint"] != config["fingerprint"]
    run.resume(tmp_path / "first", more_steps=1, mode=Mode.SILENT)
    assert run.resume(tmp_path / "second", mode=Mode.SILENT).curves[-1]["step"] == 4, "the hash is that of the start"


def test_a_start_with_other_shapes_is_refused_by_weight(tmp_path: Path) -> None:
    small = {"rollout.num_envs": 2, "rollout.steps": 4, "actor.hidden": "4", "critics.value.hidden": "4"}
    told: dict[str, Any] = {"steps": 1, "mode": Mode.SILENT, "evaluations": 0}
    run.train("ppo", "cartpole", out=tmp_path / "a", settings=small, **told)
    options = RunOptions(cadence=CadenceOptions(from_=str(tmp_path / "a")))
    with pytest.raises(AssayError, match=r"the weight actor\..* has shape \[4, 4\] there and has shape \[8, 4\] here"):
        run.train(
            "ppo", "cartpole", out=tmp_path / "b", settings=small | {"actor.hidden": "8"}, options=options, **told
        )
    with pytest.raises(AssayError, match="is not a run folder"):
        make_plan("ppo", "cartpole", options=RunOptions(cadence=CadenceOptions(from_=str(tmp_path / "none"))))


# ---------------------------------------------------------------------------------------------------- seeds
def test_seeds_train_in_parallel_and_have_a_row_over_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "reinforce", "--task", "bandit", "--steps", "3", "--seeds", "2", "--out", str(tmp_path / "runs")]
    assert cli.main([*words, "--jobs", "2"]) == 0
    printed = capsys.readouterr().out
    assert "2 seeds" in printed
    assert printed.count("(1 of 2)") == printed.count("(2 of 2)") == 1
    alone = run.train("reinforce", "bandit", steps=3, seed=1, out=tmp_path / "alone", mode=Mode.SILENT)
    there = read_metrics(tmp_path / "runs" / "seed-1")
    assert without_time(alone.curves) == without_time(there)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--steps", "1" + "0" * 20], "steps is 100000000000000000000. Use at most 1,000,000,000"),
        (["--seeds", "2", "--jobs", "-1"], "--jobs is -1. Use at least 1"),
        (["--keep", "0"], "--keep is 0"),
        (["--evaluations", "-1"], "evaluations is -1"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["train", "reinforce", "--task", "bandit", "--out", str(tmp_path / "run"), *words]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_half_a_step_an_empty_task_and_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"steps is 1\.5\. Use a whole number"):
        make_plan("ppo", "cartpole", steps=1.5)  # type: ignore[arg-type]
    with pytest.raises(AssayError, match="--task is empty"):
        make_plan("ppo", "")
    with pytest.raises(AssayError, match="--jobs is -1"):
        list(run_jobs([Job("ppo", "cartpole", 0, tmp_path, "ppo")], -1))


# ---------------------------------------------------------------------------------------------------- listeners
class Kept:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, float]] = {}

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows[step] = dict(metrics)

    def close(self) -> None:
        pass


def test_sinks_get_scores_decisions_times_and_alarms(tmp_path: Path) -> None:
    sink = Kept()
    done = trained(tmp_path / "run", CadenceOptions(evaluations=2), steps=6, sinks=(sink,))
    steps, scores = done.curve("evaluation")
    assert [sink.rows[step]["evaluation"] for step in steps] == scores
    assert sink.rows[6]["decisions_total"] == done.curves[-1]["decisions_total"]
    assert sink.rows[6]["time/update"] > 0
    assert all(math.isfinite(value) for value in sink.rows[6].values())
    alarms = {name for row in sink.rows.values() for name in row if name.startswith("alarms/")}
    assert alarms == {f"alarms/{alarm.guard}" for alarm in done.alarms}


def test_a_callback_sees_every_step_and_may_end_the_run(tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    def watch(step: int, metrics: Mapping[str, Any], policy: torch.nn.Module) -> str | None:
        seen.append((step, metrics["reward"]))
        assert isinstance(policy, torch.nn.Module)
        return "enough" if step == 3 else None

    done = trained(tmp_path / "run", steps=9, callbacks=(watch,))
    assert [step for step, _ in seen] == [1, 2, 3]
    assert done.ended == "enough"
    assert len(done.scores_after)
    assert run.resume(tmp_path / "run", mode=Mode.SILENT).ended == "enough"


def test_an_error_in_a_callback_names_it_and_the_run_goes_on_to_the_same_end(tmp_path: Path) -> None:
    def broken(step: int, metrics: Mapping[str, Any], policy: Any) -> None:
        if step == 2:
            raise RuntimeError("no network")

    named = r"broken' raised RuntimeError at step 2: no network. The run is saved; fix the callback and resume"
    with pytest.raises(AssayError, match=named):
        trained(tmp_path / "run", callbacks=(broken,))
    assert store.saved_steps(tmp_path / "run" / "checkpoints") == [2]
    whole = trained(tmp_path / "whole")
    assert without_time(run.resume(tmp_path / "run", mode=Mode.SILENT).curves) == without_time(whole.curves)


# ---------------------------------------------------------------------------------------------------- received folders
@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl", store.LOCK])
def test_nothing_is_written_through_a_symbolic_link(name: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside.txt"
    trained(folder)
    outside.write_text("mine")
    (folder / name).unlink()
    (folder / name).symlink_to(outside)
    with pytest.raises(AssayError, match=f"{name} is a symbolic link"):
        run.resume(folder, mode=Mode.SILENT)
    assert outside.read_text() == "mine"


def test_a_pipe_in_place_of_a_journal_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    os.mkfifo(tmp_path / "run" / "metrics.jsonl")
    with pytest.raises(AssayError, match=r"no plain file|not a plain file"):
        run.resume(tmp_path / "run", mode=Mode.SILENT)


def test_a_lock_is_asked_of_the_kernel(tmp_path: Path) -> None:
    assert not store.is_locked(tmp_path)
    with store.lock(tmp_path):
        assert store.is_locked(tmp_path)
    (tmp_path / store.LOCK).write_text(f"process {os.getpid()} on {os.uname().nodename} since 2026-01-01 00:00:00")
    assert not store.is_locked(tmp_path), "a text is not a lock"
