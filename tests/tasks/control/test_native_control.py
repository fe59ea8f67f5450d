"""CartPole, Pendulum, tables and bandits as array operations: Gymnasium's numbers, exact restarts, exact resume."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import Simulation
from assay.core.spaces import Discrete
from assay.ops.random import uniform
from assay.tasks.control.cartpole import CartPole, cartpole
from assay.tasks.control.pendulum import Pendulum, pendulum
from assay.tasks.control.stepping import AHEAD, ArraySimulation, SteppedTask
from assay.tasks.tabular.bandit import bandit
from assay.tasks.tabular.table import Table, action_values, chain, cliff, gridworld, table_of

TASKS = [cartpole(), pendulum(), chain(4), gridworld(3, slip=0.2), bandit((0.0, 1.0), noise=0.5), bandit()]
by_name = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def some_actions(task: SteppedTask, num: int, seed: int) -> torch.Tensor:
    """Actions for `num` instances."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(task.spec.action, Discrete):
        return torch.randint(task.spec.action.n, (num,), generator=generator)
    return 6 * torch.rand(num, task.spec.action.size, generator=generator) - 3


def watch(simulation: Simulation, actions: list[torch.Tensor]) -> list[torch.Tensor]:
    """Everything that the steps return."""
    seen: list[torch.Tensor] = []
    for action in actions:
        context, *rest, cost = simulation.step(action)
        assert cost is None
        seen += [*context.values(), *rest]
    return seen


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# ---------------------------------------------------------------------------------------------------- Gymnasium
def first_states(task: SteppedTask, seeds: np.ndarray, episode: int) -> np.ndarray:
    """States of the k-th episodes, one column for each seed, computed one by one from the definition."""
    draws = np.arange(task.dynamics.num_start_draws)
    return task.dynamics.start(np.stack([uniform(Draw(int(seed)), episode, draws) for seed in seeds], 1))


def follow(task: SteppedTask, id: str, policy, num_steps: int) -> set[str]:
    """Steps ours and Gymnasium's side by side through several episodes; returns the kinds of end that occurred."""
    gymnasium = pytest.importorskip("gymnasium")
    seeds = np.array([3, -5, 2**40 + 1, 2**62])
    environments = [gymnasium.make(id, disable_env_checker=True) for _ in seeds]
    simulation, episodes, ended, ends = task.simulate(len(seeds)), [0] * len(seeds), [True] * len(seeds), set()
    for row, environment in enumerate(environments):
        environment.reset(seed=0)
        environment.unwrapped.state = first_states(task, seeds, 0)[:, row].copy()
        ended[row] = False
    context = simulation.reset(seeds)
    for step in range(num_steps):
        action = policy(context, step)
        context, reward, terminal, truncated, _ = simulation.step(action)
        for row, environment in enumerate(environments):
            if ended[row]:
                episodes[row] += 1
                environment.reset(seed=0)
                environment.unwrapped.state = first_states(task, seeds, episodes[row])[:, row].copy()
                expected, answer = environment.unwrapped.state, (0.0, False, False)
                expected = task.dynamics.observe(expected[:, None])["observation"][0].numpy()
            else:
                expected, *answer, _ = environment.step(action[row].numpy())
            np.testing.assert_allclose(context["observation"][row].numpy(), expected, atol=1e-5, rtol=0)
            np.testing.assert_allclose(float(reward[row]), answer[0], rtol=1e-6, atol=1e-6)
            assert (bool(terminal[row]), bool(truncated[row])) == (answer[1], answer[2])
            ended[row] = answer[1] or answer[2]
            ends |= {"terminal"} if answer[1] else set()
            ends |= {"truncated"} if answer[2] else set()
    return ends


def test_cartpole_follows_gymnasium_through_falls() -> None:
    task = cartpole()
    assert follow(task, "CartPole-v1", lambda _, step: some_actions(task, 4, step), 400) == {"terminal"}


def test_cartpole_follows_gymnasium_to_the_time_limit() -> None:
    assert follow(cartpole(), "CartPole-v1", lambda context, _: cartpole().expert(context), 1100) == {"truncated"}


@pytest.mark.parametrize("place", [0, 2])
def test_cartpole_ends_where_gymnasium_ends(place: int) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("CartPole-v1", disable_env_checker=True)
    limit, found = (2.4, 0.0, 12 * np.pi / 180)[place], []
    for start in (limit - 1e-9, -limit + 1e-9, limit + 1e-9, -limit - 1e-9):
        state = np.zeros(4)
        state[place] = start
        environment.reset(seed=0)
        environment.unwrapped.state = state.copy()
        _, _, terminal = CartPole().step(state[:, None], np.array([1]), None)
        assert bool(terminal[0]) == environment.step(1)[2]
        found.append(bool(terminal[0]))
    assert found == [False, False, True, True]


