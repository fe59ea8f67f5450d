"""Options of environments: how they are made, stacked, standardised and distributed over processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.spaces import Box, Image, Spec
from assay.engine.loop import Loop
from assay.models.bodies.standardised import Moments
from assay.parts.rollouts.episodes import Fragments
from assay.parts.rollouts.standardised import Standardising, deviation, no_moments, observe
from assay.runs import catalogue, saving
from assay.runs.options import EnvironmentOptions, RunOptions
from assay.runs.plan import make_plan
from assay.runs.progress import Mode
from assay.runs.run import Run, loaded, train
from assay.runs.systems import describe_unused
from assay.tasks.adapters.gymnasium import EnvironmentTask, Simulated, environment_task
from assay.tasks.adapters.gymnasium_workers import ReadyWorkers
from assay.tasks.control.frames import with_frames
from assay.tasks.control.stepping import SteppedTask

gymnasium = pytest.importorskip("gymnasium")
SMALL = {"rollout.steps": 8, "source.epochs": 2, "source.minibatches": 2}


class Walk(gymnasium.Env):  # type: ignore[misc]
    """A walk on a line, far from 0; the episode ends where it leaves the line."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-2000.0, 2000.0, (2,), np.float32)

    def __init__(self, width: int = 5, dies: bool = False) -> None:
        self.width, self.dies, self.total = width, dies, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.odd = 0, int(self.np_random.integers(2))
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        return np.array([1000.0 + self.place, self.odd], np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.total += 1
        if self.dies and self.total > 150:
            os.kill(os.getpid(), signal.SIGKILL)
        self.place += 2 * action - 1
        return self.seen(), 100.0 * self.place, abs(self.place) >= self.width, False, {}


class Doubled(gymnasium.Wrapper):  # type: ignore[misc]
    def step(self, action: int) -> Any:
        seen, reward, *rest = self.env.step(action)
        return seen, 2 * reward, *rest


def walk(**keywords: Any) -> EnvironmentTask:
    return environment_task("walk", lambda **more: Walk(**(keywords | more)), 12)


def trained(
    folder: Path, method: str = "ppo", task: Any = None, steps: int = 2, length: int = 8, **options: Any
) -> Run:
    return train(
        method,
        task or walk(),
        steps=steps,
        settings=SMALL | {"rollout.steps": length} | ({"rollout.num_envs": 4} if "num_envs" not in options else {}),
        evaluations=0,
        out=folder,
        options=RunOptions(environment=EnvironmentOptions(**options)),
        mode=Mode.SILENT,
    )


def curves(run: Run) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "time"} for row in run.curves]


