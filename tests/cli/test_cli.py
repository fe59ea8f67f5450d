"""The command line: every command, for people and for programs; and every bad input is one sentence with its fix."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.claims.laws.file import check_file
from assay.cli import check_command
from assay.cli import main as cli
from assay.core import store
from assay.runs import catalogue
from assay.runs.folder import METRICS
from tests import warm

BANDIT = ["reinforce", "--task", "bandit", "--steps", "3"]
Answer = tuple[int, str, str]
Command = Callable[..., Answer]


@pytest.fixture
def assay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str | Path) -> Answer:
        capfd.readouterr()
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as left:
            code = int(left.code or 0)
        out, errors = capfd.readouterr()
        return code, out, errors

    return run


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """`assay check` without a process of its own, which tests/claims/test_file.py holds equal to this and in bounds."""
    monkeypatch.setattr(check_command, "check_file_apart", check_file)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; to be read only."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert cli.main(["train", *BANDIT, "--out", str(folder), "--json"]) == 0
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A finished run of a test's own."""
    assert cli.main(["train", *BANDIT, "--save-every", "1steps", "--out", str(tmp_path / "run"), "--json"]) == 0
    return tmp_path / "run"


# ---------------------------------------------------------------------------------------------------- for programs
def answered(answer: Answer, code: int = 0) -> Any:
    """The JSON on stdout, which is all that was written."""
    assert (answer[0], answer[2]) == (code, "")
    return json.loads(answer[1])


def test_list_gives_every_method_with_its_parts_and_claims(assay: Command) -> None:
    rows = answered(assay("list", "--json"))
    assert sorted(row["name"] for row in rows) == sorted(catalogue.methods())
    for row in rows:
        assert {"name", "family", "base", "paper", "kinds", "parts", "claims", "verdict", "state"} <= set(row)
        assert row["parts"]
        assert all(isinstance(part, str) for part in row["parts"])
        assert row["claims"]
        assert row["verdict"] is None or "verdict" in row["verdict"]


def test_the_former_name_of_kind_works_and_warns(assay: Command) -> None:
    with pytest.warns(DeprecationWarning, match="--world is now --kind"):
        former = assay("list", "--world", "continuous-control", "--json")
    assert former[:2] == assay("list", "--kind", "continuous-control", "--json")[:2]


@pytest.mark.parametrize("name", sorted(catalogue.methods()))
def test_show_gives_the_formula_the_settings_and_the_departures(assay: Command, name: str) -> None:
    facts = answered(assay("show", name, "--json"))
    assert facts["name"] == name
    assert {"text", "parts", "recipe", "settings", "departs", "claims", "verdict", "paper", "kinds"} <= set(facts)
    code, out, errors = assay("show", name)
    assert (code, errors) == (0, "")
    assert all(word in out for word in (name, "family", "base" if facts["base"] is None else "what it changes in"))
    assert all(word in out for word in ("departures from the paper", "claim", "--all"))


def test_show_lists_the_settings_only_where_all_are_wanted(assay: Command) -> None:
    short, long = (assay("show", "uni-o4", *more)[1] for more in ([], ["--all"]))
    assert "policy.optimizer.betas" not in short
    assert "stages.policy.optimizer.betas = [0.9, 0.999]" in long
    assert len(short.splitlines()) < 70 < len(long.splitlines())


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["long context"], {"delethink", "longrlvr", "t-ppo"}),
        (["--family", "long context"], {"delethink", "longrlvr", "t-ppo"}),
        (["--changes", "certificate"], {"hc-rlhf"}),
        (["--changes", "reward", "--kind", "language", "--family", "preference"], {"arenarl", "mpo-meta", "spct-grm"}),
        (
            ["--kind", "preference-pairs"],
            {"sft", "dpo", "ipo", "simpo", "orpo", "copg", "dpo-q-function", "reward-model"},
        ),
    ],
)
def test_list_keeps_what_is_asked_for(assay: Command, words: list[str], kept: set[str]) -> None:
    assert {row["name"] for row in answered(assay("list", *words, "--json"))} == kept
    code, out, errors = assay("list", *words)
    assert (code, errors) == (0, "")
    assert all(name in out for name in kept)


