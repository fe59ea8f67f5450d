"""Every command that runs something takes device, compiled layers, dtype, micro-batch, model and settings."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

import assay
from assay.claims import measuring
from assay.claims.find import find_claims
from assay.cli.claim_commands import changed_plans
from assay.cli.main import main, parser
from assay.core.errors import AssayError
from assay.engine.placement import Placement
from assay.runs.options import LanguageOptions, RunOptions
from assay.runs.options.scoring import RebuiltOptions
from assay.runs.plan import make_plan, plan_of
from assay.runs.progress import Mode
from assay.runs.rebuilt import rebuilt_plan

WHERE = {"--device", "--compiled", "--dtype", "--micro-batch", "--model", "--set"}
RUNNING = ("train", "compare", "ablate", "tune", "evaluate", "reproduce", "claim")


def options_of(name: str) -> set[str]:
    """The long options of a command."""
    (commands,) = [one for one in parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return {word for action in commands.choices[name]._actions for word in action.option_strings}


@pytest.mark.parametrize("name", RUNNING)
def test_every_command_that_runs_something_says_where_and_how(name: str) -> None:
    assert options_of(name) >= WHERE


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; to be read only."""
    folder = tmp_path_factory.mktemp("where") / "run"
    assay.train("reinforce", "bandit", steps=2, out=folder, mode=Mode.SILENT)
    return folder


def test_a_run_is_built_again_as_it_was_unless_options_say_otherwise(run: Path) -> None:
    plan = plan_of(run)
    assert rebuilt_plan(plan, RebuiltOptions(), {}).config() == plan.config()
    told = RebuiltOptions(device="cuda", compiled=False, micro_batch=3, set_=("policy.learning_rate=0.5",))
    with pytest.raises(AssayError, match="cuda"):
        rebuilt_plan(plan, told, {})
    other = rebuilt_plan(plan, RebuiltOptions(compiled=False, micro_batch=3, set_=told.set_), {})
    assert other.placement == Placement(micro_batch=3)
    assert other.settings == {"policy.learning_rate": "0.5"}
    with pytest.raises(AssayError, match="--dtype needs a pretrained model"):
        rebuilt_plan(plan, RebuiltOptions(dtype="bfloat16"), {})
    with pytest.raises(AssayError, match="--dtype is 'half'"):
        RebuiltOptions(dtype="half").check()


def test_an_evaluation_is_the_same_in_smaller_parts_and_takes_settings(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(run), "--starts", "12", "--json"]
    assert main(words) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*words, "--micro-batch", "5", "--device", "cpu", "--no-compiled"]) == 0
    assert json.loads(capsys.readouterr().out) == plain
    assert main([*words, "--set", "nothing=1"]) == 2
    assert "has no setting 'nothing'" in capsys.readouterr().err
    assert main([*words, "--micro-batch", "-1"]) == 2


def test_a_run_is_reproduced_in_smaller_parts(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", str(run), "--micro-batch", "7", "--out", str(tmp_path / "again"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] in ("equal bitwise", "within the tolerance")
    assert plan_of(tmp_path / "again").placement.micro_batch == 7


def test_a_claim_is_measured_elsewhere_beside_its_verdict_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claim", "grpo", "--micro-batch", "8", "--set", "policy.learning_rate=0.1"]) == 2
    assert "Add --replicate" in " ".join(capsys.readouterr().err.split())
    plain = parser().parse_args(["claim", "grpo", "--replicate"])
    assert changed_plans(plain) == {}
    told = ["--micro-batch", "8", "--set", "policy.learning_rate=0.1", "--dtype", "bfloat16"]
    how = changed_plans(parser().parse_args(["claim", "grpo", "--replicate", *told]))
    assert how == {
        "settings": {"policy.learning_rate": "0.1"},
        "placement": Placement(micro_batch=8),
        "options": RunOptions(language=LanguageOptions(dtype="bfloat16")),
    }
    one = next(claim for claim in find_claims("grpo").measured if measuring.is_recipe(claim, "ours"))
    job = measuring.job_of(one, "ours", 0, Path("work"), {"settings": how["settings"], "placement": how["placement"]})
    assert job.plan().placement.micro_batch == 8
    assert make_plan(one.ours, one.task, **job.options).settings == how["settings"]