# ---------------------------------------------------------------------------------------------------- ranges
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frame_stack": 0}, "--frame-stack is 0. Use a whole number from 1"),
        ({"num_envs": -1}, "--num-envs is -1"),
        ({"decisions": 10**20}, "--decisions is 1000"),
        ({"env_workers": -2}, "--env-workers is -2"),
        ({"env_ready": 2}, "--env-ready is 2, but --env-workers is 0"),
        ({"env_workers": 2, "env_ready": 3}, "--env-ready is 3, but --env-workers is 2"),
        ({"env_workers": 2, "env_ready": 1, "frame_stack": 2}, "--env-ready is 1, but --frame-stack 2"),
        ({"max_episode_steps": 0}, "--max-episode-steps is 0"),
        ({"normalize": "obs,gradient"}, "--normalize is 'obs,gradient'"),
        ({"env_set": ("gravity",)}, "--env-set gravity is not of the form key=value"),
        ({"wrapper": ("nowhere",)}, "--wrapper nowhere: 'nowhere' is neither a Python file nor a module"),
        ({"wrapper": ("no_such_module:Name",)}, "--wrapper no_such_module:Name: 'no_such_module' is neither"),
        ({"env_set": ("height=3",)}, "making it raised TypeError.*height"),
    ],
)
def test_values_out_of_range_are_refused_in_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssayError, match=message) as error:
        make_plan("ppo", walk(), options=RunOptions(environment=EnvironmentOptions(**options)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("method", "task", "options", "message"),
    [
        ("ppo", "cartpole", {"env_workers": 2}, "--env-workers is for Gymnasium environments; task 'cartpole'"),
        ("ppo", "bandit", {"frame_stack": 2}, "--frame-stack"),
        ("grpo", "cartpole", {"num_envs": 2}, "--num-envs needs rollouts of fixed length"),
        ("grpo", "cartpole", {"decisions": 2}, "--decisions needs rollouts of fixed length"),
        ("ppo", "bandit", {"normalize": "obs"}, "--normalize"),
        ("td3-bc", "pendulum", {"normalize": "reward"}, "--normalize reward measures .*, but td3-bc reads data"),
    ],
)
def test_options_that_a_run_cannot_use_are_refused(
    method: str, task: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AssayError, match=message):
        make_plan(method, task, options=RunOptions(environment=EnvironmentOptions(**options)))


# ---------------------------------------------------------------------------------------------------- making
def test_keywords_wrappers_and_limits_reach_the_environment(tmp_path: Path) -> None:
    here = f"{Path(__file__)}:Doubled"
    options = RunOptions(environment=EnvironmentOptions(env_set=("width=3",), wrapper=(here,), max_episode_steps=7))
    task = make_plan("ppo", walk(), options=options).task
    assert isinstance(task, EnvironmentTask)
    assert task.spec.horizon == 7
    simulation = task.simulate(1)
    simulation.reset(np.array([0]))
    answers = [simulation.step(torch.tensor([1])) for _ in range(3)]
    assert [float(reward) for _, reward, *_ in answers] == [200.0, 400.0, 600.0]
    assert [bool(terminal) for _, _, terminal, *_ in answers] == [False, False, True]


def test_a_time_limit_replaces_the_registered_one() -> None:
    options = RunOptions(environment=EnvironmentOptions(max_episode_steps=600))
    task = make_plan("ppo", "Pendulum-v1", options=options).task
    assert isinstance(task, EnvironmentTask)
    assert task.spec.horizon == 600
    assert task.build().spec.max_episode_steps == 600
    kept = make_plan("ppo", walk(), options=RunOptions(environment=EnvironmentOptions(env_set=("width=3",)))).task
    assert kept.spec.horizon == 12


def test_decisions_become_steps_and_environments_keep_the_batch() -> None:
    options = RunOptions(environment=EnvironmentOptions(decisions=5000, num_envs=8))
    plan = make_plan("ppo", "cartpole", options=options)
    assert isinstance(plan.recipe.rollout, Fragments)
    assert (plan.recipe.rollout.num_envs, plan.recipe.rollout.steps, plan.steps) == (8, 256, 3)
    with pytest.raises(AssayError, match="--steps 9 and --decisions 5000"):
        make_plan("ppo", "cartpole", steps=9, options=options)


# ---------------------------------------------------------------------------------------------------- frames
def test_frames_repeat_the_first_observation_and_never_span_episodes() -> None:
    task = with_frames(walk(width=2), 3)
    assert task.spec.observation == Box((-2000.0,) * 6, (2000.0,) * 6)
    simulation, again = task.simulate(1), task.simulate(1)
    seen = [simulation.reset(np.array([5]))["observation"]]
    for _ in range(4):
        seen.append(simulation.step(torch.tensor([1]))[0]["observation"])
    places = [row[0, 0::2].sub(1000.0).tolist() for row in seen]
    assert places == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [0, 0, 0], [0, 0, 1]]
    again.restore(simulation.snapshot())
    assert torch.equal(
        again.step(torch.tensor([0]))[0]["observation"], simulation.step(torch.tensor([0]))[0]["observation"]
    )


def test_frames_of_images_are_channels() -> None:
    space = Image(3, 8, 8)
    task = SteppedTask("dots", Spec(space, walk().spec.action, 5), lambda num: Dots(num))  # type: ignore[arg-type, return-value]
    stacked = with_frames(task, 2)
    assert stacked.spec.observation == Image(6, 8, 8)
    first = stacked.simulate(2).reset(np.arange(2))["image"]
    assert first.shape == (2, 6, 8, 8)
    assert first.dtype == torch.uint8


