"""Gymnasium's environments as simulations: autoreset, exact resume, vector environments, the checker."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.extras import require
from assay.core.record import Draw
from assay.core.slots import Simulation
from assay.core.spaces import Box, Context, Discrete
from assay.tasks.adapters.gymnasium import (
    FromVectorEnv,
    Instances,
    check_environment,
    environment_task,
    gymnasium_task,
    reset_seed,
    show_warnings_once,
)
from assay.tasks.control.stepping import SteppedTask

gymnasium = pytest.importorskip("gymnasium")
MUJOCO = ["HalfCheetah-v5", "Hopper-v5"]


def some_actions(task: SteppedTask, num: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if isinstance(task.spec.action, Discrete):
        return torch.randint(task.spec.action.n, (num,), generator=generator)
    return 3 * torch.rand(num, task.spec.action.size, generator=generator) - 1.5


def watch(simulation: Simulation, actions: list[torch.Tensor]) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    for action in actions:
        context, *rest = simulation.step(action)
        seen += [*context.values(), *(tensor for tensor in rest if tensor is not None)]
    return seen


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


class Counting(gymnasium.Env):
    """Shows [seed, steps since reset, last action]; terminates after 3 steps, or 2 where the seed is odd."""

    observation_space = gymnasium.spaces.Box(-1.0, 2.0**32, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(4, start=10)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.steps = seed or 0, 0
        return np.array([self.seed, 0.0, -1.0]), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == (2 if self.seed % 2 else 3)
        return np.array([self.seed, self.steps, action]), 0.5 * action, ended, False, {}


# ---------------------------------------------------------------------------------------------------- autoreset
def test_columns_after_an_end_are_exactly_the_ignored_ones() -> None:
    simulation = environment_task("counting", Counting, horizon=9).simulate(2)
    seeds = np.array([4, 7])
    context = simulation.reset(seeds)
    own = [[reset_seed(int(seed), episode) for episode in range(4)] for seed in seeds]
    assert [seed % 2 for seed in own[0] + own[1]] == [0] * 4 + [1] * 4
    steps, rewards, ends = [], [], []
    for time in range(8):
        context, reward, terminal, truncated, cost = simulation.step(torch.tensor([time % 4, time % 4]))
        steps.append(context["observation"][:, 1].tolist())
        rewards.append(reward.tolist())
        ends.append(terminal.tolist())
        assert not truncated.any()
        assert cost is None
    assert [row[0] for row in steps] == [1, 2, 3, 0, 1, 2, 3, 0]
    assert [row[1] for row in steps] == [1, 2, 0, 1, 2, 0, 1, 2]
    assert [row[0] for row in rewards] == [5.0, 5.5, 6.0, 0.0, 5.0, 5.5, 6.0, 0.0]
    assert [row[1] for row in rewards] == [5.0, 5.5, 0.0, 6.5, 5.0, 0.0, 6.0, 6.5]
    assert [row[0] for row in ends] == [False, False, True, False] * 2
    assert [row[1] for row in ends] == [False, True, False, False, True, False, False, True]
    assert context["observation"][:, 0].tolist() == pytest.approx([own[0][2], own[1][2]])


def test_whole_episodes_stop_at_the_first_end() -> None:
    class First:
        num_draws = 0

        def act(self, context: Context, uniform: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
            num = len(context["observation"])
            return torch.zeros(num, dtype=torch.long), torch.zeros(num)

    task = environment_task("counting", Counting, horizon=9)
    for split, length in ((0, 3), (1, 2)):
        played = task.play(First(), np.arange(3), np.zeros(3, int), Draw(0), split=split, greedy=True)
        assert played.mask.tolist() == [[True] * length + [False]] * 3
        assert played.context["observation"][:, -1, 1].tolist() == [length] * 3


def test_a_horizon_truncates_what_does_not_end_by_itself() -> None:
    simulation = environment_task("counting", Counting, horizon=2).simulate(1)
    simulation.reset(np.array([4]))
    answers = [simulation.step(torch.tensor([0]))[1:4] for _ in range(3)]
    assert [bool(truncated) for _, _, truncated in answers] == [False, True, False]
    assert not any(bool(terminal) for _, terminal, _ in answers)


# ---------------------------------------------------------------------------------------------------- exact resume
@pytest.mark.parametrize(("id", "before"), [("CartPole-v1", 37), ("Pendulum-v1", 230), *((id, 45) for id in MUJOCO)])
def test_restoring_plays_the_episode_again_and_continues_bitwise(id: str, before: int) -> None:
    if id in MUJOCO:
        pytest.importorskip("mujoco")
    task = gymnasium_task(id)
    actions = [some_actions(task, 2, step) for step in range(before + 40)]
    simulation, fresh = task.simulate(2), task.simulate(2)
    simulation.reset(np.array([5, 2**62 + 1]))
    fresh.reset(np.array([1, 2]))
    watch(fresh, actions[:9])
    watch(simulation, actions[:before])
    state = simulation.snapshot()
    expected = watch(simulation, actions[before:])
    fresh.restore(state)
    assert equal(watch(fresh, actions[before:]), expected)
    simulation.restore(state)
    assert equal(watch(simulation, actions[before:]), expected)


@pytest.mark.parametrize("before", range(9))
def test_restoring_is_exact_at_every_place_of_an_episode(before: int) -> None:
    task = environment_task("counting", Counting, horizon=9)
    actions = [some_actions(task, 2, step) for step in range(before + 9)]
    simulation, fresh = task.simulate(2), task.simulate(2)
    fresh.restore(fresh.snapshot())
    simulation.reset(np.array([4, 7]))
    watch(simulation, actions[:before])
    fresh.restore(simulation.snapshot())
    assert equal(watch(fresh, actions[before:]), watch(simulation, actions[before:]))


def test_an_environment_that_does_not_repeat_itself_is_refused_at_restore() -> None:
    class Drifting(Counting):
        calls = 0

        def step(self, action):
            Drifting.calls += 1
            seen, *rest = super().step(action)
            return seen + Drifting.calls, *rest

    with pytest.warns(UserWarning, match=r"'drifting' is not deterministic: .* at step 1 after a reset"):
        simulation = environment_task("drifting", Drifting, horizon=9).simulate(1)
    simulation.reset(np.array([4]))
    simulation.step(torch.tensor([0]))
    with pytest.raises(AssayError, match="'drifting' is not deterministic"):
        simulation.restore(simulation.snapshot())


def test_an_episode_is_a_function_of_seed_number_and_actions() -> None:
    task = gymnasium_task("CartPole-v1")
    many, alone = task.simulate(3), task.simulate(1)
    first = many.reset(np.array([7, 8, 9]))
    assert torch.equal(first["observation"][1:2], alone.reset(np.array([8]))["observation"])
    for step in range(60):
        actions = some_actions(task, 3, step)
        context, reward, terminal, truncated, _ = many.step(actions)
        own = [context["observation"], reward, terminal, truncated]
        assert equal([column[1:2] for column in own], watch(alone, [actions[1:2]]))


# ---------------------------------------------------------------------------------------------------- spaces, costs
def test_spaces_limits_and_costs_are_read_from_the_environment() -> None:
    class Costly(Counting):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {**info, "cost": 0.25 * self.steps}

    assert gymnasium_task("Pendulum-v1").spec.action == Box((-2.0,), (2.0,))
    assert gymnasium_task("CartPole-v1").spec.horizon == 500
    assert gymnasium_task("CartPole-v1", horizon=20).spec.horizon == 20
    task = environment_task("costly", Costly, horizon=9)
    assert (task.spec.num_costs, task.spec.action) == (1, Discrete(4))
    simulation = task.simulate(2)
    simulation.reset(np.array([4, 7]))
    costs = [simulation.step(torch.tensor([0, 0]))[4].tolist() for _ in range(4)]
    assert costs == [[[0.25], [0.25]], [[0.5], [0.5]], [[0.75], [0.0]], [[0.0], [0.25]]]


def test_a_time_limit_is_found_in_a_wrapper_or_an_attribute() -> None:
    class Limited(Counting):
        max_episode_steps = 7

    assert environment_task("counting", Limited).spec.horizon == 7
    wrapped = environment_task("counting", lambda: gymnasium.wrappers.TimeLimit(Counting(), 2))
    assert wrapped.spec.horizon == 2
    assert environment_task("counting", Counting).spec.horizon == 0


def test_discrete_observations_become_states() -> None:
    task = gymnasium_task("CliffWalking-v1", horizon=50)
    assert task.spec.observation == Discrete(48)
    context = task.simulate(2).reset(np.arange(2))
    assert context["state"].tolist() == [36, 36]


def test_box_actions_are_clipped_to_their_bounds() -> None:
    task = gymnasium_task("Pendulum-v1")
    one, other = task.simulate(1), task.simulate(1)
    one.reset(np.array([3]))
    other.reset(np.array([3]))
    assert equal(watch(one, [torch.tensor([[9.0]])]), watch(other, [torch.tensor([[2.0]])]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gymnasium_task("CartPol-v1"), "nearest id is 'CartPole-v1'"),
        (lambda: gymnasium_task("cartpole-v1"), "nearest id is 'CartPole-v1'"),
        (lambda: gymnasium_task("a b"), "unknown to Gymnasium"),
        (lambda: gymnasium_task("no_such_module:Env-v0"), "missing package"),
        (lambda: gymnasium_task("CliffWalking-v1").simulate(1), "no time limit. Set --max-episode-steps N"),
        (lambda: gymnasium_task("Pendulum-v1", vector=True), "no vector implementation"),
        (lambda: gymnasium_task("CartPole-v1").simulate(2).reset(np.arange(3)), "3 seeds for 2 instances"),
        (lambda: gymnasium_task("CartPole-v1").simulate(2).step(torch.zeros(1)), "1 actions for 2 instances"),
    ],
)
def test_what_cannot_be_a_task_says_why(build, message: str) -> None:
    with pytest.raises(AssayError, match=message):
        build()


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(AssayError, match=r"gymnasium is needed for task 'CartPole-v1'.*pip install 'assay\[control\]'"):
        gymnasium_task("CartPole-v1")
    with pytest.raises(AssayError, match=r"^no_such_package is needed for this part\. .*pip .*'assay\[plots\]'$"):
        require("no_such_package.inner", "plots")
    assert require("json", "plots").dumps(1) == "1"


# ---------------------------------------------------------------------------------------------------- vectors
def test_the_vector_implementation_follows_the_single_one() -> None:
    task = gymnasium_task("CartPole-v1", vector=True)
    simulation = task.simulate(3)
    simulation.reset(np.arange(3))
    assert isinstance(simulation, FromVectorEnv)
    over, num_ends = torch.zeros(3, dtype=torch.bool), 0
    for step in range(120):
        context, reward, terminal, truncated, cost = simulation.step(some_actions(task, 3, step))
        assert cost is None
        assert torch.equal(reward, (~over).float())
        assert bool((context["observation"][over].abs() <= 0.05).all())
        assert not (terminal | truncated)[over].any()
        over = terminal | truncated
        num_ends += int(over.sum())
    assert num_ends > 5


def test_a_vector_environment_is_a_function_of_its_seeds() -> None:
    task = gymnasium_task("CartPole-v1", vector=True)
    starts = [task.simulate(2).reset(np.array(seeds))["observation"] for seeds in ([1, 2], [1, 2], [2, 1], [1, 3])]
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    assert not torch.equal(starts[0], starts[3])


def test_a_shared_stream_refuses_equal_starts_and_snapshots() -> None:
    simulation = gymnasium_task("CartPole-v1", vector=True).simulate(2)
    with pytest.raises(AssayError, match="cannot share starts"):
        simulation.reset(np.array([4, 4]))
    for call in (simulation.snapshot, lambda: simulation.restore({})):
        with pytest.raises(AssayError, match="a VectorEnv cannot be resumed exactly"):
            call()


def test_an_existing_vector_environment_resets_in_the_next_step_or_is_refused() -> None:
    modes = gymnasium.vector.AutoresetMode
    build = gymnasium.vector.SyncVectorEnv
    for mode in (modes.SAME_STEP, modes.DISABLED):
        with pytest.raises(AssayError, match=r"autoreset_mode=AutoresetMode\.NEXT_STEP"):
            FromVectorEnv(build([Counting] * 2, autoreset_mode=mode))
    simulation = FromVectorEnv(build([Counting] * 2))
    simulation.reset(np.array([4, 7]))
    task = environment_task("counting", Counting, 9)
    single = Instances(Counting, task.spec, task.port, 2)
    first = single.reset(np.array([4, 7]))["observation"]
    assert torch.equal(simulation.reset(np.array([4, 7]))["observation"], first)
    for time in range(3):
        ours, theirs = simulation.step(torch.tensor([time, 1])), single.step(torch.tensor([time, 1]))
        assert equal(list(ours[1:4]), list(theirs[1:4]))
        assert torch.equal(ours[0]["observation"][0], theirs[0]["observation"][0])


def test_costs_of_a_vector_environment_must_be_announced() -> None:
    class Costly(Counting):
        def step(self, action):
            *rest, info = super().step(action)
            return *rest, {**info, "cost": 0.25 * self.steps}

    silent = FromVectorEnv(gymnasium.vector.SyncVectorEnv([Costly] * 2))
    silent.reset(np.array([4, 7]))
    with pytest.raises(AssayError, match="num_costs=1"):
        silent.step(torch.tensor([0, 0]))
    announced = FromVectorEnv(gymnasium.vector.SyncVectorEnv([Costly] * 2), num_costs=1)
    announced.reset(np.array([4, 7]))
    assert announced.step(torch.tensor([0, 0]))[4].tolist() == [[0.25], [0.25]]


# ---------------------------------------------------------------------------------------------------- checker
class Right(gymnasium.Env):
    """Keeps every rule; subclasses break one each."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.show(), {}

    def show(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reward(self):
        return 1.0

    def ends(self):
        return self.time >= 20, False

    def step(self, action):
        self.time += 1
        return self.show(), self.reward(), *self.ends(), {}


def broken_by(name: str, change) -> type[Right]:
    return type("Broken", (Right,), {name: change})


def drawn_without_seed(self):
    return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


def steps_once(self, action):
    if self.time >= 20:
        raise RuntimeError("call reset first")
    return Right.step(self, action)


def counts_resets(self, *, seed=None, options=None):
    self.resets = getattr(self, "resets", 0) + 1
    seen, info = Right.reset(self, seed=seed)
    return (seen * np.float32(0.5**self.resets)), info


BREAKS = {
    "observation: outside its space": ("show", lambda self: np.array([2.0, 0.0], np.float32)),
    "observation: outside its space at": ("show", lambda self: np.array([np.nan, 0.0], np.float32)),
    "observation: float64": ("show", lambda self: np.zeros(2)),
    "observation: shape": ("show", lambda self: np.zeros(3, np.float32)),
    "observation: shape ()": ("show", lambda self: None),
    "reward: None": ("reward", lambda self: None),
    "reward: nan": ("reward", lambda self: float("nan")),
    "reward: array": ("reward", lambda self: np.ones(1)),
    "reward: 'high'": ("reward", lambda self: "high"),
    "terminated: 0": ("ends", lambda self: (int(self.time >= 20), False)),
    "truncated: None": ("ends", lambda self: (self.time >= 20, None)),
    "ending: terminated and truncated both": ("ends", lambda self: (self.time >= 20, self.time >= 20)),
    "length: no end": ("ends", lambda self: (False, False)),
    "reset: must return": ("reset", lambda self, *, seed=None, options=None: Right.reset(self, seed=seed)[0]),
    "reset: raises TypeError": ("reset", lambda self: Right.reset(self)),
    "step: must return five": ("step", lambda self, action: Right.step(self, action)[:4]),
    "step: raises ZeroDivisionError": ("step", lambda self, action: 1 / 0),
    "step after the end: raises RuntimeError": ("step", steps_once),
    "determinism: the same environment": ("show", drawn_without_seed),
    "determinism: the same environment, reset, differs at step 0": ("reset", counts_resets),
    "info: NoneType": ("step", lambda self, action: (*Right.step(self, action)[:4], None)),
    "cost: info['cost'] = None": ("step", lambda self, action: (*Right.step(self, action)[:4], {"cost": None})),
    "spaces: raises AssayError": ("observation_space", gymnasium.spaces.Dict({})),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_the_checker_names_the_broken_rule(rule: str) -> None:
    found = check_environment(broken_by(*BREAKS[rule]))
    assert any(line.startswith(rule) for line in found), found
    assert len(found) <= 2


def test_the_checker_names_an_environment_that_cannot_be_built() -> None:
    assert check_environment(lambda: 1 / 0)[0].startswith("make: raises ZeroDivisionError")


def test_the_checker_is_silent_on_right_environments() -> None:
    assert check_environment(Right) == []
    for id in ("CartPole-v1", "Pendulum-v1", "CliffWalking-v1", "HalfCheetah-v5"):
        assert check_environment(lambda id=id: gymnasium.make(id, disable_env_checker=True, max_episode_steps=60)) == []


def test_a_simulator_warns_once_and_leaves_no_log(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    show_warnings_once.cache_clear()
    show_warnings_once()
    mujoco.get_mju_user_warning()("time 1.5: unstable")
    mujoco.get_mju_user_warning()("time 2.5: unstable")
    mujoco.get_mju_user_warning()("something else")
    assert capfd.readouterr().err.splitlines() == ["MuJoCo: time 1.5: unstable", "MuJoCo: something else"]
    assert not list(tmp_path.iterdir())
