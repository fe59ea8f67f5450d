"""`assay plan`: calls of a method, seconds and memory by hand, plans against enumeration, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.runs.placements import best, by_call, meshes, ppo_graph
from assay.runs.planner import FROZEN, MICRO, TRAINED, Load, Planner, Shape, fitted, make_planner, shape_of
from assay.runs.progress import Mode
from assay.runs.run import train

SMALL = Shape(1e9, 10, 1_000, 2_000.0)
EVERY, LEFT, RIGHT = frozenset(range(4)), frozenset({0, 1}), frozenset({2, 3})
POOR = ppo_graph((30.0, 0.3), (12.0, 0.6), (30.0, 0.8), 0.5)
"""Generation gains little from more devices: the graph of realhf's claims, whose best plan is known."""


def planner_of(**changes: object) -> Planner:
    """Four models of a billion weights on four GPUs."""
    return replace(Planner(POOR, SMALL, Load(100, 100, 100), 4, 80e9), **changes)  # type: ignore[arg-type]


def test_the_calls_are_those_that_the_recipe_has() -> None:
    names = {method: [call.name for call in make_planner(method, "1B", 2).graph.calls] for method in ("grpo", "ppo")}
    assert names["grpo"] == ["generate", "train actor"]
    assert names["ppo"] == ["generate", "score value", "train actor", "train value"]
    offline = [call.name for call in make_planner("dpo", "1B", 2).graph.calls]
    assert "score reference" in offline


def test_memory_is_that_by_hand() -> None:
    together = dict.fromkeys((call.name for call in POOR.calls), EVERY)
    held = (2 * TRAINED + 2 * FROZEN) * 1e9 / 4
    activations = MICRO * 10 * 1_000 * 2
    assert planner_of().memory(together) == pytest.approx(held + activations)
    long = planner_of(load=Load(1_000, 5_000, 5_000))
    assert long.memory(together) == pytest.approx(held + 1_000 * 10_000 * 2_000.0 / 4), "keys and values are more"
    apart = together | {"train actor": LEFT, "train critic": RIGHT, "value": RIGHT}
    actor = TRAINED * 1e9 / 2 + FROZEN * 1e9 / 4 + 2 * FROZEN * 1e9 / 4  # its copy that generates, two frozen models
    assert planner_of().memory(apart) == pytest.approx(actor + activations)


def test_the_search_finds_the_plan_of_enumeration() -> None:
    plans = {one.name: one for one in planner_of().plans()}
    assert plans["together"].seconds == pytest.approx(55.2551, abs=1e-4)
    assert plans["a mesh for each model"].seconds == pytest.approx(52.7256, abs=1e-4)
    assert plans["a mesh for each call"].seconds == pytest.approx(49.5231, abs=1e-4)
    two = planner_of(gpus=2)
    assert {one.name: one for one in two.plans()}["a mesh for each call"].seconds == pytest.approx(
        best(POOR, by_call(POOR, meshes(2)))[0]
    )


def test_plans_that_do_not_fit_are_left_out_and_too_small_gpus_refused() -> None:
    rooms = [planner_of(gpu_memory=gigabytes * 1e9) for gigabytes in (80, 11, 5)]
    free, tight = (max(one.memory for one in room.plans()) for room in rooms[:2])
    assert tight <= 0.9 * 11e9 < free
    with pytest.raises(AssayError, match="takes 9 GB of each of 4 GPUs"):
        rooms[2].plans()


def test_sampling_beside_training_takes_the_longer_of_the_two() -> None:
    (found,) = planner_of().beside()
    rest = frozenset({1, 2, 3})
    longer = max(30.0, 3 * 12 / 3**0.6 + 2 * 30 / 3**0.8)
    assert found.plan["generate"] == {0}
    assert found.plan["train actor"] == rest
    assert found.seconds == pytest.approx(longer + 0.5)


def test_measured_seconds_give_work_and_scaling() -> None:
    call = fitted(POOR.calls[0], {1: 8.0, 4: 4.0})
    assert (call.work, call.scaling) == (pytest.approx(8.0), pytest.approx(0.5))
    once = fitted(POOR.calls[0], {2: 5.0})
    assert once.seconds(LEFT) == pytest.approx(5.0)
    assert once.scaling == POOR.calls[0].scaling


def test_step_times_of_a_file_and_of_a_run_replace_estimates(tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    file.write_text(json.dumps({"generate": 12.0, "train actor": {"1": 9.0, "2": 6.0}}))
    planner = make_planner("grpo", "1B", 2, times=file)
    assert [call.work for call in planner.graph.calls] == [pytest.approx(12.0), pytest.approx(9.0)]
    assert planner.measured == ("generate", "train actor")
    settings = {"rollout.num_starts": 2, "rollout.group_size": 2}
    train("grpo", "addition-1", steps=3, settings=settings, warmup=0, evaluations=0, out=tmp_path / "run",
          mode=Mode.SILENT)  # fmt: skip
    lines = [json.loads(line)["time"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    seconds = [one["sample"] for one in lines if "sample" in one][1:]
    generate = make_planner("grpo", "1B", 2, times=tmp_path / "run").graph.calls[0]
    assert generate.work == pytest.approx(sum(seconds) / 2)


def test_sizes_come_from_a_word_or_a_folder(tmp_path: Path) -> None:
    assert shape_of("7B").layers == 33
    facts = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    facts |= {"vocab_size": 10, "num_key_value_heads": 1, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(facts))
    found = shape_of(str(tmp_path))
    assert found.parameters == 2 * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16) + 10 * 8
    assert found.kept == 2 * 2 * 4 * 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["grpo", "--model", "7B", "--gpus", "6"], "--gpus is 6. Use a power of two"),
        (["grpo", "--model", "seven", "--gpus", "4"], "--model is 'seven'"),
        (["sac", "--model", "7B", "--gpus", "4"], "sac does not train language models"),
        (["ppo", "--model", "70B", "--gpus", "4"], "Use more --gpus"),
        (["grpo", "--model", "7B", "--gpus", "4", "--rows", "0"], "--rows is 0"),
        (["grpo", "--model", "7B", "--gpus", "4", "--gpu-memory", "-1"], "--gpu-memory is -1"),
        (["grpo", "--model", "7B", "--gpus", "4", "--prompt-tokens", "0"], "--prompt-tokens is 0"),
        (
            ["grpo", "--model", "7B", "--gpus", "4", "--step-times", "TIMES"],
            "which is no call here. The calls are",
        ),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "times.json").write_text(json.dumps({"score judge": 1.0}))
    given = [str(tmp_path / "times.json") if word == "TIMES" else word for word in words]
    assert cli.main(["plan", *given]) == 2
    assert expected in " ".join(capsys.readouterr().err.split())


def test_the_command_prints_plans_and_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "ppo", "--model", "1B", "--gpus", "2"]) == 0
    printed = capsys.readouterr().out
    assert "a mesh for each call" in printed
    assert "is planned, not run" in printed
    assert cli.main(["plan", "ppo", "--model", "1B", "--gpus", "2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["plans"][0]["plan"] == "together"
    assert not facts["calls"]["generate"]["measured"]


def test_longer_prompts_are_trained_longer(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = []
    for tokens in ("512", "2048"):
        assert cli.main(["plan", "grpo", "--model", "1B", "--gpus", "2", "--prompt-tokens", tokens, "--json"]) == 0
        seconds.append(json.loads(capsys.readouterr().out)["plans"][0]["seconds"])
    assert seconds[1] > seconds[0]
