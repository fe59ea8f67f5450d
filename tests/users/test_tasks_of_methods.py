"""Methods on a user's own file: each trains, or is refused before anything is spent, naming what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.runs import catalogue
from assay.runs.checks import walked

METHODS = [
    "lite-ppo", "nsr", "ace", "a-grae", "progrpo", "mathforge", "etr", "pacs", "real", "oreal", "kimi-k1.5",
    "direct-advantage-po", "p3o", "r2vpo", "dph-rl", "self-interference", "siren", "dsdr", "lp-reg", "prerl-dsrl",
    "repexp", "laser", "wgrpo-pairing", "remax", "policy-cliff", "rlsp", "echo-chamber",
    "simplerl-zoo",
]  # fmt: skip
CLASSES = [
    "a-grae", "progrpo", "pacs", "real", "oreal", "kimi-k1.5", "direct-advantage-po", "dph-rl", "dsdr", "repexp",
    "laser", "wgrpo-pairing", "nsr", "mathforge", "self-interference", "rlsp",
]  # fmt: skip
"""Those that read an outcome as right or wrong, or as a share of right answers."""
FIRST = {"oreal": "tokens", "direct-advantage-po": "critic", "dph-rl": "start"}
"""Phases before a method's own, which get one step here."""
SMALL = ["actor.width=8", "actor.layers=1", "actor.heads=2"]
REWARDS = """
def graded(completions, **columns):
    return [(sum(map(ord, one)) % 5) / 4 for one in completions]

def wide(completions, **columns):
    return [3.0 + len(one) for one in completions]
"""


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory: prompts with answers, prompts alone, rewards and a rubric."""
    rows = [{"prompt": f"pick {chr(97 + k % 20)}{chr(97 + k // 20)}", "answer": str(k % 7)} for k in range(40)]
    for name, kept in {"answers": rows, "bare": [{"prompt": row["prompt"]} for row in rows]}.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, kept)))
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "rubric.json").write_text('[{"name": "answer", "pattern": "{answer}", "worth": 2, "limit": 1}]')
    monkeypatch.chdir(tmp_path)


def trained(method: str, task: str, *words: str) -> int:
    """Returns the exit status of one short training."""
    first = [f"before.{FIRST[method]}.steps=1"] if method in FIRST else []
    small = [f"--set={one}" for one in (*SMALL, *first)]
    sizes = ["--steps", "1", "--warmup", "0", "--max-tokens", "4", "--prompts", "2", "--eval-prompts", "4"]
    return main(["train", method, "--task", task, *words, *sizes, *small, "--out", "run", "--json"])


@pytest.mark.usefixtures("_files")
@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
@pytest.mark.parametrize("method", METHODS)
def test_graded_rewards_train_and_what_is_missing_or_unbounded_is_named(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(method, "bare.jsonl") == 2
    assert "line 1 has no field 'answer'" in capsys.readouterr().err
    if method in CLASSES:
        assert trained(method, "answers.jsonl", "--reward", "rewards.py:wide") == 2
        assert "outside of the range 0 to 1, and " in capsys.readouterr().err
        assert not Path("run/config.json").exists()
    assert trained(method, "bare.jsonl", "--reward", "rewards.py:graded") == 0, capsys.readouterr().err


@pytest.mark.usefixtures("_files")
def test_openings_of_a_testbed_are_refused_on_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert trained("lhrm-hgpo", "answers.jsonl") == 2
    assert "does not say with what its answers begin" in capsys.readouterr().err


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("method", ["dph-rl", "mpo-meta", "retroagent"])
def test_what_a_method_keeps_of_the_prompts_of_a_chat_model_is_saved(
    method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    from tests.models.test_transformers import save_qwen

    save_qwen(Path("model"))
    words = ["--model", "model", "--steps", "1", "--max-tokens", "4", "--prompts", "2", "--eval-prompts", "2"]
    words += [f"--set=before.{FIRST[method]}.steps=1"] if method in FIRST else []
    words += ["--rubric", "rubric.json"] if method == "mpo-meta" else []
    words += ["--device", "cpu"]  # weights this large round to 0.03 nats in bfloat16, which a guard may stop
    assert main(["train", method, "--task", "answers.jsonl", *words, "--out", "run", "--json"]) == 0
    assert Path("run/checkpoints/step-00000001").is_dir(), capsys.readouterr().err


def test_the_methods_that_read_classes_are_known() -> None:
    for name in METHODS:
        recipe = catalogue.recipe_for(name, catalogue.find_task("addition-1"), {})
        assert any(getattr(part, "reads_shares", False) for part in walked(recipe)) == (name in CLASSES), name