def test_list_by_verdict(assay: Command) -> None:
    rows = answered(assay("list", "--verdict", "fails", "--json"))
    assert rows
    assert {row["headline"] for row in rows} == {"fails"}
    answered(assay("list", "--verdict", "stale", "--json"))


def test_diff_says_what_a_method_changes(assay: Command) -> None:
    facts = answered(assay("diff", "dapo", "--json"))
    assert (facts["before"], facts["after"]) == ("grpo", "dapo")
    found = {change["path"]: (change["before"], change["after"]) for change in facts["changes"]}
    assert found["stages.policy.objective.PolicyGradient.trust.high"] == ("0.2", "0.28")
    assert found["select"] == ("None", "Informative()")
    assert answered(assay("diff", "grpo", "dapo", "--json")) == facts
    assert answered(assay("diff", "ppo", "--json"))["changes"] is None
    code, out, errors = assay("diff", "ota:hiql")
    assert (code, errors) == (0, "")
    assert "from ota to ota:hiql" in out
    assert "high value.source.jump" in out
    assert "ppo is a base" in assay("diff", "ppo")[1]


@pytest.mark.parametrize("name", ["clip-cov:kl-cov", "Clip_Cov:KL_cov"])
def test_a_variant_is_found_by_its_name(assay: Command, name: str) -> None:
    facts = answered(assay("show", name, "--json"))
    assert (facts["name"], facts["base"]) == ("clip-cov:kl-cov", "clip-cov")
    assert "HoldHighCovariance" in facts["parts"]


def test_a_variant_is_trained_resumed_and_compared(assay: Command, tmp_path: Path) -> None:
    small = ["--task", "bandit", "--steps", "2"]
    (facts,) = answered(assay("train", "clip-cov:kl-cov", *small, "--out", "run", "--json"))
    assert facts["method"] == "kl-cov"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["method"] == "clip-cov:kl-cov"
    assert answered(assay("resume", "run", "--json")) == facts
    arms = ["clip-cov:kl-cov", "clip-cov", "clip-cov:kl-cov:group_size=4"]
    rows = answered(assay("compare", *arms, *small, "--seeds", "2", "--out", "c", "--json"))["rows"]
    assert [row["arm"] for row in rows] == arms


def test_train_resume_evaluate_and_report_speak_json(assay: Command, tmp_path: Path) -> None:
    (facts,) = answered(assay("train", *BANDIT, "--out", "run", "--json"))
    assert facts["method"] == "reinforce"
    assert facts["folder"] == "run"
    assert facts["before"]["low"] <= facts["before"]["value"] <= facts["before"]["high"]
    assert answered(assay("resume", "run", "--json")) == facts
    scores = answered(assay("evaluate", "run", "--json"))
    assert scores["mean"] == facts["after"]["value"]
    assert scores["step"] == 3
    report = answered(assay("report", "run", "--json", "--out", "page.html"))
    (row,) = report["runs"]
    assert (row["steps"], row["score"]) == (3, facts["after"]["value"])
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_several_seeds_get_a_folder_each(assay: Command, tmp_path: Path) -> None:
    facts = answered(assay("train", *BANDIT, "--seed", "4", "--seeds", "2", "--out", "runs", "--json"))
    assert [Path(each["folder"]).name for each in facts] == ["seed-4", "seed-5"]
    code, out, _ = assay("train", *BANDIT, "--seed", "4", "--seeds", "2", "--out", "runs")
    assert code == 0
    assert "seed 4" in out
    assert "seed 5" in out
    assert (tmp_path / "runs" / "learning_curve.png").exists()


def test_compare_gives_every_arm_and_its_difference_to_the_first(assay: Command) -> None:
    words = ["compare", "rloo", "reinforce", "--task", "bandit", "--steps", "2", "--seeds", "2", "--out", "arms"]
    facts = answered(assay(*words, "--json"))
    assert [row["arm"] for row in facts["rows"]] == ["rloo", "reinforce"]
    assert facts["rows"][0]["difference"] is None
    assert facts["rows"][1]["difference"]["count"] == 2
    code, out, errors = assay(*words)
    assert (code, errors) == (0, "")
    assert all(word in out for word in ("minus rloo", "P(better than rloo)", "curves.png", "curves.svg", "report.html"))


