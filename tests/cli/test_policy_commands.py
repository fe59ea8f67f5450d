"""`assay evaluate` and `assay export` on a small pretrained model with a LoRA adapter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.cli.main import main
from assay.core import store
from assay.runs.run import load
from assay.runs.scored import Scored, passed
from tests.optional import Optional

transformers = Optional("transformers")
ROWS = [{"prompt": f"{k}+1=", "answer": f"n{k + 1}"} for k in range(5)]


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and two files."""
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    from tests.models.test_transformers import save_qwen

    made = tmp_path_factory.mktemp("policy")
    save_qwen(made / "qwen")
    written(made / "a.jsonl", ROWS)
    written(made / "b.jsonl", [{"prompt": f"{k}+2=", "answer": f"n{k + 2}"} for k in range(3)])
    return made


def trained(base: Path, method: str, *words: str) -> Path:
    given = ["train", method, "--task", f"{base / 'a.jsonl'},{base / 'b.jsonl'}", "--model", str(base / "qwen")]
    given += ["--steps", "1", "--json", "--lora-rank", "2", "--max-tokens", "8", "--out", str(base / method), *words]
    assert main(given) == 0
    return base / method


@pytest.fixture(scope="module")
def run(base: Path) -> Path:
    return trained(base, "grpo", "--prompts", "2", "--group-size", "2", "--temperature", "0.5")


@pytest.fixture(scope="module")
def taught(base: Path) -> Path:
    """A run whose adapter moved far enough to be seen."""
    return trained(base, "sft", "--prompts", "4", "--set", "learning_rate=0.5", "--device", "cpu")


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(words)
    return (code, *capsys.readouterr())


def test_a_policy_is_scored_once_for_each_prompt(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--samples", "4", "--passk", "1,4", "--majority", "--out", str(tmp_path / "scores.jsonl"), "--json")
    code, out, _ = answered(capsys, "evaluate", str(run), *words)
    facts = json.loads(out)
    assert (code, facts["count"], facts["samples"]) == (0, 3, 4)
    assert facts["high"] - facts["low"] > 0.3
    assert facts["pass@1"]["value"] == facts["mean"]
    assert facts["pass@4"]["high"] > 0.3  # three prompts say little, whatever they score
    assert 0.0 <= facts["majority@4"]["value"] <= facts["pass@4"]["value"]
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [row["prompt"] for row in rows] == ["0+2=", "1+2=", "2+2="]
    assert all(len(row["samples"]) == len(row["scores"]) == 4 for row in rows)


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_right_answers_are_counted_by_one_of_several_rewards(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (base / "two.py").write_text(
        "def correct(completions, answer):\n    return [float(len(text) % 2) for text in completions]\n"
        "def brief(completions):\n    return [1 / (1 + len(text)) for text in completions]\n"
    )
    rewards = ("--reward", f"{base / 'two.py'}:correct", "--reward", f"{base / 'two.py'}:brief=0.2")
    run = trained(base, "rloo", "--prompts", "2", "--group-size", "2", *rewards)
    words = ("evaluate", str(run), "--samples", "4", "--passk", "1,4")
    code, _, errors = answered(capsys, *words)
    assert (code, "this run's scores are sums of correct, brief. Add --of correct" in errors) == (2, True)
    code, _, errors = answered(capsys, *words, "--of", "right")
    assert (code, "its rewards are correct, brief" in errors) == (2, True)
    code, _, errors = answered(capsys, *words, "--of", "brief")
    assert (code, "reward brief gives" in errors, "neither 0 nor 1" in errors) == (2, True, True), "before sampling"
    code, out, _ = answered(capsys, *words, "--of", "correct", "--out", str(tmp_path / "scores.jsonl"), "--json")
    facts, lines = json.loads(out), (tmp_path / "scores.jsonl").read_text().splitlines()
    found = [json.loads(line)["rewards"] for line in lines]
    assert set(found[0]) == {"correct", "brief"}
    mean = sum(sum(row["correct"]) for row in found) / (4 * len(found))
    assert facts["pass@1 of correct"]["value"] == pytest.approx(mean)
    assert facts["correct"]["value"] == pytest.approx(mean)
    assert facts["mean"] > mean, "the score is the sum of both"


def test_one_reward_is_counted_in_units_of_its_range() -> None:
    rewards = {"sign": np.array([[-1.0, 1.0], [np.nan, 1.0]]), "plain": np.array([[0.0, 1.0], [1.0, 1.0]])}
    found = Scored(np.zeros((2, 2)), np.arange(2), {}, [], rewards, {"sign": (-1.0, 1.0)})
    assert found.of("sign").values.tolist() == [[0.0, 1.0], [0.0, 1.0]], "what does not apply counts 0"
    assert found.of("plain").values.tolist() == rewards["plain"].tolist()
    assert passed(found.of("sign"), [1])[0].value == 0.5


def test_another_file_is_held_out_as_a_whole(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = written(tmp_path / "c.jsonl", [{"prompt": f"{k}+3=", "answer": f"n{k + 3}"} for k in range(7)])
    code, out, _ = answered(capsys, "evaluate", str(run), "--task", other, "--temperature", "0.1")
    assert code == 0
    assert "over 7 held-out prompts" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--passk", "2"], "--passk is '2'. Use numbers from 1 to --samples (1)"),
        (["--passk", "x", "--samples", "2"], "--passk is 'x'"),
        (["--greedy", "--temperature", "0.5"], "--greedy always gives the same answer"),
        (["--task", "cartpole"], "'cartpole' has no prompts"),
        (["--samples", "0"], "--samples is 0"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, _, errors = answered(capsys, "evaluate", str(run), *words)
    assert code == 2
    assert message in errors


def test_a_merged_export_has_the_logits_of_the_policy(
    taught: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(capsys, "export", str(taught), str(tmp_path / "whole"), "--merge")[0] == 0
    assert not (tmp_path / "whole" / "adapter_config.json").exists()
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole", dtype=torch.float32)
    policy, plan, _ = load(taught)
    tokens = torch.tensor([[5, 17, 40, 99, 3]])
    with torch.no_grad():
        ours, theirs = policy.network(input_ids=tokens).logits, merged(input_ids=tokens).logits
        base = transformers.AutoModelForCausalLM.from_pretrained(plan.recipe.actor.path, dtype=torch.float32)
        before = base(input_ids=tokens).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert float((ours - before).abs().max()) > 1e-2


def test_an_adapter_is_exported_with_the_temperature_of_its_policy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(capsys, "export", str(run), str(tmp_path / "adapter"))[0] == 0
    assert (tmp_path / "adapter" / "adapter_config.json").exists()
    assert answered(capsys, "export", str(run), str(tmp_path / "whole"), "--merge")[0] == 0
    for folder in ("adapter", "whole"):
        config = json.loads((tmp_path / folder / "generation_config.json").read_text())
        assert (config["temperature"], config["do_sample"]) == (0.5, True)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_weights_are_exported_for_distributed_checkpoints(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed import checkpoint

    assert answered(capsys, "export", str(run), str(tmp_path / "dcp"), "--dcp")[0] == 0
    wanted = load(run)[0].state_dict()
    found = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    checkpoint.load(found, storage_reader=checkpoint.FileSystemReader(tmp_path / "dcp"), no_dist=True)
    assert store.difference(found, dict(wanted)) == []
    for words, error in (([], "exists already. Use a new folder"), (["--merge"], "Remove one of them")):
        code, _, said = answered(capsys, "export", str(run), str(tmp_path / "dcp"), "--dcp", *words)
        assert code
        assert error in said
