"""Own rewards: weights, rows to which one does not apply, the verifier by name, and one call before a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import assay
from assay.core.errors import AssayError, DataWarning
from assay.core.record import Score
from assay.runs.options import OwnOptions, RunOptions
from assay.runs.plan import make_plan
from assay.runs.run import Run
from assay.runs.user_code.rewards import OwnRewards, with_rewards
from assay.runs.user_code.running import try_rewards
from assay.tasks.language.addition import addition
from assay.tasks.language.prompts import PromptTask

FILE = """
def correct(prompts, completions, answer):
    return [float(said == right) for said, right in zip(completions, answer)]

async def short(completions):
    return [None if said.endswith("1") else 1.0 / (1 + len(said)) for said in completions]

def fails_on_noise(rows):
    return [1.0 / float(row["completion"] == "" or row["completion"].isdigit()) for row in rows]

def long(rows):
    return [float(len(row["completion"])) for row in rows]

def leaves(rows):
    raise SystemExit(0)
"""
SETTINGS = {"rollout.num_starts": 2, "rollout.group_size": 2}


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "rewards.py").write_text(FILE)
    return str(tmp_path / "rewards.py")


def trained(tmp_path: Path, *rewards: str) -> Run:
    """Returns a run of one step with these rewards."""
    options = RunOptions(own=OwnOptions(reward=rewards))
    return assay.train(
        "grpo", "addition-1", steps=1, warmup=1, settings=SETTINGS, options=options, out=tmp_path / "run"
    )


def scorer_of(*words: str) -> OwnRewards:
    task = with_rewards(addition(1), words, 60.0)
    assert isinstance(task, PromptTask)
    assert isinstance(task.scorer, OwnRewards)
    return task.scorer


def test_rewards_add_up_with_weights_and_leave_out_what_does_not_apply(file: str) -> None:
    scorer = scorer_of(f"{file}:correct=2", f"{file}:short=0.5")
    rows = [{"prompt": "", "completion": said, "answer": "11"} for said in ("11", "222")]
    outcomes, table = scorer(rows, list)
    assert outcomes == [Score(2.0), Score(0.5 / 4)]
    assert table["correct"] == [1.0, 0.0]
    np.testing.assert_equal(np.asarray(table["short"]), [np.nan, 0.25])


def test_a_row_without_any_reward_is_an_error(file: str) -> None:
    with pytest.raises(AssayError, match="no reward applies to row 0"):
        scorer_of(f"{file}:short")([{"prompt": "", "completion": "1", "answer": ""}], list)


def test_the_verifier_is_a_reward_by_name(file: str) -> None:
    scorer = scorer_of(f"{file}:correct", "verifier=0.5")
    outcomes, table = scorer([{"prompt": "", "completion": "3", "answer": "3"}], lambda: [Score(1.0)])
    assert outcomes == [Score(1.5)]
    assert table == {"correct": [1.0], "verifier": [1.0]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{file}:correct=much", "the weight 'much' is not a number"),
        ("nothing.py:reward", "there is no file 'nothing.py'"),
        ("no_such:reward", "'no_such' is neither a Python file nor a module"),
        ("{file}", "has these reward functions: correct, short, fails_on_noise, long, leaves. Name one"),
        ("{file}:other", "has no 'other'"),
    ],
)
def test_a_reward_that_cannot_be_found_is_refused(file: str, words: str, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        with_rewards(addition(1), [words.format(file=file)], 60.0)


def test_rewards_are_logged_apart_and_are_what_is_evaluated(file: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="correct, short; the task's own verifier is not used"):
        run = trained(tmp_path, f"{file}:correct", f"{file}:short=0.5")
    last = run.curves[-1]
    assert {"reward/correct", "reward/short"} <= set(last)
    held_out = last["evaluation_reward/correct"]
    assert last["evaluation"] > held_out  # the mean of both, not of the verifier


def test_sft_says_that_it_trains_on_answers_and_not_on_the_reward(file: str) -> None:
    """It said "rewards and held-out scores are correct", and no reward is asked while it trains."""
    plan = make_plan("sft", "addition-1", options=RunOptions(own=OwnOptions(reward=(f"{file}:correct",))))
    with pytest.warns(
        DataWarning, match="sft learns from the task's own answers; by correct only held-out samples are"
    ):
        try_rewards(plan.task, plan.recipe)


def test_from_python_what_adds_the_verifier_is_a_keyword(file: str) -> None:
    """It was `--reward verifier=1.0`, which is no Python."""
    plan = make_plan("grpo", "addition-1", options=RunOptions(own=OwnOptions(reward=(f"{file}:correct",))))
    with pytest.warns(DataWarning, match=r"not used \(reward=\[\.\.\., 'verifier'\] adds it\)"):
        try_rewards(plan.task, plan.recipe)


def test_a_broken_reward_is_found_before_anything_is_spent(file: str, tmp_path: Path) -> None:
    with pytest.raises(
        AssayError, match=r"reward leaves raised SystemExit.*Nothing was spent: fix it and start the run"
    ):
        trained(tmp_path, f"{file}:leaves")
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_reward_that_fails_later_names_the_row_and_the_command(file: str, tmp_path: Path) -> None:
    words = r"reward fails_on_noise raised ZeroDivisionError.* on row \d+.*resume with: assay resume .*run"
    with pytest.warns(UserWarning, match="verifier"), pytest.raises(AssayError, match=words):
        trained(tmp_path, f"{file}:fails_on_noise")


def test_a_control_task_has_no_completions_to_reward(file: str) -> None:
    with pytest.raises(AssayError, match="--reward scores completions; task 'cartpole' has none"):
        assay.train("ppo", "cartpole", options=RunOptions(own=OwnOptions(reward=(f"{file}:correct",))))


def test_prompts_without_answers_are_enough_for_a_reward(file: str, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "Say {k}.", "tests": [{k}, {{"a": 1}}]}}\n' for k in range(30)))
    options = RunOptions(own=OwnOptions(reward=(f"{file}:long",)))
    plan = make_plan("grpo", str(prompts), options=options)
    assert isinstance(plan.task, PromptTask)
    assert plan.warmup == 0
    item = plan.task.items.item(0, 0)
    assert item.answer == ""
    assert item.facts["tests"] == [int(item.prompt[4:-1]), {"a": 1}], "any field of a row is a column of rewards"
    with pytest.raises(AssayError, match=r"'tests' is .* must be a list of assertions"):
        make_plan("grpo", str(prompts))