def test_claim_runs_the_exact_claims(assay: Command) -> None:
    facts = answered(assay("claim", "grpo", "--exact", "--json"))
    assert facts["name"] == "grpo"
    assert {claim["verdict"] for claim in facts["claims"]} == {"holds"}
    code, out, errors = assay("claim", "grpo", "--exact")
    assert (code, errors) == (0, "")
    assert out.count("holds") == len(facts["claims"]) + 1


GOOD = """
print("a file may print what it likes")
def reward(rows):
    return [float(row["completion"] == row["answer"]) for row in rows]
"""
BAD = """
def loss(logp, logp_old, advantage, mask):
    return -(logp * advantage).sum() / len(mask)
"""


def test_check_says_which_laws_held(assay: Command, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (report,) = answered(assay("check", "good.py", "--json"))
    assert report["name"] == "reward"
    assert report["held"]
    assert all(law["held"] for law in report["laws"])


def test_check_says_that_all_laws_held(assay: Command, checked_here: None, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    code, out, errors = assay("check", "good.py")
    assert (code, errors) == (0, "")
    assert "holds  reward" in out


def test_check_says_which_law_broke_and_on_what_input(assay: Command, checked_here: None, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    (report,) = answered(assay("check", "bad.py", "--json"), code=1)
    broken = [law for law in report["laws"] if not law["held"]]
    assert broken
    assert all(law["detail"] and law["input"] for law in broken)
    code, out, errors = assay("check", "bad.py")
    assert (code, errors) == (1, "")
    assert "breaks loss" in out
    assert f"broke {broken[0]['law']}" in out
    assert f"{len(broken)} broke" in out


# ---------------------------------------------------------------------------------------------------- for people
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["list"], ["methods", "tasks", "cartpole"]),
        (["report", "RUN"], ["held-out score", "3/3", "report.html"]),
        (["evaluate", "RUN"], ["reinforce on bandit", "after 3 steps", "held-out episodes"]),
        (["evaluate", "RUN", "--starts", "5", "--samples", "2", "--greedy"], ["over 5 held-out episodes, 2 samples"]),
        (["resume", "RUN"], ["held-out score", "run folder"]),
        (["--version"], ["assay "]),
        (["--help"], ["COMMAND", "train", "resume"]),
        (["train", "--help"], ["--task", "--set PART.FIELD=VALUE"]),
    ],
)
def test_people_get_words(assay: Command, finished: Path, words: list[str], expected: list[str]) -> None:
    code, out, errors = assay(*(str(finished) if word == "RUN" else word for word in words))
    assert (code, errors) == (0, "")
    assert all(text in out for text in expected), out


@pytest.mark.usefixtures("drawn")
def test_training_ends_with_a_table_a_curve_and_the_folder(assay: Command, tmp_path: Path) -> None:
    code, out, errors = assay("train", *BANDIT)
    assert (code, errors) == (0, "")
    assert "\x1b" not in out, "no control codes outside a terminal"
    for text in ("before", "after", "95 % confidence interval", "step 3/3", "run folder  runs/reinforce-bandit"):
        assert text in out
    (folder,) = (tmp_path / "runs").iterdir()
    names = {"README.md", "config.json", METRICS, "samples.jsonl", "checkpoints"}
    assert names <= {path.name for path in folder.iterdir()}
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "![learning curve](learning_curve.png)" in (folder / "README.md").read_text()


def test_the_command_in_the_readme_repeats_the_run(assay: Command, finished: Path) -> None:
    lines = [line.strip() for line in (finished / "README.md").read_text().splitlines()]
    (command,) = [line for line in lines if line.startswith("assay train")]
    assert assay(*command.split()[1:], "--out", "again", "--json")[0] == 0
    read = [json.loads((folder / "config.json").read_text()) for folder in (finished, Path("again"))]
    assert read[0]["fingerprint"] == read[1]["fingerprint"]