def test_pendulum_follows_gymnasium() -> None:
    task = pendulum()
    assert follow(task, "Pendulum-v1", lambda _, step: some_actions(task, 4, step), 450) == {"truncated"}


# ---------------------------------------------------------------------------------------------------- laws
@by_name
def test_the_step_after_an_end_ignores_its_action_and_starts_the_next_episode(task: SteppedTask) -> None:
    one, other = task.simulate(5), task.simulate(5)
    one.reset(np.arange(5))
    other.reset(np.arange(5))
    over, episode, num_ends = torch.zeros(5, dtype=torch.bool), np.zeros(5, int), 0
    for step in range(task.spec.horizon + 30):
        action = some_actions(task, 5, step)
        changed = torch.where(over if action.dim() == 1 else over[:, None], some_actions(task, 5, step + 999), action)
        context, reward, terminal, truncated, _ = one.step(action)
        assert equal(watch(other, [changed]), [*context.values(), reward, terminal, truncated])
        episode[over.numpy()] += 1
        for row in over.nonzero()[:, 0].tolist():
            first = first_states(task, np.array([row]), int(episode[row]))
            for name, value in task.dynamics.observe(first).items():
                assert torch.equal(context[name][row], value[0])
            assert [float(reward[row]), bool(terminal[row]), bool(truncated[row])] == [0.0, False, False]
            num_ends += 1
        over = terminal | truncated
    assert num_ends >= 5


@by_name
def test_an_instance_does_not_see_the_others(task: SteppedTask) -> None:
    many, alone = task.simulate(4), task.simulate(1)
    many.reset(np.array([7, 8, 9, 10]))
    alone.reset(np.array([9]))
    for step in range(3 * AHEAD + 5):
        actions = some_actions(task, 4, step)
        context, reward, terminal, truncated, _ = many.step(actions)
        own = [*context.values(), reward, terminal, truncated]
        assert equal([column[2:3] for column in own], watch(alone, [actions[2:3]]))


@by_name
def test_results_do_not_change_when_the_simulation_goes_on(task: SteppedTask) -> None:
    simulation = task.simulate(3)
    kept = [*simulation.reset(np.arange(3)).values()] + watch(simulation, [some_actions(task, 3, 0)])
    copies = [tensor.clone() for tensor in kept]
    simulation.restore(task.simulate(3).snapshot())
    assert equal(kept, copies)
    watch(simulation, [some_actions(task, 3, step) for step in range(40)])
    assert equal(kept, copies)


@by_name
@settings(max_examples=25, deadline=None)
@given(
    before=st.integers(0, 60), after=st.integers(1, 60), seed=st.integers(0, 2**63 - 1), elsewhere=st.integers(0, 20)
)
def test_restoring_continues_bitwise(task: SteppedTask, before: int, after: int, seed: int, elsewhere: int) -> None:
    actions = [some_actions(task, 3, step + seed % 1000) for step in range(before + after)]
    simulation, fresh = task.simulate(3), task.simulate(3)
    simulation.reset(np.array([seed, 1, 2]))
    watch(simulation, actions[:before])
    state = simulation.snapshot()
    expected = watch(simulation, actions[before:])
    fresh.reset(np.array([5, 6, 7]))
    watch(fresh, [some_actions(task, 3, step) for step in range(elsewhere)])
    fresh.restore(state)
    assert equal(watch(fresh, actions[before:]), expected)
    assert equal(list(fresh.snapshot().values()), list(simulation.snapshot().values()))
    simulation.restore(state)
    assert equal(watch(simulation, actions[before:]), expected)


@by_name
def test_wrong_numbers_of_seeds_actions_and_instances_are_refused(task: SteppedTask) -> None:
    simulation = task.simulate(3)
    with pytest.raises(AssayError, match="2 seeds for 3 instances"):
        simulation.reset(np.arange(2))
    with pytest.raises(AssayError, match="1 actions for 3 instances"):
        simulation.step(some_actions(task, 1, 0))
    with pytest.raises(AssayError, match="snapshot has 2 instances, the simulation 3"):
        simulation.restore(task.simulate(2).snapshot())


# ---------------------------------------------------------------------------------------------------- worlds
def test_starts_cover_the_range_of_gymnasium() -> None:
    seeds = np.arange(2000)
    cart = ArraySimulation(CartPole(), 2000).reset(seeds)["observation"]
    pole = ArraySimulation(Pendulum(), 2000).reset(seeds)["observation"]
    assert 0.0499 < cart.max() <= 0.05
    assert -0.05 <= cart.min() < -0.0499
    angle = torch.atan2(pole[:, 1], pole[:, 0])
    assert 3.1 < angle.max() <= np.pi
    assert abs(float(angle.mean())) < 0.15
    assert 0.99 < pole[:, 2].max() <= 1


