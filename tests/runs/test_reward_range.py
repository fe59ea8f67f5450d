"""The range of rewards: declared beside a function or by an option, mapped to 0..1, checked on every batch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from assay.core.calls import OwnCodeError
from assay.core.errors import AssayError
from assay.core.record import Score
from assay.core.score_range import Range
from assay.core.settings import describe
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.parts.rewards.function import FromFunction
from assay.runs import catalogue
from assay.runs.options import OwnOptions, RunOptions
from assay.runs.plan import make_plan
from assay.runs.ranges import known_range, range_of
from assay.runs.user_code.reward_range import Ranged, with_range
from assay.runs.user_code.rewards import with_rewards
from assay.runs.user_code.running import try_rewards
from assay.tasks.language.addition import addition
from assay.tasks.language.prompts import PromptTask

FILE = """
def bare(completions, answer):
    return [1.0 if said == right else -1.0 for said, right in zip(completions, answer)]

def sign(completions, answer):
    return [1.0 if said == right else -1.0 for said, right in zip(completions, answer)]
sign.range = (-1, 1)

def stars(completions):
    return [float(len(said) % 6) for said in completions]
stars.range = (0, 5)

def length(completions):
    return [float(len(said) > 1) * 7.0 for said in completions]
length.range = (0, 1)

def turned(completions):
    return [0.0 for said in completions]
turned.range = (1, 0)

def rare(completions):
    return [0.0 if said == "" or said.isdigit() else -2.0 for said in completions]
