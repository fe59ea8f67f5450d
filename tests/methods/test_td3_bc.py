"""The size of values that behaviour cloning is weighed against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from assay.claims import probes
from assay.core.slots import Ask
from assay.datasets.files import write
from assay.datasets.made import Scripted
from assay.models.bodies.by_data import StandardisedByData
from assay.models.bodies.perceptron import Perceptron
from assay.recipes.conservative import td3_bc
from assay.recipes.presets import CONTINUOUS, D4RL
from assay.runs.plan import make_plan
from assay.tasks.control.pendulum import pendulum
from tests.methods.transitions import ROWS, built, transitions


def test_a_constant_critic_is_divided_by_something_finite() -> None:
    recipe = td3_bc()
    models = built(recipe)
    with torch.no_grad():
        for parameter in models["q"].parameters():
            parameter.zero_()
    engine = probes.witness(recipe, models["actor"], {"q": models["q"]})
    found = engine.gradient(recipe.stages[1], engine.annotate(transitions(), recipe.needs))
    assert all(bool(torch.isfinite(value).all()) for value in found.values())


def test_the_size_of_values_is_that_of_the_whole_batch_in_every_micro_batch() -> None:
    recipe, batch = td3_bc(), transitions()
    models = built(recipe)
    engine = probes.witness(recipe, models["actor"], {"q": models["q"]})
    noted = engine.annotate(batch, recipe.needs)
    now = batch.now
    expected = models["q"].first(now.context, now.action).abs().mean()
    torch.testing.assert_close(noted.column("q_size"), expected.detach().expand(ROWS, 2))


def test_a_plan_with_the_preset_of_files_records_the_moments_of_the_data(tmp_path: Path) -> None:
    task = pendulum()
    data = Scripted(2, 0.5).make(task)
    data = replace(data, observation=data.observation * torch.tensor([1.0, 0.0, 5.0]) + 3.0)
    path = str(write(data, tmp_path / "it.npz"))
    recipe = make_plan("td3-bc", task, data=[path], preset="d4rl").recipe
    for body in (recipe.actor.body, recipe.critics["q"].body):
        assert isinstance(body, StandardisedByData)
        torch.testing.assert_close(torch.tensor(body.mean), data.observation.mean(0), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(torch.tensor(body.deviation), data.observation.std(0, correction=0))
    scaled = recipe.actor.body.outputs(task.spec, Ask((1,), activation=nn.ReLU))
    seen = {"observation": data.observation[:4]}
    assert bool(torch.isfinite(scaled(seen)).all())  # the second number is constant: divided by 1e-3
    plain = make_plan("td3-bc", task, data=[path], preset="classic").recipe
    assert isinstance(plain.actor.body, Perceptron)


def test_standardised_states_are_a_setting_of_the_preset_alone() -> None:
    assert D4RL.offline.standardised
    assert td3_bc(replace(D4RL, offline=replace(D4RL.offline, standardised=False))).actor.body == D4RL.offline.body
    assert td3_bc().actor.body == CONTINUOUS.offline.body
