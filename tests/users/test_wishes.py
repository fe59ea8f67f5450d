"""What users asked for and no other test shows: own files in compare, ablate and export, a closed terminal, held-out
samples, the cost of `assay watch`; and docs/wishes.md, whose tests exist.
"""

from __future__ import annotations

import ast
import json
import re
import signal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.cli.main import main
from assay.core import store
from assay.core.record import Draw
from assay.engine.loop import Loop
from assay.runs import catalogue, run
from assay.runs.folder import read_samples
from assay.runs.options import RunOptions
from assay.runs.options.language import LanguageOptions
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from benchmarks import watch
from tests.users.place import ENVIRONMENTS, GOOD, REWARDS, TOOLS, lines

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "wishes.md"
METHOD = """
from dataclasses import replace
from assay import recipes
from assay.parts.credit.outcome import NoScale

def recipe(defaults):
    base = recipes.grpo(defaults)
    return replace(base, name="mine", credit=(replace(base.credit[0], scale=NoScale()),), select=None)
"""
SMALL = ["--steps", "1", "--seeds", "1", "--jobs", "1", "--json"]
TOKENS = [*(f"--set=actor.{one}" for one in ("width=8", "layers=1", "heads=2")), "--warmup", "0"]
TOKENS += ["--prompts", "2", "--group-size", "2", "--eval-prompts", "2", "--max-tokens", "8"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the user's files."""
    files = {"mine.py": METHOD, "my_env.py": ENVIRONMENTS, "rewards.py": REWARDS, "tools.py": TOOLS}
    for name, text in (files | {"good.jsonl": lines(GOOD)}).items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def codes(folder: Path) -> set[str]:
    """Returns the own files whose digests the runs below a folder record."""
    configs = [json.loads(path.read_text()) for path in folder.rglob("config.json")]
    return {Path(source).name for config in configs for source in config["code"]}


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_own_methods_tasks_rewards_and_tools_are_compared(place: Path) -> None:
    words = ["compare", "mine.py", "--task", "good.jsonl", "--reward", "rewards.py:right"]
    words += ["--tool", "tools.py:search", "--tool-calls", "1", "--tool-bytes", "16"]
    assert main([*words, *SMALL, *TOKENS, "--out", "tools"]) == 0
    assert codes(place / "tools") == {"mine.py", "rewards.py", "tools.py"}


def test_an_own_environment_is_compared_and_its_policy_exported(place: Path) -> None:
    pytest.importorskip("gymnasium")
    small = ["--set", "rollout.num_envs=2", "--set", "rollout.steps=8", "--set", "source.minibatches=2"]
    small += ["--eval-episodes", "2"]
    assert main(["compare", "ppo", "--task", "my_env.py:Walk", *SMALL, *small, "--out", "walk"]) == 0
    assert codes(place / "walk") == {"my_env.py"}
    (one, *_) = place.rglob("walk/*ppo*/**/config.json")
    assert main(["export", str(one.parent), "policy.pt"]) == 0
    assert (place / "policy.pt").stat().st_size > 0


def test_an_own_method_is_ablated(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "mine.py", "reinforce", "--task", "bandit", "--dry"]) == 0
    assert "mine - baseline" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("reads_tools", [True, False])
def test_tools_of_a_row_reach_the_chat_template(place: Path, reads_tools: bool) -> None:
    pytest.importorskip("transformers")
    from assay.tasks.adapters.pretrained import with_model
    from tests.models.test_conversations import TEMPLATES, save_chat_model

    shown = "{% if tools %}<|im_start|>tools\\n{{ tools | tojson }}<|im_end|>\\n{% endif %}" if reads_tools else ""
    model = save_chat_model(place / "model", shown + TEMPLATES["chatml"])
    tool = {"type": "function", "function": {"name": "search", "parameters": {}}}
    said = [{"role": "user", "content": "cats"}, {"role": "assistant", "content": "two"}]
    rows = [{"messages": [{**said[0], "content": f"cats {k}"}, said[1]], "tools": [tool]} for k in range(30)]
    (place / "tools.jsonl").write_text(lines(rows))
    task: Any = with_model(catalogue.find_task("tools.jsonl"), model)
    prompt = task.tokenizer.backend.decode(task.begin(np.zeros(1, np.int64), 0).context["tokens"][0].tolist())
    assert ('"search"' in prompt) == reads_tools


