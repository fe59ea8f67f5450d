"""Mazes with goals: shortest ways against a slow search, walls that hold, goals held out, exact resume."""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.spaces import Box, Discrete, Spec
from assay.engine.loop import Loop
from assay.models.bodies.perceptron import Perceptron, feature_size, features
from assay.models.heads.value import ActionValue, Greedy
from assay.models.model import Critic, Policy
from assay.runs import catalogue
from assay.tasks.control.mazes import MOVES, Maze
from assay.tasks.control.pointmaze import LARGE, MEDIUM, RADIUS, TOP_SPEED, UMAZE
from assay.tasks.control.stepping import SteppedTask
from assay.tasks.tabular.grids import CORRIDOR, FOUR_ROOMS, SMALL_ROOMS, cells_at, coordinates

NAMES = ["four-rooms", "small-rooms", "corridor", "pointmaze-umaze", "pointmaze-medium", "pointmaze-large"]
by_name = pytest.mark.parametrize("name", NAMES)


def random_actions(task: SteppedTask, num: int, generator: torch.Generator) -> torch.Tensor:
    if isinstance(task.spec.action, Discrete):
        return torch.randint(task.spec.action.n, (num,), generator=generator)
    return 2 * torch.rand(num, 2, generator=generator) - 1


def searched(maze: Maze, first: int) -> list[int]:
    """Distances from a cell, by a queue over rows and columns."""
    found = {tuple(maze.cells[first]): 0}
    queue = deque(found)
    while queue:
        here = queue.popleft()
        for move in MOVES:
            there = (here[0] + move[0], here[1] + move[1])
            if maze.drawing[there[0]][there[1]] != "#" and there not in found:
                found[there] = found[here] + 1
                queue.append(there)
    return [found[tuple(cell)] for cell in maze.cells]


@pytest.mark.parametrize("maze", [UMAZE, MEDIUM, LARGE, FOUR_ROOMS, SMALL_ROOMS, CORRIDOR])
def test_distances_and_first_moves_are_those_of_a_slow_search(maze: Maze) -> None:
    for first in range(0, len(maze.cells), 5):
        assert maze.distance[:, first].tolist() == searched(maze, first)
    after = maze.neighbours[np.arange(len(maze.cells))[:, None], maze.first_move]
    nearer = maze.distance[after, np.arange(len(maze.cells))]
    away = maze.distance > 0
    assert (nearer[away] == maze.distance[away] - 1).all()


@pytest.mark.parametrize("drawing", [("..", ".."), ("####", "#.##", "####"), ("#####", "#.#.#", "#####"), ("##", "#")])
def test_drawings_that_are_no_mazes_are_refused(drawing: tuple[str, ...]) -> None:
    with pytest.raises(AssayError):
        Maze(drawing)


@by_name
def test_the_expert_reaches_every_held_out_goal_well_before_the_horizon(name: str) -> None:
    task = catalogue.find_task(name)
    shown = task.demonstrate(np.arange(100), 1)
    assert bool((shown.reward.sum(1) == 1.0).all())
    assert int(shown.mask.sum(1).max()) <= task.spec.horizon / 2


@by_name
def test_held_out_goals_are_never_asked_for_in_training(name: str) -> None:
    task = catalogue.find_task(name)
    maze: Maze = task.dynamics.maze
    goals = [task.begin(np.arange(200), split).context["goal"][:, 0] for split in (0, 1)]
    if name.startswith("pointmaze"):
        places = [((goal.double() + 1) / 2 * max(maze.free.shape)).long() for goal in goals]
        cells = [set(maze.number[place[:, 1], place[:, 0]].tolist()) for place in places]
    else:
        cells = [set(cells_at(maze, goal).tolist()) for goal in goals]
    assert cells[0].isdisjoint(cells[1])
    assert cells[1] == set(maze.goals(1).tolist())


@pytest.mark.parametrize("name", NAMES[3:])
def test_a_point_is_never_in_a_wall_and_never_faster_than_it_can_be(name: str) -> None:
    task, generator = catalogue.find_task(name).roaming, torch.Generator().manual_seed(0)
    simulation = task.simulate(64)
    simulation.reset(np.arange(64))
    hold = random_actions(task, 64, generator)
    maze = catalogue.find_task(name).dynamics.maze
    for step in range(300):
        hold = random_actions(task, 64, generator).sign() if step % 7 == 0 else hold
        context, _, terminal, *_ = simulation.step(hold)
        x, y = simulation._state[:2]
        assert maze.free[y.astype(int), x.astype(int)].all()
        assert float(context["observation"].abs().max()) <= 1.0 + 1e-6
        assert np.abs(simulation._state[2:4]).max() <= TOP_SPEED + 1e-9
        assert not terminal.any()


