"""Goals chosen afterwards, values of options, two levels: against slow references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.claims.ota import LineView, line_rows
from assay.core.errors import AssayError
from assay.core.record import Draw, Need
from assay.core.slots import Scene
from assay.engine.engine import Engine, StageView
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods.ota import Ahead, ExpectileByTarget, GoalValue, Hierarchical, ProposeSubgoal, TowardsSubgoal
from assay.methods.ota import recipe as ota
from assay.models.bodies.perceptron import Perceptron
from assay.models.model import Critic, Policy
from assay.parts.critics.td import Td
from assay.parts.predictions import OfState
from assay.parts.sources.relabelled import Mixed, Places, Play, Relabelled
from assay.parts.targets.one_step import NextValue
from assay.runs import catalogue
from assay.tasks.tabular.grids import FOUR_ROOMS
from tests.scenes import feeding

TASK = catalogue.find_task("four-rooms")
SMALL = Play(episodes=6)


def batch_of(source: Relabelled, step: int = 0):
    state = source.init(Scene(TASK))
    return next(iter(source(feeding(TASK, None, Draw(3, (step,))), state))), state["contents"].columns[0]


# ---------------------------------------------------------------------------------------------------- the source
def test_rows_are_jumps_of_the_data_and_goals_are_places_of_it() -> None:
    batch, columns = batch_of(Relabelled(SMALL, jump=7, batch=64))
    places = {tuple(place.tolist()) for place in columns["achieved"]}
    assert {tuple(goal.tolist()) for goal in batch.context["goal"].flatten(0, 1)} <= places
    steps = TASK.distance(batch.context["achieved"][:, 0], batch.context["achieved"][:, 1])
    assert int(steps.max()) <= 7
    assert bool((batch.mask == torch.tensor([True, False])).all())
    assert bool((batch.reward[:, 0] == batch.terminal[:, 0].float() - 1.0).all())


@pytest.mark.parametrize("jump", [1, 5])
def test_no_jump_passes_its_goal_and_none_leaves_its_episode(jump: int) -> None:
    time, ahead = np.array([0, 3, 8, 9, 4]), np.array([True, True, True, False, False])
    goal = Places(np.zeros(5, int), np.array([2, 20, 10, 3, 4]), ahead)
    expected = [min(t + jump, g if a else 10) for t, g, a in zip(time, goal.time, ahead, strict=True)]
    assert Relabelled(SMALL, jump=jump).ends(time, goal, 10).tolist() == expected


def test_kinds_of_goals_come_in_their_shares() -> None:
    rows = np.zeros(40_000, int)
    goal = Mixed(0.2, 0.5, 0.9)(rows, rows + 50, np.full(1000, 200), Draw(1))
    current = (goal.time == 50) & (goal.episode == 0)
    assert current.mean() == pytest.approx(0.2, abs=0.01)
    assert goal.ahead.mean() == pytest.approx(0.5, abs=0.01)
    assert (goal.time[goal.ahead] - 50).mean() == pytest.approx(10.0, abs=0.3)
    uniform = Mixed(0.0, 1.0, 1.0)(rows, rows + 50, np.full(1000, 200), Draw(1))
    assert (uniform.time.min(), uniform.time.max()) == (51, 200)
    assert uniform.time.mean() == pytest.approx(125.5, abs=0.6)
    assert Ahead(8)(rows[:2], np.array([0, 197]), np.array([200]), Draw(0)).time.tolist() == [8, 200]


def test_the_last_place_of_an_episode_is_a_goal_of_its_own_future() -> None:
    goal = Mixed(0.0, 1.0, 0.99)(np.zeros(9, int), np.full(9, 199), np.array([200]), Draw(2))
    assert goal.time.tolist() == [200] * 9


def test_distances_are_told_for_metrics() -> None:
    batch, _ = batch_of(Relabelled(SMALL, batch=32))
    far, nearer = batch.column("distance"), batch.column("nearer")
    assert torch.equal(nearer[:, 0], far[:, 0] - far[:, 1])
    assert not nearer[:, 1].any()


def test_other_play_is_refused_when_resumed_and_tasks_without_goals_always() -> None:
    first, second = (Relabelled(Play(episodes=2, noise=noise)).init(Scene(TASK))["contents"] for noise in (0.1, 0.2))
    with pytest.raises(AssayError, match="started with"):
        second.restore(first.snapshot())
    with pytest.raises(AssayError, match="no goals"):
        Relabelled(SMALL).init(Scene(catalogue.find_task("cartpole")))


# ---------------------------------------------------------------------------------------------------- values
@pytest.mark.parametrize("option", [1, 3])
def test_no_advantage_has_the_wrong_sign_against_breadth_first_distances(option: int) -> None:
    """The values of shortest ways between all pairs of four-rooms, by the loss's own targets."""
    maze, num = FOUR_ROOMS, len(FOUR_ROOMS.cells)
    here, goal = (index.flatten() for index in torch.meshgrid(torch.arange(num), torch.arange(num), indexing="ij"))
    there = here.numpy()
    for _ in range(option):
        moved = maze.neighbours[there, maze.first_move[there, goal.numpy()]]
        there = np.where(there == goal.numpy(), there, moved)
    rows = line_rows(Relabelled(), 2).rows(torch.zeros(num * num, dtype=torch.long))
    seen = torch.stack([here, torch.from_numpy(there)], 1).double().unsqueeze(-1)
    asked = goal.view(-1, 1, 1).expand(-1, 2, 1).double()
    at_goal = (here == goal).unsqueeze(1) & torch.tensor([[True, False]])
    rows = replace(rows, context={"observation": seen, "goal": asked}, reward=at_goal.double() - 1.0, terminal=at_goal)
    table = torch.zeros(num, num, dtype=torch.float64)
    for _ in range(20):
        table = NextValue(0.9)(rows, LineView(table))[0, :, 0].view(num, num)
    steps = torch.from_numpy(maze.distance).double()
    assert torch.allclose(table, -(1 - 0.9 ** (steps / option).ceil()) / 0.1)
    gain = table.unsqueeze(0) - table.unsqueeze(1)
    nearer = steps.unsqueeze(1) - steps.unsqueeze(0)
    assert bool((gain.sign() * nearer >= 0).all())
    assert bool((gain[nearer >= option] > 0).all())