def test_the_same_command_again_returns_the_finished_run(assay: Command, run_folder: Path) -> None:
    before = {path: path.read_bytes() for path in run_folder.rglob("*") if path.suffix in (".jsonl", ".safetensors")}
    facts = answered(assay("train", *BANDIT, "--out", run_folder, "--json"))
    assert facts[0]["folder"] == str(run_folder)
    assert {path: path.read_bytes() for path in before} == before


def test_the_same_folder_with_another_setting_is_refused(assay: Command, run_folder: Path) -> None:
    refused(assay("train", *BANDIT[:-1], "4", "--out", run_folder), "other settings", "steps", "another --out")


def test_a_corrupt_checkpoint_is_noted_and_the_one_before_is_used(assay: Command, run_folder: Path) -> None:
    facts = answered(assay("resume", run_folder, "--json"))
    newest = sorted((run_folder / "checkpoints").iterdir())[-1]
    (newest / store.STATE).write_bytes(b"x" * (newest / store.STATE).stat().st_size)
    code, out, errors = assay("resume", run_folder)
    assert (code, errors) == (0, "")
    assert "sha256" in out
    assert "resuming from step 2" in out
    assert answered(assay("resume", run_folder, "--json")) == facts


def test_without_a_word_the_commands_are_listed(assay: Command) -> None:
    code, out, errors = assay()
    assert (code, out) == (2, "")
    assert all(f"\n  {name} " in errors for name in ("train", "list", "compare"))