def test_noise_of_a_bandit_has_its_mean_and_spread_and_belongs_to_seed_and_episode() -> None:
    simulation = bandit((1.0, -2.0), noise=0.5).simulate(20000)
    simulation.reset(np.arange(20000))
    _, reward, terminal, truncated, _ = simulation.step(torch.arange(20000) % 2)
    assert bool(terminal.all())
    assert not truncated.any()
    assert abs(float(reward[::2].mean()) - 1.0) < 0.02
    assert abs(float(reward[1::2].mean()) + 2.0) < 0.02
    assert abs(float(reward[::2].std()) - 0.5) < 0.02
    simulation.step(torch.zeros(20000, dtype=torch.long))
    _, later, *_ = simulation.step(torch.arange(20000) % 2)
    assert not torch.equal(later, reward)


def test_transitions_of_a_table_have_their_probabilities() -> None:
    task = gridworld(3, slip=0.4)
    simulation, action = task.simulate(40000), torch.full((40000,), 1)
    simulation.reset(np.arange(40000))
    context, *_ = simulation.step(action)
    found = torch.bincount(context["state"], minlength=9) / 40000
    assert (found - table_of(task).P[0, 1]).abs().max() < 0.01
    second, *_ = simulation.step(action)
    went_on = context["state"] == 1
    found = torch.bincount(second["state"][went_on], minlength=9) / went_on.sum()
    assert (found - table_of(task).P[1, 1]).abs().max() < 0.015


def test_impossible_transitions_are_never_drawn() -> None:
    P = torch.tensor([[[0.1, 0.2, 0.7 - 1e-17, 0.0]]] * 4, dtype=torch.float64)
    table = Table(P, torch.zeros(4, 1).double(), torch.zeros(4).bool(), torch.tensor([0, 0.3, 0.7, 0]).double(), 5)
    assert set(table.start(np.array([[1e-17, 0.5, np.nextafter(1.0, 0.0)]])).tolist()) == {1, 2}
    moved, _, _ = table.step(np.zeros(3, int), np.zeros(3, int), np.array([1e-17, 0.5, np.nextafter(1.0, 0.0)]))
    assert moved.tolist() == [0, 2, 2]


def test_value_iteration_gives_the_known_values() -> None:
    q = action_values(table_of(chain(4)), discount=0.5)
    torch.testing.assert_close(q[:3, 1], torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64))
    assert q[3].tolist() == [0.0, 0.0]
    assert float(action_values(table_of(cliff()), discount=1.0)[36].max()) == -13.0
    unending = Table(torch.ones(1, 1, 1), torch.ones(1, 1), torch.zeros(1).bool(), torch.ones(1), 5)
    with pytest.raises(AssayError, match="discount"):
        action_values(unending, discount=1.0, num_sweeps=100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"P": torch.ones(2, 2, 3)}, "P has shape"),
        ({"P": torch.full((2, 2, 2), 0.6)}, "rows of P"),
        ({"initial": torch.tensor([1.5, -0.5])}, "rows of initial"),
        ({"terminal": torch.tensor([True, False])}, "terminal state"),
    ],
)
def test_a_table_that_is_no_decision_process_is_refused(change: dict, message: str) -> None:
    right = {
        "P": torch.full((2, 2, 2), 0.5),
        "R": torch.zeros(2, 2),
        "terminal": torch.tensor([False, True]),
        "initial": torch.tensor([1.0, 0.0]),
        "horizon": 3,
    }
    Table(**right)
    with pytest.raises(AssayError, match=message):
        Table(**{**right, **change})


@pytest.mark.parametrize(
    "build",
    [
        lambda: chain(1),
        lambda: gridworld(1),
        lambda: chain(3, slip=1.5),
        lambda: bandit(()),
        lambda: bandit((1.0,), -1.0),
    ],
)
def test_factories_refuse_what_makes_no_task(build) -> None:
    with pytest.raises(AssayError):
        build()


# ---------------------------------------------------------------------------------------------------- experts
@pytest.mark.parametrize(
    ("task", "least", "mean"),
    [
        (cartpole(), 500, 500),
        (pendulum(), -400, -160),
        (chain(6), 1, 1),
        (gridworld(4), -6, -6),
        (cliff(), -13, -13),
        (bandit((0.2, 0.9, 0.4)), 0.899, 0.899),
        (gridworld(4, slip=0.3), -64, -12),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_experts_do_well_from_every_start(task: SteppedTask, least: float, mean: float) -> None:
    scores = task.judge(task.demonstrate(np.arange(300), 1), 1).column("score")
    assert float(scores.min()) >= least
    assert float(scores.mean()) >= mean


@by_name
def test_a_description_has_bounds_and_can_be_written_as_json(task: SteppedTask) -> None:
    text = json.dumps(task.describe(task.demonstrate(np.arange(2), 0), 1))
    assert len(text) < 20_000
    assert {"return", "length", "ending", "actions", "rewards"} == set(json.loads(text))