def test_pairs_of_a_second_file_are_held_out(place: Path) -> None:
    for name in ("first", "second"):
        pairs = [{"prompt": f"{name} {k}", "chosen": "b", "rejected": "c"} for k in range(12)]
        (place / f"{name}.jsonl").write_text(lines(pairs))
    plan = make_plan("dpo", "first.jsonl,second.jsonl")
    assert isinstance(plan.task, PairsTask)
    items = plan.task.prompts.items
    for split, name in enumerate(("first", "second")):
        assert {items.item(k, split).prompt for k in range(12)} == {f"{name} {k}" for k in range(12)}


def test_rows_are_shuffled_unless_they_are_to_be_taken_in_order(place: Path) -> None:
    told: dict[bool, list[str]] = {}
    (place / "test.jsonl").write_text(lines([{"prompt": "sub 1", "answer": "y"}]))
    for in_order in (False, True):
        options = RunOptions(language=LanguageOptions(in_order=in_order))
        task = make_plan("grpo", "good.jsonl,test.jsonl", options=options).task
        assert isinstance(task, PromptTask)
        taken: Any = task
        starts = taken.order(np.arange(len(GOOD)), Draw(0)).tolist()
        told[in_order] = [task.items.item(start, 0).prompt for start in starts]
    assert told[True] == [row["prompt"] for row in GOOD] != told[False]
    assert sorted(told[True]) == sorted(told[False])


def test_a_terminal_that_is_closed_saves_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Loop.step

    def hung_up(loop: Loop) -> object:
        if loop.progress.step == 3:
            signal.raise_signal(signal.SIGHUP)
        return step(loop)

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test run under nohup ignores it
    monkeypatch.setattr(Loop, "step", hung_up)
    try:
        with pytest.raises(run.Stopped) as stopped:
            run.train("reinforce", "bandit", steps=6, out=tmp_path / "run", mode=Mode.SILENT)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert stopped.value.exit_code == 128 + signal.SIGHUP
    saved = store.load(tmp_path / "run" / "checkpoints")
    assert saved is not None
    assert saved.step == 4


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_samples_of_held_out_prompts_are_kept_and_shown(place: Path) -> None:
    words = ["train", "grpo", "--task", "good.jsonl,rows.jsonl", "--steps", "1", "--json", "--out", "run", *TOKENS]
    held = [f"sub {k}" for k in range(6)]
    (place / "rows.jsonl").write_text(lines([{"prompt": one, "answer": "y"} for one in held]))
    assert main(words) == 0
    kept = [sample for sample in read_samples(place / "run") if sample.get("heldout")]
    assert {sample["step"] for sample in kept} == {0, 1}
    assert {sample["prompt"] for sample in kept} <= set(held)
    assert main(["report", "run", "--json"]) == 0
    assert kept[0]["prompt"] in (place / "report.html").read_text()


def test_watching_200_runs_takes_less_than_a_cpu_second(tmp_path: Path) -> None:
    for seed in range(200):
        watch.make_run(tmp_path / "many" / f"seed-{seed}", "a", seed, steps=20)
    found = watch.measure(tmp_path / "many")
    assert max(found["same"], found["one"]) <= 1.0


def test_watching_a_long_journal_takes_less_than_400_mb(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """200 MB with --all-cases. Importing a torch that was built for GPUs takes some 200 MB more."""
    size = 200 if request.config.getoption("--all-cases") else 20
    watch.make_run(tmp_path / "long" / "run", "b", 0, steps=1, megabytes=size)
    assert watch.measured_apart(tmp_path / "long")["peak_mb"] <= (400 if torch.version.cuda is None else 600)


def test_every_test_of_the_page_exists_and_is_a_test() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > 100
    missing = [f"{file}::{name}" for file, name in named if name not in functions(ROOT / file)]
    assert missing == []
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "---" not in line]
    assert [row for row in rows if "`tests/" not in row and not row.startswith("| wish |")] == []


@cache
def functions(path: Path) -> set[str]:
    """Returns the tests of a file."""
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