class Dots:
    """A simulation of black images."""

    def __init__(self, num: int) -> None:
        self.num = num

    def reset(self, seeds: np.ndarray) -> dict[str, torch.Tensor]:
        return {"image": torch.zeros(self.num, 3, 8, 8, dtype=torch.uint8)}


# ---------------------------------------------------------------------------------------------------- moments
def test_moments_equal_those_of_all_rows_together() -> None:
    rows = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).double() * 5 + 1000
    state = no_moments()
    for part in rows.split((7, 1, 32)):
        observe(state, part)
    assert torch.allclose(state["mean"], rows.mean(0))
    assert torch.allclose(deviation(state), rows.std(0, correction=0))


def test_observations_are_standardised_by_earlier_ones_and_saved(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", normalize="obs,reward")
    moments = [module for module in run.policy.modules() if isinstance(module, Moments)]
    value = [module for module in run.models["value"].modules() if isinstance(module, Moments)]
    assert abs(float(moments[0].mean[0]) - 1000.0) < 5.0
    assert torch.equal(moments[0].mean, value[0].mean)
    plan = make_plan("ppo", walk(), steps=2, settings=SMALL | {"rollout.num_envs": 4}, evaluations=0,
                     options=RunOptions(environment=EnvironmentOptions(normalize="obs,reward")))  # fmt: skip
    policy = loaded(plan, tmp_path / "run").policy
    again = next(module for module in policy.modules() if isinstance(module, Moments))
    assert torch.equal(again.mean, moments[0].mean)
    assert torch.equal(again.deviation, moments[0].deviation)
    assert run.curves[-1]["decisions_total"] == pytest.approx(96, abs=12), "the measuring rollout counts as spent"


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return() -> None:
    record = Experience(
        {"observation": torch.zeros(1, 4, 1)}, torch.zeros(1, 4), torch.tensor([[True, True, True, False]]),
        torch.zeros(1, 4), torch.tensor([[2.0, 4.0, 6.0, 0.0]]), torch.tensor([[False, True, False, False]]),
        torch.zeros(1, 4, dtype=torch.bool),
    )  # fmt: skip
    part = Standardising(Fragments(1, 3), reward=True, discount=0.5)
    state = {"observation": no_moments(), "return": no_moments(), "running": None}
    scaled = part.measured(record, state)
    returns = torch.tensor([2.0, 5.0, 6.0]).double()
    assert torch.allclose(
        scaled.reward[0, :3].double(), torch.tensor([2.0, 4.0, 6.0]).double() / returns.std(correction=0)
    )
    assert float(state["running"][0]) == 6.0


def test_a_standardised_run_resumes_bitwise(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", steps=4, normalize="obs,reward", frame_stack=2)
    part = tmp_path / "part"
    with pytest.raises(RuntimeError, match="stop here"):
        interrupted(part)
    resumed = trained(part, steps=4, normalize="obs,reward", frame_stack=2)
    assert curves(resumed) == curves(whole)


def interrupted(folder: Path) -> None:
    """Runs two of four steps."""
    step, count = Loop.step, [0]

    def limited(self: Loop) -> Any:
        count[0] += 1
        if count[0] > 2:
            raise RuntimeError("stop here")
        return step(self)

    patch = pytest.MonkeyPatch()
    patch.setattr(Loop, "step", limited)
    try:
        trained(folder, steps=4, normalize="obs,reward", frame_stack=2)
    finally:
        patch.undo()


# ---------------------------------------------------------------------------------------------------- processes
def test_workers_give_the_same_numbers(tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone")
    apart = trained(tmp_path / "apart", env_workers=3)
    assert curves(apart) == curves(alone)
    one, other = walk().simulate(4), walk().with_workers(2).simulate(4)
    one.reset(np.arange(4))
    for _ in range(5):
        one.step(torch.tensor([0, 1, 1, 0]))
    other.restore(one.snapshot())
    ours, theirs = one.step(torch.tensor([1, 1, 0, 0])), other.step(torch.tensor([1, 1, 0, 0]))
    assert torch.equal(ours[0]["observation"], theirs[0]["observation"])
    assert torch.equal(ours[1], theirs[1])
    assert {name: len(value) for name, value in other.snapshot().items()} == {
        name: len(value) for name, value in one.snapshot().items()
    }


@pytest.mark.parametrize(("workers", "ready"), [(3, 1), (4, 3)])
def test_workers_that_are_stepped_apart_give_the_same_numbers(tmp_path: Path, workers: int, ready: int) -> None:
    alone = trained(tmp_path / "alone")
    apart = trained(tmp_path / "apart", env_workers=workers, env_ready=ready)
    assert curves(apart) == curves(alone)


def test_instances_that_wait_for_others_answer_first() -> None:
    """One of three processes is asked late: the others answer, and go on."""
    simulation = walk().with_workers(3, 2).simulate(7)  # blocks of 3, 2 and 2 instances
    assert isinstance(simulation, ReadyWorkers)
    assert [rows.tolist() for rows in simulation.groups] == [[0, 1, 2, 3, 4], [5, 6]]
    simulation.reset(np.arange(7))
    for _ in range(3):
        simulation.send(np.arange(5), torch.ones(5, dtype=torch.long))
        assert simulation.receive()[0].tolist() == [0, 1, 2, 3, 4]
    simulation.send(np.array([5, 6]), torch.tensor([0, 1]))
    rows, seen, *_ = simulation.receive()
    assert rows.tolist() == [5, 6]
    assert seen["observation"][:, 0].tolist() == [999.0, 1001.0]


def test_ready_workers_need_fragments() -> None:
    options = RunOptions(environment=EnvironmentOptions(env_workers=2, env_ready=1))
    with pytest.raises(AssayError, match="--env-ready is 1, but grpo gathers whole episodes"):
        make_plan("grpo", walk(), options=options)


def test_a_system_brings_its_options_where_none_is_given() -> None:
    assert make_plan("envpool", walk()).options.environment.env_ready == 2
    given = RunOptions(environment=EnvironmentOptions(env_workers=3))
    assert make_plan("envpool", walk(), options=given).options.environment.env_workers == 3
    assert make_plan("envpool", "cartpole").options == RunOptions()
    assert make_plan("ppo", walk()).options == RunOptions()
    assert make_plan("asyncflow", "bandit").options.gathering.lag == 1


def test_a_killed_worker_is_named_and_the_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "SHORTEST", 0.0)  # a checkpoint after every step
    monkeypatch.setattr(saving, "SHARE", 1e9)
    with pytest.raises(
        AssayError, match=r"task 'walk': worker \d \(instances \d to \d\) was killed by SIGKILL in step"
    ):
        trained(tmp_path / "run", task=walk(dies=True), steps=4, length=64, env_workers=2)
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    whole = trained(tmp_path / "whole", steps=4, length=64)
    resumed = trained(tmp_path / "run", steps=4, length=64, env_workers=2)
    assert curves(resumed) == curves(whole)


def test_a_system_without_effect_on_a_built_in_task_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = {"rollout.num_envs": 2, "rollout.steps": 4}
    for method in ("envpool", "srl-system"):
        train(method, "cartpole", steps=1, settings=few, evaluations=0, out=tmp_path / method, mode=Mode.PLAIN)
        printed = " ".join(capsys.readouterr().out.split())
        assert f"{method} runs as its base here: --env-workers 4" in printed
        assert "does nothing on 'cartpole'" in printed


def test_a_run_of_a_studied_method_says_what_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = {"rollout.num_envs": 2, "rollout.steps": 4}
    train("realhf", "cartpole", steps=1, settings=few, evaluations=0, out=tmp_path / "run", mode=Mode.PLAIN)
    printed = " ".join(capsys.readouterr().out.split())
    assert "realhf is studied, not run" in printed
    assert "assay train realhf is ppo" in printed


def test_systems_of_environments_use_their_processes_by_default() -> None:
    for method, ready in (("envpool", 2), ("srl-system", 1)):
        task = make_plan(method, catalogue.find_method(method)[1].default_task).task
        assert isinstance(task, EnvironmentTask)
        assert isinstance(task.make, Simulated)
        assert (task.make.workers, task.make.ready) == (4, ready)
        assert describe_unused(method, task) == ""