def test_usage_does_not_repeat_a_long_list_of_options(assay: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for command, words in {
        "train": "[options] [METHOD]",
        "tune": "[options] --task TASK METHOD PATH=LOW:HIGH[:log] [PATH=LOW:HIGH[:log] ...]",
        "compare": "[options] --task TASK METHOD [METHOD ...]",
        "diff": "[-h] [--json] [--kind KIND] METHOD [OTHER]",
    }.items():
        assert assay(command, "--help")[1].splitlines()[0] == f"usage: assay {command} {words}"


def test_commands_stand_in_one_column_of_the_help(assay: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = assay("--help")[1].partition("\ncommands:\n")[2]
    listed = [line for line in told.splitlines() if line.startswith("  ") and line[2] != " "]
    assert len(listed) > 15
    assert all(re.fullmatch(r"  [a-z]+ +\S.*", line) and line[14] != " " and line[13] == " " for line in listed)
    assert "Begin with: assay train" in told


def test_help_needs_no_torch_so_that_it_is_quick_and_an_early_ctrl_c_is_clean() -> None:
    code = "import sys; from assay.cli import main; main.parser().format_help(); assert 'torch' not in sys.modules"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_ctrl_c_while_a_command_starts_is_one_line(assay: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_command", interrupted)
    assert assay("list") == (130, "", "assay: interrupted\n")


def test_a_bug_of_our_own_is_not_hidden(assay: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options: Any) -> int:
        raise RuntimeError("the shapes differ")

    monkeypatch.setattr(cli, "run_command", broken)
    with pytest.raises(RuntimeError, match="the shapes differ"):
        assay("list")


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "assay.cli.main", "list", "--json"]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_warning_is_one_line_without_source_code(assay: Command, tmp_path: Path) -> None:
    rows = [json.dumps({"prompt": f"say {n}", "answer": str(n)}) for n in range(30)]
    (tmp_path / "told.jsonl").write_text("\n".join(rows))
    small = ["--set", "actor.width=8", "--set", "actor.layers=1", "--set", "actor.heads=2", "--set", "source.batch=2"]
    with pytest.warns(UserWarning, match="contains the answer"):  # what pytest sees; the command line is asked below
        catalogue.find_task("told.jsonl")
    _, _, errors = warm.Process(warm.COMMAND, "train", "sft", "--task", "told.jsonl", "--steps", "0", *small).ended()
    assert errors.splitlines() == [
        f"assay: {tmp_path / 'told.jsonl'}: in 30 of 30 rows the prompt contains the answer",
        "assay: steps is 0. Use at least 1.",
    ]


# ---------------------------------------------------------------------------------------------------- bad input
def refused(answer: Answer, *expected: str) -> None:
    """Exit code 2, one line on stderr that holds these words, nothing on stdout, no traceback."""
    code, out, errors = answer
    assert code == 2, (code, out, errors)
    assert out == ""
    assert errors.startswith("assay: ")
    assert errors.count("\n") == 1, errors
    for text in expected:
        assert text in errors


TRAIN = {
    "unknown method": (["gppo"], "there is no method 'gppo'. Did you mean 'ppo'?"),
    "method in capitals with a dash is found, its task is not": (["DR-GRPO", "--task", "x"], "there is no task 'x'"),
    "unknown task": (["ppo", "--task", "cartpol"], "there is no task 'cartpol'. Did you mean 'cartpole'?"),
    "misspelt setting": (["ppo", "--set", "rollout.num_env=4"], "Did you mean 'rollout.num_envs'?"),
    "wrong type": (["ppo", "--set", "rollout.num_envs=many"], "Use a whole number"),
    "a fraction of an instance": (["ppo", "--set", "rollout.num_envs=1.5"], "rollout.num_envs"),
    "not a truth value": (["ppo", "--set", "Whiten.centre=perhaps"], "centre"),
    "ambiguous setting": (["ppo", "--set", "learning_rate=1"], "ambiguous"),
    "a part on the command line": (["ppo", "--set", "rollout=x"], "'rollout' is a part of recipe 'ppo', not a number"),
    "nothing like any method": (["nosuch"], "there is no method 'nosuch'. assay list"),
    "an unknown variant": (["dual-rl:x"], "method 'dual-rl' has no variant 'x'. It has: recoil, xql"),
    "a variant in a world it does not work in": (["stream-x:stream-q", "--task", "pendulum"], "needs discrete actions"),
    "parts on the command line": (["ppo", "--set", "rewards=3"], "Swap it in Python"),
    "no equals sign": (["ppo", "--set", "rollout.num_envs"], "part.field=value"),
    "no name": (["ppo", "--set", "=3"], "part.field=value"),
    "no value": (["ppo", "--set", "rollout.num_envs="], "part.field=value"),
    "too few betas": (["a2c", "--set", "policy.betas=0.9"], "Adam needs two"),
    "control method on tokens": (
        ["sac", "--task", "countdown"], "'sac' works on these kinds of task: continuous control"
    ),
    "discrete method on torques": (["dqn", "--task", "pendulum"], "with continuous actions. Use sac"),
    "continuous method on choices": (["sac", "--task", "cartpole"], "with discrete actions. Use dqn"),
    "torques method on buttons": (["td3", "--task", "cartpole"], "task 'cartpole' is control"),
    "cloning tokens": (["bc", "--task", "addition"], "'bc' works on these kinds of task"),
    "a group of one": (["grpo", "--task", "addition-1", "--set", "group_size=1"], "Use at least 2"),
    "a pair of one": (["dpo", "--task", "addition-1", "--set", "group_size=1"], "PairUp"),
    "no steps": (["ppo", "--steps", "0"], "steps is 0. Use at least 1"),
    "negative steps": (["ppo", "--steps", "-1"], "steps is -1"),
    "steps in words": (["ppo", "--steps", "ten"], "invalid int value: 'ten'"),
    "no seeds": (["ppo", "--seeds", "0"], "--seeds is 0. Use at least 1"),
    "negative warm-up": (["grpo", "--task", "addition-1", "--warmup", "-1"], "warmup is -1"),
    "no such device": (["ppo", "--device", "abacus"], "device 'abacus' is not available here"),
    "a device without numbers": (["ppo", "--device", "meta"], "device 'meta' is not available here"),
    "negative micro-batch": (["ppo", "--micro-batch", "-1"], "micro-batch is -1"),
    "no instances": (["ppo", "--set", "rollout.num_envs=0"], "rollout.num_envs is 0. It must be at least 1"),
    "no starts": (["grpo", "--task", "addition-1", "--set", "num_starts=0"], "rollout.num_starts is 0"),
    "no epochs": (["ppo", "--set", "epochs=0"], "source.epochs is 0"),
    "negative epochs": (["ppo", "--set", "epochs=-2"], "source.epochs is -2"),
    "no layers": (["sft", "--task", "addition-1", "--set", "layers=0"], "actor.body.layers is 0"),
    "every zeroth update": (["ppo", "--set", "policy.every=0"], "stages.policy.every is 0"),
    "a rate that is no number": (["sft", "--task", "addition-1", "--set", "learning_rate=nan"], "must be a number"),
    "a negative rate": (["sft", "--task", "addition-1", "--set", "learning_rate=-1"], "not negative"),
    "an endless rate": (["sft", "--task", "addition-1", "--set", "learning_rate=inf"], "finite"),
    "a discount above one": (["ppo", "--set", "Gae.discount=1.1"], "between 0 and 1"),
    "a copy that runs away": (["dqn", "--set", "target.rate=2"], "copies.target.rate is 2.0"),
    "a schedule of no length": (["dqn", "--set", "epsilon.share=0"], "more than 0"),
    "heads that do not divide the width": (["sft", "--task", "addition-1", "--set", "heads=3"], "heads"),
    "more than the memory holds": (["ppo", "--set", "rollout.num_envs=10000000000000"], "not enough memory"),
    "a task file that is not there": (["sft", "--task", "nothing.jsonl"], "there is no file 'nothing.jsonl'"),
    "an empty task file": (["sft", "--task", "empty.jsonl"], "empty.jsonl has no rows"),
    "a task file that is no JSON": (["sft", "--task", "broken.jsonl"], "broken.jsonl, line 1 is not JSON"),
    "a task file that is no text": (["sft", "--task", "bytes.jsonl"], "bytes.jsonl, line 1 is not UTF-8"),
    "a task file of numbers": (["sft", "--task", "numbers.jsonl"], "not a JSON object"),
    "a task file with other fields": (["sft", "--task", "fields.jsonl"], "has no field 'prompt'"),
    "a task that is a folder": (["sft", "--task", "folder"], "/folder'"),
    "pairs for a method that samples": (["grpo", "--task", "pairs.jsonl"], "'pairs' is preference pairs"),
    "an output folder that is a file": (["ppo", "--out", "empty.jsonl"], "Choose another --out"),
    "an output folder below a file": (["ppo", "--out", "empty.jsonl/run"], "Choose another --out"),
    "an output folder that cannot be": (["ppo", "--steps", "1", "--out", "/proc/no/run"], "/proc/no"),
    "an output folder of something else": (["ppo", "--out", "folder"], "folder is not a run folder and not empty"),
    "a model that is not there": (["sft", "--task", "addition-1", "--model", "no"], "there is no folder 'no'"),
    "a folder that is no model": (["sft", "--task", "addition-1", "--model", "folder"], "/folder' has no config.json"),
    "a language model for a pole": (
        ["ppo", "--task", "cartpole", "--model", "folder"],
        "--model needs prompts, pairs or dialogues",
    ),
    "an unknown option": (["ppo", "--rounds", "3"], "unrecognized arguments: --rounds 3"),
    "a beginning of an option": (["grpo", "--lora-r", "8"], "--lora-r 8. Did you mean --lora-rank?"),
    "TRL's word for the KL coefficient": (["grpo", "--beta", "0.1"], "--beta 0.1. Did you mean --kl?"),
    "TRL's word for the group size": (["grpo", "--num-generations", "8"], "Did you mean --group-size?"),
    "a learning rate": (["grpo", "--learning-rate", "1e-4"], "Did you mean --set learning_rate=X?"),
    "stable-baselines3's budget": (["ppo", "--total-timesteps", "100"], "Did you mean --decisions?"),
    "CleanRL's environment": (["ppo", "--env-id", "CartPole-v1"], "Did you mean --task?"),
    "CleanRL's film": (["ppo", "--capture-video"], "A trained policy is filmed by: assay evaluate RUN --video 1."),
    "a discount": (["ppo", "--gamma", "0.9"], "Did you mean --set discount=X?"),
    "a task without its option": (["ppo", "CartPole-v1"], "Did you mean --task CartPole-v1?"),
    "a method behind an option": (["--algo", "ppo"], "The method stands first, without an option: assay train METHOD."),
    "a dataset": (["sft", "--dataset", "a.jsonl"], "Did you mean --task?"),
    "a beginning of two options": (["grpo", "--judge-p", "8"], "Did you mean --judge-prompt or --judge-pairs?"),
}


@pytest.fixture
def files(tmp_path: Path) -> dict[Path, bytes]:
    """Files that cannot be used, as they were."""
    contents = {
        "empty.jsonl": b"",
        "broken.jsonl": b'{"prompt": ',
        "bytes.jsonl": b"\xff\xfe\x00",
        "numbers.jsonl": b"[1, 2]\n",
        "fields.jsonl": b'{"promt": "a", "reply": "b"}\n',
        "pairs.jsonl": b'{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 3,
        "folder/mine.txt": b"mine",
    }
    (tmp_path / "folder").mkdir()
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {tmp_path / name: content for name, content in contents.items()}


@pytest.mark.parametrize("what", TRAIN)
def test_what_cannot_be_trained_is_refused_in_one_sentence(
    assay: Command, tmp_path: Path, files: dict[Path, bytes], what: str
) -> None:
    words, expected = TRAIN[what]
    refused(assay("train", *words), expected)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files, "something is left"
    assert not (tmp_path / "runs").exists()


OTHERS = {
    "unknown command": (["trian"], "there is no command 'trian'. Did you mean 'train'?"),
    "a beginning of a command": (["eval", "runs/mine"], "there is no command 'eval'. Did you mean 'evaluate'?"),
    "a method in the place of a command": (["ppo", "--task", "cartpole"], "To train this method: assay train ppo."),
    "a command of another program": (["install"], "there is no command 'install'. (see 'assay --help')"),
    "a method in the place of a family": (["list", "grpo"], "a method, not a family. To read about it: assay show"),
    "show an unknown method": (["show", "grpoo"], "Did you mean 'grpo'?"),
    "two methods are as near; one is to start with": (["show", "gpo"], "Did you mean 'grpo'?"),
    "a family that is not": (["list", "foo"], "Choose one of: credit assignment"),
    "two families": (["list", "safe", "--family", "offline"], "the family is 'safe' and --family 'offline'"),
    "a slot that no method changes": (["list", "--changes", "foo"], "--changes is 'foo'"),
    "a difference on no kind of task": (["diff", "grpo", "--kind", "moon"], "no kind of task 'moon' to compare on"),
    "a difference of worlds apart": (["diff", "sft", "sac"], "have no kind of task in common"),
    "show nothing": (["show"], "required: METHOD"),
    "a beginning of an option of data": (["data", "make", "bandit", "random", "--ep", "1"], "Did you mean --episodes?"),
    "claim an unknown method": (["claim", "pppo"], "Did you mean 'ppo'?"),
    "compare an unknown method": (["compare", "ppo", "a2cc", "--task", "bandit"], "Did you mean 'a2c'?"),
    "compare on a device that is not there": (
        ["compare", "ppo", "a2c", "--task", "bandit", "--device", "tpu"], "device 'tpu'"
    ),
    "tune on a device that is not there": (
        ["tune", "ppo", "--task", "bandit", "policy.learning_rate=1e-4:1e-3", "--device", "tpu"], "device 'tpu'"
    ),
    "tune what is set": (
        ["tune", "ppo", "--task", "bandit", "policy.learning_rate=1e-4:1e-3", "--set", "policy.learning_rate=1e-3"],
        "is searched and set by --set",
    ),
    "evaluate on a device that is not there": (["evaluate", "RUN", "--device", "tpu"], "device 'tpu'"),
    "compare on an unknown task": (["compare", "ppo", "--task", "bandits"], "Did you mean 'bandit'?"),
    "compare without a task": (["compare", "ppo"], "--task"),
    "compare without seeds": (["compare", "ppo", "--task", "bandit", "--seeds", "0"], "at least 1"),
    "resume nothing": (["resume", "nowhere"], "nowhere is not a run folder"),
    "resume a file": (["resume", "empty.jsonl"], "is not a run folder"),
    "resume another folder": (["resume", "folder"], "it has no config.json"),
    "evaluate nothing": (["evaluate", "nowhere"], "is not a run folder"),
    "evaluate without starts": (["evaluate", "RUN", "--starts", "0"], "--starts is 0. Use at least 1"),
    "evaluate without samples": (["evaluate", "RUN", "--samples", "-1"], "--samples is -1. Use at least 1"),
    "report nothing": (["report", "nowhere"], "nowhere is not a folder"),
    "report a file": (["report", "empty.jsonl"], "empty.jsonl"),
    "check nothing": (["check", "nowhere.py"], "nowhere.py does not exist"),
    "check what is no code": (["check", "empty.jsonl"], "must end in .py"),
    "check what does not parse": (["check", "wrong.py"], "line 1"),
    "check what does not load": (["check", "raises.py"], "cannot be loaded"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_bad_input_of_the_other_commands_is_one_sentence(
    assay: Command, checked_here: None, tmp_path: Path, files: dict[Path, bytes], finished: Path, what: str
) -> None:
    (tmp_path / "wrong.py").write_text("def broken(:\n")
    (tmp_path / "raises.py").write_text("raise ValueError('no')\n")
    words, expected = OTHERS[what]
    refused(assay(*(str(finished) if word == "RUN" else word for word in words)), expected)


def test_check_of_a_file_without_anything_to_check_lists_what_could_be_there(
    assay: Command, checked_here: None, tmp_path: Path
) -> None:
    (tmp_path / "nothing.py").write_text("x = 1\n")
    code, out, errors = assay("check", "nothing.py")
    assert (code, out) == (2, "")
    assert errors.startswith("assay: nothing in nothing.py is recognised. Recognised are")


# ---------------------------------------------------------------------------------------------------- broken runs
def edited(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


BROKEN_CONFIGS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (lambda folder: (folder / "config.json").write_text(""), "cannot be read"),
    "torn": (lambda folder: (folder / "config.json").write_text('{"method": "rein'), "cannot be read"),
    "bytes": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "cannot be read"),
    "deep": (lambda folder: (folder / "config.json").write_text("[" * 100_000), "cannot be read"),
    "a list": (lambda folder: (folder / "config.json").write_text("[]"), "not the config.json of a run"),
    "a number": (lambda folder: (folder / "config.json").write_text("3"), "not the config.json of a run"),
    "another file": (lambda folder: (folder / "config.json").write_text('{"a": 1}'), "lacks device"),
    "steps as text": (lambda folder: edited(folder, steps="many"), "'steps' is 'many'"),
    "no steps": (lambda folder: edited(folder, steps=0), "steps is 0"),
    "true steps": (lambda folder: edited(folder, steps=True), "'steps' is True"),
    "settings as a list": (lambda folder: edited(folder, settings=[1]), "'settings' is [1]"),
    "an unknown setting": (lambda folder: edited(folder, settings={"rollout.startz": "3"}), "rollout.num_starts"),
    "an unknown method": (lambda folder: edited(folder, method="reinforced"), "Did you mean 'reinforce'?"),
    "an unknown task": (lambda folder: edited(folder, task="bandits"), "Did you mean 'bandit'?"),
    "another seed": (lambda folder: edited(folder, seed=5), "was edited"),
    "an unknown device": (lambda folder: edited(folder, device="abacus"), "abacus"),
    "an unknown number type": (lambda folder: edited(folder, precision="torch.nn"), "precision"),
    "a recipe of one's own": (lambda folder: edited(folder, method=None), "started from Python"),
    "all checkpoints broken": (
        lambda folder: [path.write_text("{}") for path in folder.rglob("manifest.json")], "none of the 2 checkpoints"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN_CONFIGS)
def test_a_broken_run_folder_is_refused_and_not_touched(assay: Command, run_folder: Path, what: str) -> None:
    broken, expected = BROKEN_CONFIGS[what]
    broken(run_folder)
    before = {path: path.read_bytes() for path in run_folder.rglob("*") if path.is_file() and path.name != store.LOCK}
    refused(assay("resume", run_folder), expected)
    assert {path: path.read_bytes() for path in before} == before


def test_evaluate_of_a_run_that_has_only_begun_says_how_to_go_on(assay: Command, run_folder: Path) -> None:
    for path in sorted((run_folder / "checkpoints").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    refused(assay("evaluate", run_folder), "has no checkpoint yet", "assay resume")
