"""Covariance of log-probability and advantage: what is marked, dropped and penalised."""

from __future__ import annotations

import pytest
import torch

from assay.claims import probes
from assay.claims.clip_cov import watched
from assay.core.record import Draw, Scored
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods import clip_cov
from assay.methods.clip_cov import DropHighCovariance, HoldHighCovariance, covariance_of
from assay.parts.regularizers.divergence import NEVER, KlWhereHeld
from assay.runs import catalogue
from tests.methods.batches import empty, ragged, with_advantage


def test_covariances_sum_to_that_of_the_batch() -> None:
    batch = with_advantage(ragged())
    pairs = torch.stack([batch.logp[batch.mask], batch.column("advantage")[batch.mask]])
    total = covariance_of(batch).sum() / batch.mask.sum()
    assert torch.allclose(total, torch.cov(pairs, correction=0)[0, 1])


@pytest.mark.parametrize(("share", "num"), [(1e-6, 1), (0.1, 2), (0.2, 4)])
def test_the_largest_covariances_are_marked(share: float, num: int) -> None:
    batch = with_advantage(ragged())
    assert int(batch.mask.sum()) == 24
    marked = HoldHighCovariance(share)(batch).column("logp_held") > NEVER
    covariance = covariance_of(batch)
    assert int(marked.sum()) == num
    assert float(covariance[marked].min()) > float(covariance[batch.mask & ~marked].max())


def test_dropped_decisions_are_a_share_of_those_in_the_band() -> None:
    batch = with_advantage(ragged())
    part = DropHighCovariance(share=0.1, low=0.01, high=5.0)
    after = part(batch)
    dropped, covariance = after.column("dropped"), covariance_of(batch)
    assert int(dropped.sum()) == 2
    assert bool(((covariance[dropped] > 0.01) & (covariance[dropped] < 5.0)).all())
    assert not after.column("advantage")[dropped].any()
    assert torch.equal(after.column("advantage")[~dropped], batch.column("advantage")[~dropped])


def test_which_decisions_are_dropped_differs_between_seeds_and_steps() -> None:
    batch, draws = with_advantage(ragged()), (Draw(0, (1,)), Draw(0, (1,)), Draw(1, (1,)), Draw(0, (2,)))
    part = DropHighCovariance(share=0.1, low=0.01, high=5.0)
    one, same, seed, step = (part(batch, Scene(draw=draw)).column("dropped") for draw in draws)
    assert torch.equal(one, same)
    assert not torch.equal(one, seed)
    assert not torch.equal(one, step)


def test_the_share_of_decisions_in_the_band_is_logged() -> None:
    scene, batch = Scene(), with_advantage(ragged())
    DropHighCovariance(low=0.01, high=5.0)(batch, scene)
    covariance = covariance_of(batch)
    assert scene.metrics["in_band"] == [(float(((covariance > 0.01) & (covariance < 5.0)).sum()), 24.0)]


@pytest.mark.parametrize("part", [DropHighCovariance(0.5, 0.0, 9.0), HoldHighCovariance(0.5)])
def test_without_advantages_nothing_is_selected(part: DropHighCovariance | HoldHighCovariance) -> None:
    for batch in (ragged(), empty()):
        even = batch.add({"advantage": torch.zeros_like(batch.logp)})
        after = part(even).extra
        assert not (after["dropped"] if "dropped" in after else after["logp_held"] > NEVER).any()


def test_the_penalty_is_on_marked_decisions_alone() -> None:
    batch = HoldHighCovariance(0.2)(with_advantage(ragged()))
    marked = batch.column("logp_held") > NEVER
    logp = (batch.logp + 0.3).requires_grad_()
    loss = KlWhereHeld(2.0)(batch, probes.tensors.TensorView(Scored(logp), {}))
    (slope,) = torch.autograd.grad(loss.sum, logp)
    assert torch.equal(slope, 2.0 * marked.double())
    assert int(loss.count) == int(batch.mask.sum())


def test_kl_cov_at_the_acting_policy_has_no_penalty() -> None:
    batch = HoldHighCovariance(0.2)(with_advantage(ragged()))
    logp = batch.logp.clone().requires_grad_()
    loss = KlWhereHeld()(batch, probes.tensors.TensorView(Scored(logp), {}))
    assert not torch.autograd.grad(loss.sum, logp)[0].any()


def test_kl_cov_trains() -> None:
    task = catalogue.find_task("addition-1")
    recipe = watched(clip_cov.kl_cov()).set("rollout.num_starts", 4).set("actor.width", 16)
    step = Loop(recipe, task, seed=0, num_steps=1).step()
    assert not step.alarms
    assert "held" in step.metrics
    assert step.metrics["entropy"] > 0
