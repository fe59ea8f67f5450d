"""Forward-backward representations: measures, orthonormality and penalties against slow references."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.core.spaces import Box
from assay.engine.engine import Engine, StageView
from assay.engine.placement import Placement
from assay.methods.zero_shot_rl import ConservativeMeasures, ConservativeValues
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.forward_backward import ForwardBackwardActor
from assay.models.heads.waves import Waves
from assay.models.model import Policy
from assay.parts.critics.measures import MaximizeMeasure, MeasuredRows, MeasureLoss, Orthonormal
from assay.parts.sources.relabelled import Play, Relabelled
from assay.recipes.forward_backward import forward_backward
from assay.recipes.presets import CONTINUOUS, CONTROL
from assay.runs import catalogue
from tests.scenes import feeding

GRID, POINT = catalogue.find_task("small-rooms"), catalogue.find_task("pointmaze-umaze")


def setting(task, world, size=6):
    recipe = replace(forward_backward(world), actor=Policy(Perceptron((8,)), ForwardBackwardActor(size)))
    engine = Engine(recipe, task.spec, 0, Placement())
    source = Relabelled(Play(episodes=2), batch=8)
    batch = next(iter(source(feeding(task, None, Draw(3)), source.init(Scene(task))))).add({"row": torch.arange(8)})
    return engine.models["actor"], batch, StageView(engine.models, batch, frozenset(), Draw(0))


@pytest.mark.parametrize(("task", "world"), [(GRID, CONTROL), (POINT, CONTINUOUS)])
def test_the_measure_loss_is_its_definition_pair_by_pair(task, world) -> None:
    model, batch, view = setting(task, world)
    rows = MeasuredRows(batch, view)
    noise = view.uniform((8, 1, model.num_next_draws), tag=5).flatten(0, 1)
    ahead = model.forward_of(rows.now, rows.action, rows.z)
    onward = model.forward_of(rows.after, model.decide(rows.after, rows.z, noise), rows.z)
    back = model.backward_of(rows.after["achieved"])
    expected = 0.0
    for head in range(2):
        for i in range(8):
            expected -= float((ahead[head, i] @ back[i]).detach()) / 8
            for j in range(8):
                if i != j:
                    target = 0.9 * float((onward[:, i] @ back[j]).mean().detach()) * (not bool(batch.terminal[i, 0]))
                    expected += 0.5 * (float((ahead[head, i] @ back[j]).detach()) - target) ** 2 / 56
    loss = MeasureLoss(0.9)(batch, view)
    assert float(loss.sum.detach() / loss.count) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("task", "world"), [(GRID, CONTROL), (POINT, CONTINUOUS)])
def test_penalties_are_never_negative_and_spare_the_target(task, world) -> None:
    model, batch, view = setting(task, world)
    for part in (ConservativeValues(), ConservativeMeasures()):
        loss = part(batch, view)
        assert float(loss.sum.detach()) >= 0.0
        loss.sum.backward()
    assert all(parameter.grad is None for parameter in view.model("target").parameters())
    assert any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.ahead.parameters())


def test_the_policy_alone_learns_from_its_own_objective() -> None:
    model, batch, view = setting(POINT, CONTINUOUS)
    MaximizeMeasure()(batch, view).sum.backward()
    moved = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())}
    assert moved == {"policy"}
    rows = MeasuredRows(batch, view)
    action = model.decide(rows.now, rows.z)
    value = (model.forward_of(rows.now, action, rows.z) * rows.z).sum(-1).amin(0).sum()
    direct = torch.autograd.grad(-value, list(model.policy.parameters()))
    for mine, parameter in zip(direct, model.policy.parameters(), strict=True):
        assert torch.allclose(mine, parameter.grad, atol=1e-5)


def test_choices_need_no_policy() -> None:
    _, batch, view = setting(GRID, CONTROL)
    with pytest.raises(AssayError, match="continuous actions"):
        MaximizeMeasure()(batch, view)


def test_a_goal_is_the_task_whose_reward_is_that_place() -> None:
    """z = E[r B] over logged places, r = 3 at the goal, is B(goal): only the direction of a reward counts."""
    model, _, _ = setting(GRID, CONTROL)
    places = Play(episodes=2).columns(GRID)["achieved"]
    goal = places[17]
    reward = (GRID.distance(places, goal.expand_as(places)) == 0).float()
    assert torch.allclose(model.infer(places, 3.0 * reward), model.backward_of(goal), atol=1e-4)


def test_rewards_are_never_read() -> None:
    _, batch, view = setting(GRID, CONTROL)
    other = replace(batch, reward=batch.reward + 5.0)
    for part in (MeasureLoss(), Orthonormal(), ConservativeValues(), ConservativeMeasures()):
        assert torch.equal(part(batch, view).sum, part(other, view).sum)


def test_a_single_decision_has_no_pairs() -> None:
    model, batch, _ = setting(GRID, CONTROL)
    one = batch.rows(slice(0, 1))
    view = StageView({"actor": model, "target": model}, one, frozenset(), Draw(0))
    loss = MeasureLoss()(one, view)
    rows = MeasuredRows(one, view)
    expected = -(model.forward_of(rows.now, rows.action, rows.z) @ model.backward_of(rows.after["achieved"]).T).sum()
    assert float(loss.sum.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_the_actor_goes_where_it_is_asked_to() -> None:
    model, batch, _ = setting(GRID, CONTROL)
    context = {name: column[:, 0] for name, column in batch.context.items()}
    z = model.backward_of(context["goal"])
    values = (model.forwards(context, None, z) * z.unsqueeze(-2)).sum(-1).amin(0)
    assert np.array_equal(model.act(context, None)[0].numpy(), values.argmax(-1).numpy())


def test_no_two_inputs_look_alike_whatever_their_bounds() -> None:
    box = Box((-30.0, 0.0, -float("inf")), (10.0, 1.0, float("inf")))
    grid = torch.linspace(0.001, 0.999, 400).double()
    values = torch.stack((-30.0 + 40.0 * grid, grid, 20.0 * (grid - 0.5)), -1)
    for column in Waves(box).double()(values).view(400, 7, 3).unbind(-1):
        assert float((torch.cdist(column, column) + torch.eye(400)).min()) > 1e-3


def test_without_bounds_inputs_are_scaled_by_the_range_of_the_data() -> None:
    """A maze in metres without bounds trains as the same maze in [-1, 1]: its inputs are the same features."""
    factor, wide = 40.0, Box((-math.inf,) * 2, (math.inf,) * 2)
    spec = replace(POINT.spec, observation=Box((-math.inf,) * 4, (math.inf,) * 4), goal=wide)
    head = ForwardBackwardActor(6)
    assert head.needs_data(spec)
    assert not head.needs_data(POINT.spec)
    data = Play(episodes=2).columns(POINT)
    seen, places = data["observation"], data["achieved"]
    fitted = head.of_data(factor * seen, factor * places)
    assert not fitted.needs_data(spec)
    lows, highs = seen.double().amin(0), seen.double().amax(0)
    near = Box(tuple(lows.tolist()), tuple(highs.tolist()))
    unit = Box(near.low[:2], near.high[:2])
    small = replace(POINT.spec, observation=near, goal=unit)
    models = []
    for one, own in ((fitted, spec), (head, small)):
        torch.manual_seed(0)
        models.append(Policy(Perceptron((8,)), one).build(own))
    large, plain = models
    assert torch.allclose(large.backward_of(factor * places), plain.backward_of(places), atol=1e-3)
    spread = large.places(factor * places).std(0)
    assert float(spread[:2].min()) > 0.3
