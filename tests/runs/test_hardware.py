"""Defaults of hardware: a pretrained model on a GPU computes in bfloat16 with compiled layers, and a folder says so."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay.cli.main import parser
from assay.cli.options import plan_arguments
from assay.cli.train_command import parallel_seeds
from assay.core.errors import AssayError
from assay.engine import machine
from assay.engine.machine import repeatable
from assay.engine.placement import Placement
from assay.runs import hardware
from assay.runs.options import LanguageOptions, RunOptions, run_options
from assay.runs.plan import make_plan, plan_of, repeat_command
from assay.runs.progress import Mode
from assay.runs.run import execute
from tests.models.test_transformers import save_qwen


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **more: True)


def chosen(*words: str) -> tuple[Placement, RunOptions]:
    """What the words of a command line give."""
    found = plan_arguments(parsed(*words))
    return found["placement"], found["options"]


def parsed(*words: str) -> argparse.Namespace:
    return parser().parse_args(["train", "grpo", "--task", "addition-1", *words])


HALF = RunOptions(language=LanguageOptions(dtype="bfloat16"))
RANK = RunOptions(language=LanguageOptions(dtype="bfloat16", lora_rank=4))


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    ("words", "placement", "options"),
    [
        ([], Placement(), RunOptions()),
        (["--compiled"], Placement(compiled=True), RunOptions()),
        (["--model", "M"], Placement("cuda", compiled=True), HALF),
        (["--model", "M", "--device", "cuda:1"], Placement("cuda:1", compiled=True), HALF),
        (["--model", "M", "--device", "cpu"], Placement(), RunOptions()),
        (["--model", "M", "--no-compiled"], Placement("cuda"), HALF),
        (["--model", "M", "--deterministic"], Placement("cuda", compiled=True, deterministic=True), HALF),
        (["--model", "M", "--set", "actor.dtype=float32"], Placement("cuda", compiled=True), RunOptions()),
        (["--model", "M", "--lora-rank", "4"], Placement("cuda"), RANK),
        (["--model", "M", "--set", "lora.rank=4"], Placement("cuda"), HALF),
        (["--model", "M", "--set", "lora.rank=0"], Placement("cuda", compiled=True), HALF),
        (["--model", "M", "--lora-rank", "4", "--compiled"], Placement("cuda", compiled=True), RANK),
        (["--model", "M", "--shards", "2", "--ranks", "2"], Placement(shards=2, ranks=2), RunOptions()),
    ],
)
def test_what_is_not_said_is_chosen(words: list[str], placement: Placement, options: RunOptions) -> None:
    assert chosen(*words) == (placement, options)


@pytest.mark.parametrize("words", [[], ["--model", "M"], ["--model", "M", "--dtype", "float32"]])
def test_without_a_gpu_nothing_is_chosen(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    placement, options = chosen(*words)
    assert placement == Placement()
    assert options.language.dtype == (words[-1] if "--dtype" in words else None)


@pytest.mark.usefixtures("_gpu")
def test_an_old_gpu_keeps_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **more: False)
    assert chosen("--model", "M") == (Placement("cuda", compiled=True), RunOptions())


@pytest.mark.usefixtures("_gpu")
def test_an_adapter_that_was_saved_is_not_compiled(tmp_path: Path) -> None:
    config = {"peft_type": "LORA", "base_model_name_or_path": "M"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "adapter_model.safetensors").touch()
    assert chosen("--model", str(tmp_path)) == (Placement("cuda"), HALF)


@pytest.mark.usefixtures("_gpu")
def test_seeds_train_in_turn_where_the_gpu_was_chosen() -> None:
    options = parsed("--model", "M", "--seeds", "3")
    assert parallel_seeds(options, plan_arguments(options)["placement"], 3) == 1


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    "words",
    [["--model", "M"], ["--model", "M", "--no-compiled"], ["--model", "M", "--dtype", "float32", "--deterministic"]],
)
def test_the_command_that_repeats_a_run_gives_the_same(words: list[str]) -> None:
    placement, options = chosen(*words)
    again = ["--model", "M", "--device", "cuda", *hardware.words("M", placement, options, {}), *options.words()]
    again += ["--deterministic"] * placement.deterministic
    assert chosen(*again) == (placement, options)


@pytest.mark.usefixtures("_gpu")
def test_a_run_from_before_the_defaults_is_repeated_as_it_was() -> None:
    found = hardware.words("M", Placement("cuda"), RunOptions(), {})
    assert found == ["--no-compiled", "--dtype", "float32"]
    placement, options = chosen("--model", "M", *found)
    assert placement == Placement("cuda")
    assert hardware.dtype_of(options, {}) == "float32"


# ---------------------------------------------------------------------------------------------------- a run
@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers", reason="the extra 'language' is not installed")
    return save_qwen(tmp_path_factory.mktemp("models") / "qwen")


def test_the_precision_is_recorded_and_resumed(model: str, tmp_path: Path) -> None:
    sizes = LanguageOptions(dtype="bfloat16", prompts=2, group_size=2)
    given: dict[str, Any] = {"model": model, "steps": 1, "warmup": 0, "evaluations": 0}
    given["placement"] = Placement(deterministic=True)
    plan = make_plan("grpo", "addition-1", options=RunOptions(language=sizes), **given)
    assert plan.recipe.actor.dtype == "bfloat16"
    assert "--dtype bfloat16" in repeat_command(plan)
    (tmp_path / "config.json").write_text(json.dumps(plan.config()))
    assert plan.config()["options"]["dtype"] == "bfloat16"
    again = plan_of(tmp_path)
    assert again.recipe.actor.dtype == "bfloat16"
    assert again.placement == plan.placement
    assert again.config()["fingerprint"] == plan.config()["fingerprint"]


def test_a_plan_on_the_cpu_has_no_new_field(model: str) -> None:
    config = make_plan("grpo", "addition-1", model=model, steps=1, warmup=0).config()
    assert not {"compiled", "deterministic", "options"} & set(config)
    assert config["recipe"]["actor"]["dtype"] == "float32"


def test_a_precision_needs_a_pretrained_model_and_a_known_name() -> None:
    with pytest.raises(AssayError, match="--dtype needs a pretrained model"):
        make_plan("grpo", "addition-1", options=HALF)
    with pytest.raises(AssayError, match=r"--dtype is 'float16'\. Use float32 or bfloat16"):
        run_options({"dtype": "float16"})


def test_a_cpu_run_says_nothing_of_hardware(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = RunOptions(language=LanguageOptions(prompts=2, group_size=2, max_tokens=4))
    plan = make_plan("grpo", "addition-1", model=model, steps=1, warmup=0, evaluations=0, options=options)
    execute(replace(plan, save_every=1), tmp_path / "run", mode=Mode.PLAIN)
    assert "master weights" not in "".join(capsys.readouterr())


class Card:
    """An engine as the description of a GPU run reads it."""

    def __init__(self, dtype: torch.dtype, **more: Any) -> None:
        self.placement = Placement("cuda", **more)
        self.models, self.split = {"actor": torch.nn.Linear(1, 1, dtype=dtype)}, None


def test_one_line_says_what_was_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    card: Any = Card(torch.bfloat16, compiled=True)
    text = hardware.describe_precision("M", card)
    assert text.startswith("cuda: NVIDIA H200, bfloat16 with float32 master weights, layers compiled (cache ")
    assert f"{tmp_path}: empty" in text
    assert "--dtype" in text
    (tmp_path / "fxgraph" / "ab").mkdir(parents=True)
    assert f"{tmp_path}: warm" in hardware.describe_precision("M", card)
    plain: Any = Card(torch.float32, deterministic=True)
    assert "float32, layers not compiled, padded rows, deterministic kernels" in hardware.describe_precision("M", plain)
    assert hardware.describe_precision(None, card) == ""


# ---------------------------------------------------------------------------------------------------- deterministic
def test_deterministic_kernels_are_on_inside_and_off_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.WORKSPACE, "")
    monkeypatch.delenv(machine.WORKSPACE)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: False)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", switch := Switch())
    with repeatable(False):
        assert not switch.seen
    with repeatable(True):
        assert switch.seen == [True]
        assert not torch.utils.deterministic.fill_uninitialized_memory
        assert os.environ[machine.WORKSPACE] == ":4096:8"
    assert switch.seen == [True, False]
    assert torch.utils.deterministic.fill_uninitialized_memory
    with pytest.raises(AssayError, match="--deterministic: cumsum_cuda_kernel has no"), repeatable(True):
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but you set it")
    with pytest.raises(RuntimeError, match="another"), repeatable(True):
        raise RuntimeError("another")
    assert switch.seen[-1] is False


class Switch:
    """Stands for torch's switch, which imports the compiler."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def __call__(self, mode: bool) -> None:
        self.seen.append(mode)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_run_of_a_gpu_is_loaded_and_scored_on_a_machine_without_one(tmp_path: Path) -> None:
    run = execute(make_plan("grpo", "addition-1", steps=1, warmup=0), tmp_path / "run", mode=Mode.SILENT)
    config = json.loads((run.folder / "config.json").read_text())
    (run.folder / "config.json").write_text(json.dumps(config | {"device": "cuda"}))
    with pytest.warns(UserWarning, match="the CPU is used"):
        assert assay.load(run.folder).plan.placement.device == "cpu"
    (run.folder / "config.json").write_text(json.dumps(config | {"device": "cuda", "compiled": True}))
    with pytest.warns(UserWarning, match=r"was trained on 'cuda', which is not here: the CPU is used"):
        kept = assay.load(run.folder)
    assert (kept.plan.placement.device, kept.plan.placement.compiled) == ("cpu", False)
    with pytest.warns(UserWarning, match="the CPU is used"):
        here = assay.evaluate(run.folder, starts=8)
    assert here.mean == assay.evaluate(run.folder, starts=8, device="cpu").mean
    with pytest.raises(AssayError, match="device 'cuda' is not available here"):
        assay.evaluate(run.folder, starts=8, device="cuda")
    with pytest.raises(AssayError, match="device 'cuda' is not available here"):
        assay.resume(run.folder)
