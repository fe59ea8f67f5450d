"""The value of the uniform policy: its Bellman error, its column, its gradient."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.claims import probes
from assay.claims import rover as claims
from assay.claims.laws.cases import CHOICES, RAGGED, build
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods import rover
from assay.methods.rover import UniformLogp, UniformValue, needed
from assay.models.heads.categorical import SoftmaxTable
from assay.ops import distributions
from assay.recipes.presets import TABLE
from assay.runs import catalogue
from tests.methods.batches import with_advantage


def rover_loss_by_hand(batch: Experience, new: Tensor, old: Tensor, temperature: float, scale: float) -> float:
    """Token by token from the paper's formula; `new` and `old` are logits [B, T, V]."""
    total = 0.0
    for row, time in batch.mask.nonzero().tolist():
        moved = (new.log_softmax(-1) - old.log_softmax(-1))[row]
        follows = time + 1 < batch.num_columns and bool(batch.mask[row, time + 1])
        follows = follows and not bool(batch.terminal[row, time] | batch.truncated[row, time])
        after = float(moved[time + 1].mean()) if follows else 0.0
        target = float(batch.column("advantage")[row, time]) + scale * temperature * after
        total += (temperature * float(moved[time, batch.action[row, time]]) - target) ** 2 / 2
    return total


@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.3), (1.0, 0.0)])
def test_uniform_value_is_the_bellman_error_of_the_uniform_policy(temperature: float, scale: float) -> None:
    batch = with_advantage(build(CHOICES, replace(RAGGED, rows=tuple(row.replace("p", "d") for row in RAGGED.rows))))
    shape = (*batch.mask.shape, 3)
    new, old = (torch.sin(k * torch.arange(math.prod(shape)).double()).view(shape) for k in (1.1, 2.3))
    logp, logp_old = (one.log_softmax(-1).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1) for one in (new, old))
    before = distributions.uniform_logp(old) * batch.mask
    batch = replace(batch, logp=logp_old * batch.mask).add({"uniform_logp_old": before})
    leaf = logp.detach().requires_grad_()
    part = UniformValue(temperature, scale)
    loss = part(batch, probes.tensors.TensorView(Scored(leaf, uniform=distributions.uniform_logp(new)), {}))
    assert float(loss.sum.detach()) == pytest.approx(rover_loss_by_hand(batch, new.detach(), old, temperature, scale))
    (slope,) = torch.autograd.grad(loss.sum, [leaf])
    assert bool(slope[batch.mask].any())
    assert not slope[~batch.mask].any()


def test_forbidden_tokens_are_no_choice_of_the_uniform_policy() -> None:
    logits = torch.tensor([[[1.0, 0.0, -1e9, 2.0]]])
    found = distributions.uniform_logp(logits)
    assert torch.allclose(found, logits[..., [0, 1, 3]].log_softmax(-1).mean(-1))


def test_the_old_column_is_that_of_the_policy_that_acted() -> None:
    recipe = rover.recipe(TABLE)
    engine = Engine(recipe, catalogue.find_task("chain").spec, 0, Placement(micro_batch=3))
    loop = Loop(recipe, catalogue.find_task("chain"), seed=0, num_steps=1)
    fresh = loop.step().fresh
    assert fresh is not None
    noted = fresh.column("uniform_logp_old")
    actor = engine.models["actor"]
    assert isinstance(actor, SoftmaxTable)
    logits = actor.score(fresh, frozenset({Need.LOGITS})).logits
    assert logits is not None
    assert torch.allclose(noted, logits.log_softmax(-1).mean(-1) * fresh.mask)
    again = engine.annotate(replace(fresh, extra={}), frozenset({UniformLogp()}))
    assert torch.equal(noted, again.column("uniform_logp_old"))


def test_on_policy_its_expected_gradient_is_not_zero() -> None:
    assert (
        float(probes.expected_table_gradient(rover.recipe(), claims.EPISODES, claims.LOGITS_SA, members=2).norm()) > 0.1
    )


def test_continuous_actions_are_refused() -> None:
    task = catalogue.find_task("pendulum")
    with pytest.raises(AssayError, match="works on these kinds of task"):
        catalogue.recipe_for("rover", task, {})
    with pytest.raises(AssayError, match="discrete actions"):
        needed(None)
