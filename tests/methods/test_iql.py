"""No action is evaluated that the data does not have."""

from __future__ import annotations

import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.recipes.presets import CONTINUOUS
from tests.methods.transitions import built, transitions


def test_iql_evaluates_no_action_that_was_not_recorded() -> None:
    """Every action that reaches the critics is one of the record's."""
    recipe, batch = recipes.iql(CONTINUOUS), transitions()
    models = built(recipe)
    asked: list[Tensor] = []
    engine = probes.witness(recipe, models.pop("actor"), models)
    for name in ("q", "q_target"):
        engine.models[name].register_forward_pre_hook(lambda module, inputs: asked.append(inputs[1]))
    for stage in recipe.stages:
        engine.gradient(stage, engine.annotate(batch, recipe.needs))
    assert asked
    assert all(torch.equal(action, batch.now.action) for action in asked)
