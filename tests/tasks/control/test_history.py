"""Past observations, actions and rewards in contexts: what is shown, when it is cleared, and who reads it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.recipe import Phase
from assay.core.record import Draw
from assay.core.slots import Ask, History, Scene
from assay.engine.placement import with_history
from assay.method import recipes
from assay.models import Perceptron, Policy, WithHistory
from assay.parts import Log, Logged, Replay
from assay.runs.catalogue import find_task
from assay.tasks.control.cartpole import cartpole
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import SteppedTask

FULL = History(4, actions=True, rewards=True)
NAMES = ("cartpole", "pendulum", "pointmaze-umaze", "gridworld")


def actions(task: SteppedTask, num: int, time: int) -> Tensor:
    """Actions that differ in every row and step."""
    numbers = (torch.arange(num) * 7 + time * 3) % 11
    space: Any = task.spec.action
    return numbers % space.n if hasattr(space, "n") else (numbers.float() / 11 - 0.4).unsqueeze(1).repeat(1, space.size)


def stepped(simulation: Any, task: SteppedTask, num: int, steps: int, rows: slice = slice(None)) -> list[Any]:
    """Each step's (context, reward, ended)."""
    found = []
    for time in range(steps):
        context, reward, terminal, truncated, _ = simulation.step(actions(task, num, time)[rows])
        found.append((context, reward, terminal | truncated))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_contexts_show_the_past_of_their_own_episode_alone(name: str) -> None:
    task: Any = find_task(name)
    num, steps = 5, 260
    plain, shown = task.simulate(num), task.remembering(FULL).simulate(num)
    first, begun = plain.reset(np.arange(num)), shown.reset(np.arange(num))
    assert not begun["past"].any()
    key = "observation" if "observation" in first else "state"
    since: list[list[tuple[Tensor, Tensor, float]]] = [[] for _ in range(num)]
    before, restarted, ended = first, 0, torch.zeros(num, dtype=torch.bool)
    for time, (one, two) in enumerate(zip(*(stepped(each, task, num, steps) for each in (plain, shown)), strict=True)):
        (context, reward, ends), (mine, _, _) = one, two
        for row in range(num):
            if ended[row]:
                since[row], restarted = [], restarted + 1
            else:
                since[row].append((before[key][row], actions(task, num, time)[row], float(reward[row])))
            last = since[row][-3:]
            assert mine["past"][row].tolist() == [False] * (3 - len(last)) + [True] * len(last)
            for place, (seen, done, paid) in enumerate(last, 3 - len(last)):
                assert torch.equal(mine[f"past_{key}"][row, place], seen)
                assert torch.equal(mine["past_action"][row, place], done)
                assert float(mine["past_reward"][row, place]) == pytest.approx(paid)
            assert not mine[f"past_{key}"][row, : 3 - len(last)].any()
            assert int(mine["time"][row]) == len(since[row])
            assert float(mine["received"][row]) == pytest.approx(sum(paid for *_, paid in since[row]), rel=1e-5)
        assert all(torch.equal(mine[name], value) for name, value in context.items())
        before, ended = context, ends
    assert restarted


def test_rows_do_not_see_each_other_and_a_snapshot_continues_bitwise() -> None:
    task = cartpole().remembering(FULL)
    whole, alone = task.simulate(4), task.simulate(1)
    whole.reset(np.arange(4))
    alone.reset(np.array([2]))
    together, single = stepped(whole, task, 4, 60), stepped(alone, task, 4, 60, slice(2, 3))
    for (one, *_), (two, *_) in zip(together, single, strict=True):
        assert all(torch.equal(one[name][2:3], two[name]) for name in two)
    state, other = whole.snapshot(), task.simulate(4)
    other.restore(state)
    for (one, *_), (two, *_) in zip(stepped(whole, task, 4, 30), stepped(other, task, 4, 30), strict=True):
        assert all(torch.equal(one[name], two[name]) for name in two)


def test_a_history_of_one_step_is_the_task_itself() -> None:
    task = pendulum()
    assert task.remembering(History()) is task
    back = task.remembering(FULL).remembering(History())
    assert "past" not in back.simulate(2).reset(np.arange(2))
    again = task.remembering(FULL)
    assert again.remembering(FULL) is again
    assert again.remembering(History(2)).simulate(1).reset(np.arange(1))["past"].shape == (1, 1)


def test_a_recipe_says_what_its_task_shows_and_phases_do_not_count() -> None:
    task = cartpole()
    reading = replace(recipes.bc(), actor=Policy(WithHistory(Perceptron((8,)), steps=3)))
    assert with_history(recipes.bc(), task) is task
    assert with_history(reading, task).history == History(3, actions=True)  # type: ignore[attr-defined]
    phase = Phase("first", reading, 1)
    assert with_history(replace(recipes.bc(), before=(phase,)), task) is task
    with pytest.raises(AssayError, match="shows no past"):
        with_history(reading, find_task("addition"))


def test_history_passes_through_replay_and_datasets() -> None:
    task = cartpole().remembering(FULL)
    scene = Scene(task, draw=Draw(1))
    logged = Logged((Log(3),), batch=16, updates=1)
    (batch,) = logged(scene, logged.init(scene))
    first, then = (batch.context["past_observation"][:, place] for place in (0, 1))
    assert torch.equal(then[:, -1], batch.context["observation"][:, 0])
    assert torch.equal(then[:, :-1], first[:, 1:])
    replay = Replay(warmup=1, batch=16)
    played = task.demonstrate(np.arange(3), 0)
    (row,) = replay(scene.given(fresh=played), replay.init(scene))
    assert torch.equal(row.context["past_action"][:, 1, -1], row.action[:, 0])


def test_a_policy_with_history_learns_what_a_policy_without_cannot() -> None:
    """The observation hides the velocities; the past shows them."""
    task = cartpole().remembering(History(2, actions=True))
    context = task.demonstrate(np.arange(2), 0).context
    torch.manual_seed(0)
    with_past = WithHistory(Perceptron((8,)), steps=2).outputs(task.spec, Ask((2,)))
    moved = {**context, "past_observation": context["past_observation"] + 1.0}
    assert not torch.equal(with_past(context), with_past(moved))
    nowhere = {**moved, "past": torch.zeros_like(moved["past"])}
    without = {"observation": context["observation"]}
    assert torch.equal(with_past(nowhere), with_past(without))


def test_gymnasium_tasks_show_the_past() -> None:
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    task = find_task("CartPole-v1")
    simulation = task.remembering(FULL).simulate(2)  # type: ignore[attr-defined]
    first = simulation.reset(np.arange(2))
    context, reward, *_ = simulation.step(torch.tensor([0, 1]))
    assert torch.equal(context["past_observation"][:, -1], first["observation"])
    assert context["past_action"][:, -1].tolist() == [0, 1]
    assert torch.equal(context["received"], reward)


def test_training_and_evaluation_see_the_same_history() -> None:
    recipe = replace(recipes.bc(), actor=Policy(WithHistory(Perceptron((8,)), steps=3)), steps=2)
    loop = probes.trained(recipe, cartpole(), 0, 2)
    played = loop.task.play(loop.policy, np.arange(2), np.zeros(2, np.int64), Draw(0), split=1, greedy=True)
    assert played.context["past"].shape[-1] == 2