"""
SETTINGS = {"rollout.num_starts": 2, "rollout.group_size": 2}


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "rewards.py").write_text(FILE)
    return str(tmp_path / "rewards.py")


def ranged(words: list[str], whole: Range | None = None) -> PromptTask:
    task = with_range(with_rewards(addition(1), words, 60.0), whole)
    assert isinstance(task, PromptTask)
    return task


def scores(task: PromptTask, *completions: str) -> list[float]:
    """Returns the scores of completions whose answer is 11."""
    assert task.scorer is not None
    rows = [{"prompt": "5+6=", "completion": said, "answer": "11"} for said in completions]
    outcomes, _ = task.scorer(rows, lambda: [Score(0.5)] * len(rows))
    return [one.value for one in outcomes if isinstance(one, Score)]


def test_a_declared_range_is_mapped_to_0_and_1(file: str) -> None:
    assert scores(ranged([f"{file}:sign"]), "11", "12") == [1.0, 0.0]
    assert scores(ranged([f"{file}:stars"]), "", "12", "12345") == [0.0, 0.4, 1.0]
    assert scores(ranged([f"{file}:bare"], (-1.0, 1.0)), "11", "12") == [1.0, 0.0]
    assert ranged([f"{file}:sign"]).spec.scores == (0.0, 1.0)
    assert with_rewards(addition(1), [f"{file}:bare"], 60.0).spec.scores is None


def test_ranges_of_several_rewards_add_up_by_their_weights(file: str) -> None:
    # sign is in -1..1 and weighs 2, stars are in 0..5 and weigh -1: the sum is in -7..2.
    found = scores(ranged([f"{file}:sign=2", f"{file}:stars=-1"]), "11", "12", "12345")
    assert found == pytest.approx([(2 - 2 + 7) / 9, (-2 - 2 + 7) / 9, (-2 - 5 + 7) / 9])
    # The verifier declares none, so that its range is 0..1: here it says 1/2 of everything.
    assert scores(ranged([f"{file}:sign", "verifier=2"]), "11") == pytest.approx([(1 + 1 + 1) / 4])
    # A weight of 0 logs a reward and neither checks nor counts it.
    assert scores(ranged([f"{file}:sign", f"{file}:length=0"]), "11", "12") == [1.0, 0.0]


def test_without_a_range_the_numbers_are_the_function_s_own(file: str) -> None:
    assert scores(ranged([f"{file}:bare"]), "11", "12") == [1.0, -1.0]


def test_a_number_outside_of_its_range_names_function_value_row_and_both_fixes(file: str) -> None:
    words = (
        r"reward length is 7 for row 1 \(prompt '5\+6=', completion '12'\), outside of the range 0 to 1\. Return "
        r"numbers inside of it, or declare the range: NAME\.range = \(0, 7\) beside the function, or --reward-range 0 7"
    )
    with pytest.raises(OwnCodeError, match=words):
        scores(ranged([f"{file}:length"]), "", "12")
    with pytest.raises(OwnCodeError, match=r"reward bare is -1 for row 0 .* --reward-range -1 0\.5"):
        scores(ranged([f"{file}:bare"], (0.0, 0.5)), "12")


def test_a_range_that_is_none_is_refused(file: str) -> None:
    with pytest.raises(AssayError, match=r"turned\.range is \(1, 0\)\. Use two finite numbers, the lower one first"):
        ranged([f"{file}:turned"])
    with pytest.raises(AssayError, match="--reward-range is 1 1"):
        OwnOptions(reward_range=(1.0, 1.0)).check()
    with pytest.raises(AssayError, match="--reward-range is the range of rewards of completions; task 'cartpole'"):
        make_plan("ppo", "cartpole", options=RunOptions(own=OwnOptions(reward_range=(-1.0, 1.0))))


@pytest.mark.parametrize("method", ["nsr", "oreal", "direct-advantage-po", "a-grae", "laser", "pacs"])
def test_methods_that_read_right_and_wrong_refuse_a_wrong_answer_of_minus_1_before_training(
    method: str, file: str
) -> None:
    recipe = catalogue.recipe_for(method, addition(1), {})
    with pytest.raises(
        AssayError, match=r"reward bare is -1 for row 4 .*reads rewards as right \(above 1/2\) or wrong"
    ):
        try_rewards(with_rewards(addition(1), [f"{file}:bare"], 60.0), recipe)
    with pytest.warns(UserWarning, match="verifier is not used"):
        try_rewards(ranged([f"{file}:sign"]), recipe)


def test_methods_that_compare_rewards_take_any_number(file: str) -> None:
    with pytest.warns(UserWarning, match="verifier is not used"):
        try_rewards(with_rewards(addition(1), [f"{file}:bare"], 60.0), catalogue.recipe_for("grpo", addition(1), {}))


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_every_batch_is_checked_and_the_run_resumes_with_a_declared_range(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli.main import main

    out = tmp_path / "run"
    words = ["--task", "addition-1", "--steps", "1", "--warmup", "0", "--eval-prompts", "4", "--out", str(out)]
    words += [f"--set={name}={value}" for name, value in SETTINGS.items()]
    assert main(["train", "nsr", *words, "--reward", f"{file}:rare", "--json"]) == 2
    said = capsys.readouterr().err
    assert "reward rare is -2 for row " in said
    assert "--accept-changed-code" in said
    with open(file, "a") as code:
        code.write("rare.range = (-2, 0)\n")
    assert main(["resume", str(out), "--accept-changed-code", "--json"]) == 0, capsys.readouterr().err
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["reward/rare"] < 0.0 <= last["reward"] <= 1.0


def test_the_range_is_an_option_of_the_command_line(file: str, tmp_path: Path) -> None:
    options = RunOptions(own=OwnOptions(reward=(f"{file}:bare",), reward_range=(-1.0, 1.0)))
    assert options.words()[-3:] == ["--reward-range", "-1.0", "1.0"]
    plan = make_plan("nsr", "addition-1", options=options)
    assert isinstance(plan.task, PromptTask)
    assert isinstance(plan.task.scorer, Ranged)
    assert plan.task.scorer.whole == (-1.0, 1.0)


def test_returns_that_are_neither_right_nor_wrong_are_refused_before_an_update() -> None:
    task = catalogue.find_task("cartpole")
    recipe = catalogue.recipe_for("nsr", task, {}).set("rollout.num_starts", 1).set("rollout.group_size", 2)
    loop = Loop(recipe, task, seed=0, num_steps=1)
    with pytest.raises(AssayError, match=r"RightOrWrong of 'nsr' reads .* 'cartpole' has the return \d+\. Use"):
        loop.step()
    assert loop.engine.updates == 0


def test_a_function_in_a_recipe_has_its_range_too() -> None:
    def sign(rows: list[dict[str, str]]) -> list[float]:
        return [1.0 if row["completion"] == row["answer"] else -1.0 for row in rows]

    sign.range = (-1, 1)  # type: ignore[attr-defined]
    task = addition(1)
    shown = task.demonstrate(np.arange(4), 0)
    assert FromFunction(sign)(shown, Scene(task)).column("score").tolist() == [1.0] * 4
    sign.range = (0, 1)  # type: ignore[attr-defined]
    wrong = shown.with_columns(action=shown.action.flip(0))
    with pytest.raises(OwnCodeError, match=r"reward sign is -1 for row 0 .*outside of the range 0 to 1"):
        FromFunction(sign)(wrong, Scene(task))


def test_intervals_know_the_range_of_mapped_scores(file: str) -> None:
    assert range_of(ranged([f"{file}:sign"])) == (0.0, 1.0)
    assert known_range({"task_settings": describe(ranged([f"{file}:sign"]))}) == (0.0, 1.0)
    assert range_of(with_rewards(addition(1), [f"{file}:bare"], 60.0)) is None