def test_an_expectile_is_that_of_its_definition() -> None:
    engine = Engine(ota(), TASK.spec, 0, Placement())
    batch, _ = batch_of(Relabelled(SMALL, batch=16))
    view = StageView(engine.models, batch.add({"row": torch.arange(16)}), frozenset(), Draw(0))
    found = Td(NextValue(0.9, "value_target"), ExpectileByTarget(0.8), OfState())(batch, view)
    value, copy = engine.models["value"], engine.models["value_target"]
    total = 0.0
    for row in range(16):
        now = {name: column[row : row + 1, :1] for name, column in batch.context.items()}
        after = {name: column[row : row + 1, 1:] for name, column in batch.context.items()}
        onward = 0.0 if bool(batch.terminal[row, 0]) else 0.9
        target = float(batch.reward[row, 0]) + onward * copy(after)[:, 0, 0]
        gain = float(batch.reward[row, 0]) + onward * float(copy(after).min()) - float(copy(now).mean())
        weight = 0.8 if gain >= 0 else 0.2
        total += float((weight * (target - value(now)[:, 0, 0]).square()).sum().detach())
    assert float(found.sum.detach()) == pytest.approx(total, rel=1e-4)
    found.sum.backward()
    assert all(parameter.grad is None for parameter in copy.parameters())


# ---------------------------------------------------------------------------------------------------- two levels
def test_both_levels_together_are_the_low_one_towards_the_proposal() -> None:
    actor = Policy(Perceptron((8,)), Hierarchical()).build(TASK.spec)
    batch, _ = batch_of(Relabelled(SMALL, batch=8))
    needs = frozenset({Need.LOGP})
    subgoal = actor.propose(batch.context)
    assert torch.allclose(actor.towards(batch.context, subgoal)["goal"].norm(dim=-1), torch.tensor(10**0.5))
    assert torch.allclose(
        actor.score(batch, needs).logp, actor.score_towards(batch, 3 * subgoal, needs).logp, atol=1e-6
    )


@pytest.mark.parametrize("part", [TowardsSubgoal(inverse_temperature=0.0), ProposeSubgoal(inverse_temperature=0.0)])
def test_at_inverse_temperature_zero_a_level_is_cloned_and_nothing_flows_into_values(part) -> None:
    few = Perceptron((8,))
    critics = {name: Critic(few, GoalValue()) for name in ("value", "high_value")}
    recipe = replace(ota(), actor=Policy(few, Hierarchical()), critics=critics)
    engine = Engine(recipe, TASK.spec, 0, Placement())
    batch, _ = batch_of(Relabelled(SMALL, batch=8))
    loss = part(batch, StageView(engine.models, batch, frozenset(), Draw(0)))
    loss.sum.backward()
    assert all(p.grad is None for name in ("value", "high_value") for p in engine.models[name].parameters())
    now, value, actor = batch.now, engine.models["value"], engine.models["actor"]
    if isinstance(part, TowardsSubgoal):
        subgoal = value.represent(now.context)
        expected = -actor.score_towards(now, subgoal, frozenset({Need.LOGP})).logp.sum()
    else:
        there = {"observation": now.context["observation"], "goal": batch.context["achieved"][:, 1:]}
        expected = 0.5 * (actor.propose(now.context) - value.represent(there)).square().sum()
    assert float(loss.sum.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_with_option_one_both_values_learn_from_the_same_batches() -> None:
    feeds = ota(option=1).feeds
    assert [stage.name for stage in feeds[0].stages] == ["value", "high value"]
    loop = Loop(ota(option=1), TASK, seed=0, num_steps=1)
    loop.engine.flats["high_value"].values.copy_(loop.engine.flats["value"].values)
    loop.engine.flats["high_value_target"].values.copy_(loop.engine.flats["value_target"].values)
    loop.step()
    assert torch.equal(loop.engine.flats["high_value"].values, loop.engine.flats["value"].values)
