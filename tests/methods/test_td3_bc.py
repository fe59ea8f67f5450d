"""The size of values that behaviour cloning is weighed against."""

from __future__ import annotations

import torch

from assay.claims import probes
from assay.methods.td3_bc.base import td3_bc
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
