"""Offline bases and what continues them online: expectiles, conservatism, subsets of critics, gates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay import bases, probes
from assay.critics.conservative import Conservative, chosen
from assay.engine import StageView
from assay.types import Box, Experience, Spec
from assay.worlds import CONTINUOUS

SPEC = Spec(Box((-1.0,) * 3, (1.0,) * 3), Box((-2.0,) * 2, (2.0,) * 2), horizon=10)
ROWS = 12


def transitions(rows: int = ROWS) -> Experience:
    """Random transitions; one of four ends."""
    draw = torch.Generator().manual_seed(3)
    seen, action = torch.randn(rows, 2, 3, generator=draw), 4 * torch.rand(rows, 2, 2, generator=draw) - 2
    first = torch.tensor([[True, False]]).expand(rows, 2)
    reward = torch.randn(rows, 2, generator=draw) * first
    ends = (torch.arange(rows) % 4 == 0).unsqueeze(1) & first
    return Experience({"observation": seen}, action, first, 0 * reward, reward, ends, torch.zeros_like(ends))


def built(recipe: Any) -> dict[str, Any]:
    """The recipe's models with weights of one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return {name: spec.build(SPEC) for name, spec in {"actor": recipe.actor, **recipe.critics}.items()}


def gradient(recipe: Any, stage: str, batch: Experience) -> dict[str, Tensor]:
    models = built(recipe)
    engine = probes.witness(recipe, models.pop("actor"), models)
    return engine.gradient(
        next(one for one in recipe.stages if one.name == stage), engine.annotate(batch, recipe.needs)
    )


# ---------------------------------------------------------------------------------------------------- bases
def test_the_conservative_term_is_the_slow_sum_over_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = bases.cql(CONTINUOUS)
    models, batch, term = built(recipe), transitions(3), Conservative(weight=2.0, num=4)
    draws = {tag: torch.rand(3, 1, 4, 2, generator=torch.Generator().manual_seed(tag)) for tag in (4, 5, 6)}
    monkeypatch.setattr(StageView, "uniform", lambda view, shape, tag: draws[tag].view(*shape))
    view: Any = StageView(models, batch, frozenset(), None)  # type: ignore[arg-type]
    found, expected, seen = term(batch, view).sum, torch.zeros(()), batch.context["observation"]
    actor, q = models["actor"], models["q"]
    for row in range(3):
        terms = []
        for place in range(4):
            for tag, when in ((4, 0), (5, 1)):
                action, logp = actor.act({"observation": seen[row : row + 1, when]}, draws[tag][row, :, place])
                terms.append(q({"observation": seen[row : row + 1, :1]}, action.unsqueeze(0))[:, 0, 0] - logp)
            anything = 4.0 * draws[6][row, :, place] - 2.0
            terms.append(q({"observation": seen[row : row + 1, :1]}, anything.unsqueeze(0))[:, 0, 0] + math.log(16.0))
        here = q({"observation": seen[row : row + 1, :1]}, batch.action[row : row + 1, :1])[:, 0, 0]
        expected = expected + 2.0 * (torch.stack(terms).exp().mean(0).log() - here).sum()
    torch.testing.assert_close(found, expected)


def test_conservatism_moves_critics_and_not_the_policy() -> None:
    found = gradient(bases.cql(CONTINUOUS), "critic", transitions())
    assert all(name.startswith("q.") for name in found)
    assert all(bool(torch.isfinite(value).all()) and bool(value.any()) for value in found.values())


def test_a_constant_critic_is_divided_by_something_finite() -> None:
    recipe = bases.td3_bc()
    models = built(recipe)
    with torch.no_grad():
        for parameter in models["q"].parameters():
            parameter.zero_()
    engine = probes.witness(recipe, models["actor"], {"q": models["q"]})
    found = engine.gradient(recipe.stages[1], engine.annotate(transitions(), recipe.needs))
    assert all(bool(torch.isfinite(value).all()) for value in found.values())


def test_the_size_of_values_is_that_of_the_whole_batch_in_every_micro_batch() -> None:
    recipe, batch = bases.td3_bc(), transitions()
    models = built(recipe)
    engine = probes.witness(recipe, models["actor"], {"q": models["q"]})
    noted = engine.annotate(batch, recipe.needs)
    now = batch.now
    expected = models["q"].first(now.context, now.action).abs().mean()
    torch.testing.assert_close(noted.column("q_size"), expected.detach().expand(ROWS, 2))


def test_iql_evaluates_no_action_that_was_not_recorded() -> None:
    """Every action that reaches the critics is one of the record's."""
    recipe, batch = bases.iql(CONTINUOUS), transitions()
    models = built(recipe)
    asked: list[Tensor] = []
    engine = probes.witness(recipe, models.pop("actor"), models)
    for name in ("q", "q_target"):
        engine.models[name].register_forward_pre_hook(lambda module, inputs: asked.append(inputs[1]))
    for stage in recipe.stages:
        engine.gradient(stage, engine.annotate(batch, recipe.needs))
    assert asked
    assert all(torch.equal(action, batch.now.action) for action in asked)


# ---------------------------------------------------------------------------------------------------- subsets
def test_subsets_of_critics_are_drawn_alike_with_replacement() -> None:
    values = torch.arange(10.0).view(10, 1, 1).expand(10, 4000, 1)
    uniform = torch.rand(4000, 1, 2, generator=torch.Generator().manual_seed(0))
    picked = chosen(values, uniform)
    assert picked.shape == (2, 4000, 1)
    counts = torch.bincount(picked.long().flatten(), minlength=10)
    assert int(counts.min()) > 650
    assert abs(float((picked[0] == picked[1]).float().mean()) - 0.1) < 0.03


def test_a_subset_of_none_is_the_minimum_over_all() -> None:
    recipe, batch = bases.cql(CONTINUOUS), transitions()
    alone = replace(recipe, stages=(replace(recipe.stages[0], critic=recipe.stages[0].critic[:1]), recipe.stages[1]))
    many = alone.set("ToOwnAction.subset", 60)  # both critics are among sixty draws
    for name, value in gradient(alone, "critic", batch).items():
        torch.testing.assert_close(value, gradient(many, "critic", batch)[name])
