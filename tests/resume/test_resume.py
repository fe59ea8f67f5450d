"""Killed at any moment and resumed, a run equals the untouched one bit by bit; and the comparison can see it fail."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.core import store
from assay.core.errors import AssayError
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.runs import run
from assay.runs.folder import read_metrics, without_time
from assay.runs.options import CadenceOptions, RunOptions
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from tests.resume.cases import CASES, named
from tests.resume.drops import DROPPED, HARMLESS
from tests.resume.kills import EVERY_CHANGE, result_of, started

ROOT = Path(__file__).resolve().parents[2]
Ask = Callable[[str, str], dict[str, Any]]
survived = {"kills": 0, "of": 0, "forgotten": 0}


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Asks a warm process of its own, which forks: pytest's own process has threads and must not."""
    command = [sys.executable, "-m", "tests.resume.server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def asked(work: str, case: str) -> dict[str, Any]:
            server.stdin.write(json.dumps([work, case]) + "\n")
            server.stdin.flush()
            found: dict[str, Any] = json.loads(server.stdout.readline())
            assert "error" not in found, found["error"]
            return found

        yield asked
        server.stdin.close()
        print(f"\nkills survived: {survived['kills']}/{survived['of']}; forgotten and noticed: {survived['forgotten']}")


# ---------------------------------------------------------------------------------------------------- kills
LEARNS_FROM_OTHERS = ("sft addition-1", "bc cartpole")
PHASES = {f"{when} {phase}" for when in ("before", "after") for phase in ("sample", "reward", "credit")}
EVERYWHERE = {
    "before update", "in the midst of update", "after update", "before evaluate", "after evaluate",
    "half of write metrics.jsonl", "write metrics.jsonl",
}  # fmt: skip
SAVE = {
    "mkdir tmp step", "open tensors.safetensors", "half of write tensors.safetensors", "fsync tensors.safetensors",
    "open state.json", "half of write state.json", "open manifest.json", "half of write manifest.json",
    "fsync tmp step", "rename tmp step", "fsync checkpoints", "rename step", "unlink manifest.json", "rmdir dead step",
}  # fmt: skip


LIKE_ANOTHER = {"a2c cartpole", "td3 pendulum", "bc cartpole", "grpo tokens", "rloo tokens", "dapo tokens"}
"""Runs whose state is of the same kinds as that of "ppo cartpole", "sac pendulum", "sft addition-1" and "grpo
addition-1, warmed up": killed with --all-cases only.
"""
ALONE = {"dqn cartpole"}
"""Runs that are also killed at one kind of moment at a time; the others are with --all-cases, else only at all of them
in two rows, and alone where something is renamed or removed.
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case a run to kill."""
    if "killed" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--all-cases")
        metafunc.parametrize("killed", [case for case in CASES if everything or case not in LIKE_ANOTHER])


def test_a_run_killed_at_any_moment_and_resumed_equals_the_untouched_one(
    ask: Ask, killed: str, request: pytest.FixtureRequest
) -> None:
    each = killed in ALONE or request.config.getoption("--all-cases")
    found = ask("each" if each else "row", killed)
    survived["kills"] += found["kills"] - len(found["failures"])
    survived["of"] += found["kills"]
    assert not found["failures"], "\n".join(found["failures"])
    expected = EVERYWHERE | (SAVE if killed in EVERY_CHANGE else set())
    expected |= set() if killed in LEARNS_FROM_OTHERS else PHASES
    assert set(found["names"]) >= expected, sorted(expected - set(found["names"]))
    assert found["runs"] >= (5 if each else 2)
    print(f"{killed}: kills survived {found['kills']}/{found['kills']} of {len(found['names'])} kinds")


# ---------------------------------------------------------------------------------------------------- forgetting
@pytest.mark.parametrize("case", DROPPED)
def test_whatever_is_forgotten_when_resuming_is_noticed(
    ask: Ask, case: str, request: pytest.FixtureRequest
) -> None:
    found = ask("drops" if request.config.getoption("--all-cases") else "leaves", case)
    assert set(found["missed"]) <= set(HARMLESS), sorted(set(found["missed"]) - set(HARMLESS))
    noticed = {*found["noticed"], *found["errors"]}
    assert not noticed & (set(HARMLESS) - {"loop.states.sources.0.columns.truncated"}), "no longer harmless"
    assert noticed >= EXPECTED[case], sorted(EXPECTED[case] - noticed)
    survived["forgotten"] += len(noticed)


MODELS = {"loop.engine.models.actor", "loop.engine.updates", "loop.progress.step"}
RUN = {"journal.metrics.jsonl", "scores.0"}
EXPECTED = {
    "dqn cartpole": MODELS | RUN | {
        "loop.engine.models.target", "loop.engine.optimizers.values.first.0", "loop.engine.optimizers.values.second.0",
        "loop.engine.optimizers.values.steps", "loop.states.sources.0", "loop.states.sources.0.columns.reward",
        "loop.states.sources.0.columns.terminal", "loop.states.sources.0.columns.context.observation",
        "loop.states.sources.0.next", "loop.states.sources.0.size", "loop.states.rollout.simulation",
        "loop.states.rollout.simulation.seeds", "loop.states.rollout.simulation.episode",
        "loop.states.rollout.simulation.elapsed", "loop.states.rollout.simulation.state", "loop.states.rollout.time",
        "loop.states.rollout.context", "loop.states.rollout.over", "loop.states.rollout.running",
        "loop.progress.decisions", "journal.samples.jsonl",
    },
    "sft addition-1": MODELS | RUN | {"loop.states.sources.0.next", "loop.engine.optimizers.likelihood.steps"},
    "ppo with a constraint": MODELS | RUN | {
        "loop.engine.models.value", "loop.engine.optimizers.policy", "loop.engine.optimizers.value",
        "loop.states.constraints.0.multiplier",
    },
    "rloo with skipped updates": MODELS | RUN | {
        "loop.states.guards.6.in_a_row", "loop.states.guards.6.total", "alarms", "loop.states.curriculum.next",
    },
    "grpo addition-1, warmed up": MODELS | RUN | {
        "loop.states.guards.1.constant", "loop.states.guards.2.below", "loop.states.curriculum.next",
    },
    "dpo tokens, warmed up": MODELS | RUN | {"loop.engine.models.reference", "loop.engine.optimizers.preference"},
}  # fmt: skip


def test_going_on_restores_the_state_that_was_saved(tmp_path: Path) -> None:
    plan = named("ppo", "cartpole")
    run.execute(plan, tmp_path / "run", mode=Mode.SILENT)
    saved = store.load(tmp_path / "run" / "checkpoints")
    assert saved is not None
    loop = Loop(plan.recipe, plan.task, seed=plan.seed, num_steps=plan.steps)
    assert store.difference(loop.snapshot(), saved.tree["loop"])
    loop.restore(saved.tree["loop"])
    assert not store.difference(loop.snapshot(), saved.tree["loop"])


# ---------------------------------------------------------------------------------------------------- refusals
def small_run(folder: Path, **changes: Any) -> run.Run:
    settings = {"rollout.num_starts": 2, "rollout.group_size": 2}
    options = RunOptions(cadence=CadenceOptions(save_every="1steps"))
    told: dict[str, Any] = {"steps": 3, "out": folder, "settings": settings, "options": options}
    return run.train("reinforce", "bandit", **told | changes)


def test_a_folder_with_another_micro_batch_is_refused(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    with pytest.raises(AssayError, match=r"other settings \(different: micro_batch\)"):
        small_run(tmp_path / "run", placement=Placement(micro_batch=2))


@pytest.mark.parametrize(
    ("changes", "named_in_message"),
    [
        ({"steps": 4}, "different: steps"),
        ({"seed": 1}, "different: seed"),
        (
            {"settings": {"rollout.num_starts": 3, "rollout.group_size": 2}},
            "settings.rollout.num_starts, recipe.rollout.num_starts",
        ),
    ],
)
def test_a_folder_with_other_settings_is_refused_and_they_are_named(
    tmp_path: Path, changes: dict[str, Any], named_in_message: str
) -> None:
    small_run(tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(AssayError, match=named_in_message):
        small_run(tmp_path / "run", **changes)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != store.LOCK} == {
        path: content for path, content in before.items() if path.name != store.LOCK
    }


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("settings", {"rollout.num_starts": "3", "rollout.group_size": "2"}, "recipe.rollout.num_starts"),
        ("steps", 5, "was edited"),
        ("seed", 9, "was edited"),
        ("micro_batch", 1, "was edited"),
    ],
)
def test_a_run_whose_config_was_edited_does_not_go_on(tmp_path: Path, name: str, value: Any, reason: str) -> None:
    small_run(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(AssayError, match=reason):
        run.resume(tmp_path / "run")


def test_a_changed_data_file_is_refused_and_named(tmp_path: Path) -> None:
    data = tmp_path / "items.jsonl"
    rows = [{"prompt": f"{n} plus one?", "answer": str(n + 1)} for n in range(40)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options: dict[str, Any] = {
        "steps": 1, "warmup": 0, "out": tmp_path / "run",
        "settings": {"source.batch": 2, "actor.width": 8, "actor.layers": 1, "actor.heads": 2},
    }  # fmt: skip
    run.train("sft", str(data), **options)
    assert run.train("sft", str(data), **options).scores_after.size
    data.write_text(data.read_text().replace("plus one", "plus  one"))
    with pytest.raises(AssayError, match=r"task_settings\.items\.digest"):
        run.train("sft", str(data), **options)


def test_a_run_of_another_number_type_goes_on_from_its_folder(tmp_path: Path) -> None:
    plan = make_plan("reinforce", "bandit", steps=2, placement=Placement(precision=torch.bfloat16))
    first = run.execute(plan, tmp_path / "run", mode=Mode.SILENT)
    again = run.resume(tmp_path / "run", mode=Mode.SILENT)
    assert not store.difference(first.scores_after, again.scores_after)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_a_pretrained_model_stopped_and_gone_on_with_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.models.test_transformers import save_qwen

    settings = {"rollout.num_starts": 2, "rollout.group_size": 2}
    model = save_qwen(tmp_path / "model")
    plan = make_plan("rloo", "addition-1", steps=3, settings=settings, warmup=2, model=model)
    monkeypatch.setattr(evaluation, "PROMPTS", 4)
    run.execute(plan, tmp_path / "whole", mode=Mode.SILENT)
    with monkeypatch.context() as patch:
        patch.setattr(run, "stop_signals", lambda: nullcontext(lambda: 15))
        for _ in range(5):  # the two steps of the warm-up and the three after it
            with pytest.raises(run.Stopped):
                started(plan, tmp_path / "parts")
    run.resume(tmp_path / "parts", mode=Mode.SILENT)
    assert not store.difference(result_of(tmp_path / "whole"), result_of(tmp_path / "parts"))


# ---------------------------------------------------------------------------------------------------- broken folders
def test_a_corrupt_checkpoint_falls_back_to_the_one_before_and_ends_the_same(tmp_path: Path, capsys: Any) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    small_run(whole)
    small_run(broken)
    (broken / "README.md").unlink()
    newest = sorted((broken / "checkpoints").iterdir())[-1] / store.TENSORS
    newest.write_bytes(newest.read_bytes()[:-1])
    run.resume(broken, mode=Mode.PLAIN)
    assert "resuming from step 2" in capsys.readouterr().out
    trees = [store.load(folder / "checkpoints").tree["loop"] for folder in (whole, broken)]
    assert not store.difference(*trees)
    assert without_time(read_metrics(whole)) == without_time(read_metrics(broken))


def test_a_run_without_any_valid_checkpoint_is_not_begun_anew_silently(tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").rglob(store.MANIFEST):
        path.write_text("{}")
    with pytest.raises(store.CheckpointError, match="none of the 2 checkpoints"):
        run.resume(tmp_path / "run")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(AssayError, match=r"not empty \(it holds README.md\)"):
        small_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_what_is_wrong_is_found_before_the_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(AssayError):
        run.train("sft", "bandit", steps=1, out=tmp_path / "run", settings={"source.batch": 0})
    assert not (tmp_path / "run").exists()