def test_the_goal_counts_within_its_radius_only() -> None:
    dynamics = catalogue.find_task("pointmaze-umaze").dynamics
    for far, reached in ((RADIUS - 1e-9, True), (RADIUS + 1e-9, False)):
        state = np.array([[1.5], [1.5], [0.0], [0.0], [1.5 + far], [1.5]])
        assert bool(dynamics.step(state, np.zeros((1, 2)), None)[2][0]) is reached


@by_name
@pytest.mark.parametrize("roaming", [False, True])
def test_a_snapshot_goes_on_bitwise(name: str, roaming: bool) -> None:
    task = catalogue.find_task(name)
    task = task.roaming if roaming else task
    generator = torch.Generator().manual_seed(1)
    actions = [random_actions(task, 8, generator) for _ in range(260)]
    first, second = task.simulate(8), task.simulate(8)
    first.reset(np.arange(8) + 5)
    for action in actions[:130]:
        first.step(action)
    second.restore(first.snapshot())
    for action in actions[130:]:
        (mine, *rest, _), (other, *others, _) = first.step(action), second.step(action)
        assert all(torch.equal(mine[key], other[key]) for key in mine)
        assert all(torch.equal(one, two) for one, two in zip(rest, others, strict=True))


@by_name
def test_roaming_gives_a_new_goal_where_one_was_reached(name: str) -> None:
    shown = catalogue.find_task(name).roaming.demonstrate(np.arange(20), 0)
    moved = (shown.context["goal"][:, 1:] != shown.context["goal"][:, :-1]).any(-1)
    assert torch.equal(moved, shown.reward[:, :-1] > 0)
    assert not shown.terminal.any()
    assert int(shown.reward.sum()) > 40


def test_coordinates_and_cells_are_each_other_undone() -> None:
    places = np.arange(len(FOUR_ROOMS.cells))
    assert (cells_at(FOUR_ROOMS, torch.from_numpy(coordinates(FOUR_ROOMS, places))) == places).all()


# ---------------------------------------------------------------------------------------------------- goals
def test_ordinary_models_read_the_goal() -> None:
    spec = catalogue.find_task("pointmaze-umaze").spec
    context = {"observation": torch.rand(3, 5, 4), "goal": torch.rand(3, 5, 2), "achieved": torch.rand(3, 5, 2)}
    other = {**context, "goal": context["goal"] + 0.5}
    assert features(context).shape[-1] == feature_size(spec) == 6
    action = torch.rand(3, 5, 2)
    for model in (Critic(), Policy(), Critic(Perceptron((8,)), ActionValue())):
        built = model.build(spec)
        say = (lambda seen, built=built: built.act(seen, None)[0]) if isinstance(model, Policy) else built
        given = (action,) if isinstance(model.head, ActionValue) else ()
        assert not torch.allclose(say(context, *given), say(other, *given), atol=1e-7)
    values = Policy(head=Greedy()).build(catalogue.find_task("four-rooms").spec)
    seen = {"observation": torch.rand(3, 6), "goal": torch.rand(3, 2)}
    assert not torch.allclose(values.values(seen), values.values({**seen, "goal": seen["goal"] + 0.5}))


def test_goals_go_with_observation_vectors() -> None:
    with pytest.raises(AssayError, match="goals need observation vectors"):
        Spec(Discrete(5), Discrete(2), 9, goal=Box((0.0,), (1.0,)))


@pytest.mark.parametrize(("method", "task"), [("ppo", "four-rooms"), ("dqn", "four-rooms"), ("sac", "pointmaze-umaze")])
def test_ordinary_methods_train_on_goals_unchanged(method: str, task: str) -> None:
    found = catalogue.find_task(task)
    recipe = catalogue.recipe_for(method, found, {} if method == "ppo" else {"source.warmup": 8, "source.batch": 8})
    loop = Loop(recipe, found, seed=0, num_steps=2)
    before = loop.engine.flats["actor"].values.clone()
    assert not [alarm for _ in range(2) for alarm in loop.step().alarms if alarm.stop]
    assert not torch.equal(before, loop.engine.flats["actor"].values)


def test_play_is_a_function_of_the_start_alone() -> None:
    task = catalogue.find_task("four-rooms")
    actor = Policy().build(task.spec)
    play = partial(task.play, actor, samples=np.zeros(2, int), draw=Draw(3), split=1, greedy=False)
    both = [play(starts=np.array(rows)) for rows in ((4, 9), (9, 4))]
    length = min(int(one.mask.sum(1).min()) for one in both)
    assert torch.equal(both[0].action[:, :length], both[1].action.flip(0)[:, :length])
