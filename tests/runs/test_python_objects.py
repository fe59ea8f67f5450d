"""Classes, functions and objects of Python in the places of names and files: methods, environments, judges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay
from assay import recipes
from assay.core.errors import AssayError
from assay.datasets.files import from_arrays, read, write
from assay.recipes.method import Method
from assay.recipes.presets import TABLE
from assay.runs import run as run_module
from assay.runs.given import default_task, given_data, given_method, given_task
from assay.runs.keywords import with_keywords
from assay.runs.options import RunOptions
from assay.runs.plan import plan_of, repeat_command
from assay.runs.user_code import objects

gymnasium = pytest.importorskip("gymnasium", reason="the extra 'control' is not installed")
ROWS = [{"prompt": f"{n} + {n} =", "answer": str(2 * n)} for n in range(1, 41)]
SHORT: dict[str, Any] = {"steps": 1, "warmup": 0, "prompts": 4, "group_size": 2, "max_tokens": 4, "eval_prompts": 4}


def walk_of(size: int) -> type:
    """Returns a class of environments that no import finds."""

    class Walk(gymnasium.Env):  # type: ignore[misc,name-defined]
        max_episode_steps = 8

        def __init__(self) -> None:
            self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
            self.action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            super().reset(seed=seed)
            self.at = 0
            return np.zeros(1, np.float32), {}

        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            self.at = max(-size, min(size, self.at + 2 * int(action) - 1))
            seen = np.array([self.at / size], np.float32)
            return seen, float(self.at == size), self.at == size, False, {}

    return Walk


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> assay.Run:
    return assay.train("ppo", walk_of(2), steps=1, eval_episodes=4, out=tmp_path_factory.mktemp("walk") / "run")


def test_a_class_of_environments_is_a_task(walked: assay.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(walked.folder)
    assert plan.address == "python:Walk"
    assert repeat_command(plan) == ""
    assert walked.task.name == "Walk"
    monkeypatch.setattr(objects, "GIVEN", {})
    with pytest.raises(AssayError, match=r"made with the Python object 'Walk'.*functions=\[Walk\]"):
        assay.resume(walked.folder)
    again = walk_of(2)
    assert assay.resume(walked.folder, functions=[again]).curves == walked.curves


def test_a_run_is_evaluated_as_an_object_and_as_a_folder(walked: assay.Run) -> None:
    here, there = assay.evaluate(walked, starts=6), assay.evaluate(walked.folder, starts=6, micro_batch=2)
    assert here.mean == there.mean
    assert np.array_equal(here.scores, there.scores)
    assert (here.mean.count, here.what) == (6, "episodes")
    assert "held-out score" in here._repr_html_()
    assert here.facts()["mean"] == here.mean.value
    other = assay.evaluate(walked, task=walk_of(1), starts=3)
    assert other.scores.shape == (3, 1)


def test_what_is_printed_in_a_console_is_its_table_in_words(walked: assay.Run) -> None:
    """Not the fields of dataclasses, which are a page long."""
    told = repr(walked)
    assert told.startswith(f"<ppo on {walked.task.name}: held-out score {walked.before} before, {walked.after} after")
    assert str(walked.folder) in told
    assert len(told.splitlines()) == 1
    seen = assay.evaluate(walked)
    assert repr(seen).splitlines() == seen.lines()


def test_what_is_loaded_has_names(walked: assay.Run) -> None:
    found = assay.load(walked.folder)
    policy, plan, step = found
    assert (found.policy, found.plan, found.step) == (policy, plan, step)
    assert step == 1
    assert found.policy.predict(np.zeros(1, np.float32)) in (0, 1)


def test_without_a_task_it_is_the_methods_own_or_that_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module, "execute", lambda plan, folder, **how: plan)
    assert assay.train("ppo", steps=1).address == "cartpole"
    demonstration = assay.train()
    assert (demonstration.address, demonstration.recipe.name) == ("sorting-5", "grpo"), "as `assay train` alone"
    columns = {"observation": [[0.0], [1.0]], "action": [0, 1], "reward": [1.0, 0.0], "terminal": [False, True]}
    columns |= {"truncated": [False, False], "next_observation": [[1.0], [0.0]]}
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    path = write(replace(from_arrays(arrays, {}), about={"task": "chain"}), tmp_path / "rows.safetensors")
    assert default_task("ppo", [str(path)]) == "chain"
    with pytest.raises(AssayError, match=r"the recipe 'grpo' has no default task\. Name one"):
        assay.train(recipes.grpo(TABLE))


def test_a_recipe_of_ones_own_is_evaluated_where_it_was_trained(tmp_path: Path) -> None:
    run = assay.train(replace(recipes.reinforce(TABLE), name="mine"), "bandit", steps=1, out=tmp_path / "run")
    assert assay.evaluate(run, starts=20).method == "mine"
    with pytest.raises(AssayError, match="started from Python with its own recipe"):
        assay.evaluate(run.folder)


def test_a_function_that_makes_an_environment_is_a_task(tmp_path: Path) -> None:
    run = assay.train("ppo", lambda: walk_of(3)(), steps=1, eval_episodes=2, out=tmp_path / "run")
    assert run.task.name == "task_0"
    with pytest.raises(AssayError, match=r"task is a Walk that is made already.*task=lambda: make"):
        assay.train("ppo", walk_of(3)())


def test_a_method_and_a_function_that_makes_recipes_are_methods(tmp_path: Path) -> None:
    def mine(preset: Any) -> assay.Recipe:
        return replace(recipes.reinforce(preset), name="mine")

    run = assay.train(mine, "bandit", steps=1, out=tmp_path / "run")
    assert plan_of(run.folder).method == "python:mine"
    made = Method("", mine, (TABLE,), "bandit", family="policy gradient")
    assert assay.train(made, "bandit", steps=1, out=tmp_path / "made").after == run.after
    assert plan_of(tmp_path / "made").method == "python:METHOD"
    from assay.methods.rover import METHOD

    assert given_method(METHOD) == "assay.methods.rover:METHOD"
    with pytest.raises(AssayError, match="method is 3"):
        given_method(3)  # type: ignore[arg-type]


class Strict:
    """A judge that is an object."""

    def __call__(self, prompts: Sequence[str]) -> list[str]:
        return ["Score: 7" for _ in prompts]


@pytest.mark.filterwarnings("ignore:rewards and held-out scores")
def test_a_judge_is_a_function_or_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = assay.train("grpo", ROWS, judge=Strict(), out="run", **SHORT)
    assert run.curves[-1]["reward"] == pytest.approx(0.7)
    assert plan_of("run").options.own.judge == "python:judge_0"
    run = assay.train("grpo", ROWS, judge=lambda prompts: ["Score: 2"] * len(prompts), out="other", **SHORT)
    assert run.curves[-1]["reward"] == pytest.approx(0.2)
    with pytest.raises(AssayError, match="judge=3 cannot be called"):
        assay.train("grpo", ROWS, judge=3)  # type: ignore[arg-type]


def test_a_wrapper_is_a_class(tmp_path: Path) -> None:
    class Doubled(gymnasium.RewardWrapper):  # type: ignore[misc,name-defined]
        def reward(self, reward: float) -> float:
            return 2.0 * reward

    run = assay.train("ppo", walk_of(1), wrapper=Doubled, steps=1, eval_episodes=2, out=tmp_path / "run")
    assert plan_of(run.folder).options.environment.wrapper == ("python:Doubled",)
    assert run.scores_after.max() in (0.0, 2.0)


def test_digests_are_of_the_source_and_not_of_addresses() -> None:
    namespace: dict[str, Any] = {}
    exec("class A:\n    def f(self):\n        return (lambda x: x + 1)(2)", namespace)  # no file has this text
    other: dict[str, Any] = {}
    exec("class A:\n    def f(self):\n        return (lambda x: x + 1)(2)", other)
    assert list(objects.texts_of(namespace["A"])) == list(objects.texts_of(other["A"]))
    exec("class A:\n    def f(self):\n        return (lambda x: x + 2)(2)", other)
    assert list(objects.texts_of(namespace["A"])) != list(objects.texts_of(other["A"]))


def test_arrays_are_offline_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    seen = draw.normal(size=(65, 3)).astype(np.float32)
    arrays = {
        "observation": seen[:-1], "next_observation": seen[1:], "action": draw.uniform(-2, 2, (64, 1)),
        "reward": draw.normal(size=64), "terminal": np.zeros(64, bool), "truncated": np.arange(64) % 16 == 15,
    }  # fmt: skip
    (file,) = given_data(arrays)
    assert given_data([Path(file), "minari:x"]) == (file, "minari:x")
    assert given_data(read(file)) == (file,), "the same content is the same file"
    run = assay.train("bc", "pendulum", data=arrays, steps=1, eval_episodes=1, out="run")
    assert [one.path for one in plan_of(run.folder).data] == [str(Path(file).resolve())]
    with pytest.raises(AssayError, match="data is a int"):
        given_data(3)


def test_a_run_stands_for_its_folder_and_texts_for_their_files(
    walked: assay.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = {
        "from_": walked,
        "judge": "http://localhost:1/v1",
        "judge_prompt": "Rate {completion}",
        "rubric": [{"a": 1}],
    }
    options = with_keywords(RunOptions(), None, told)[0]
    assert options.cadence.from_ == str(walked.folder)
    assert options.own.judge_prompt is not None
    assert options.own.rubric is not None
    assert Path(options.own.judge_prompt).read_text() == "Rate {completion}"
    assert json.loads(Path(options.own.rubric).read_text()) == [{"a": 1}]
    assert with_keywords(RunOptions(), None, {"rubric": "mine.json"})[0].own.rubric == "mine.json"


def test_a_function_that_makes_recipes_is_tuned_here(tmp_path: Path) -> None:
    def mine(preset: Any) -> assay.Recipe:
        return replace(recipes.rloo(preset), name="mine")

    how = {"trials": 1, "tuning_seeds": 1, "seeds": 1, "steps": 1, "out": tmp_path / "out"}
    assert len(assay.tune(mine, "bandit", {"policy.learning_rate": [0.1]}, **how).trials) == 1
    with pytest.raises(AssayError, match="Give the function that makes it"):
        assay.tune(recipes.rloo(TABLE), "bandit", {"policy.learning_rate": [0.1]})


def test_words_and_files_stay_words() -> None:
    assert given_task("cartpole") == "cartpole"
    assert given_task(Path("rows.jsonl")) == "rows.jsonl"
    assert given_method("grpo") == "grpo"


def test_a_method_is_shown_and_its_claims_run_from_python(tmp_path: Path) -> None:
    shown = assay.show("rloo", "countdown", everything=True)
    assert shown["name"] == "rloo"
    assert "what it changes in" in str(shown)
    assert any("learning_rate = " in line for line in str(shown).split("\n"))
    assert "<pre" in shown._repr_html_()
    found = assay.claim("rloo", exact=True, folder=tmp_path)
    assert found["verdict"] == "holds"
    assert "its gradient is the formula's" in repr(found)
    assert not list(tmp_path.iterdir())
    found = assay.claim("rloo", again=True, budget=1e-6, folder=tmp_path, work=tmp_path / "work")
    assert found["verdict"] == "unfinished"
    assert [one["verdict"] for one in found["claims"]].count("unfinished") == 1
    with pytest.raises(AssayError, match="budget is 0"):
        assay.claim("rloo", budget=0)
