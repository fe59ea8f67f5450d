"""Learning from a stream: traces, moments, scaled rewards and sparse units, against slow references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.claims.stream_x import plain_ac
from assay.core.errors import AssayError
from assay.core.optimizers import Adam, Averaging, ObGD, Traced
from assay.core.recipe import Stage
from assay.core.record import Scored
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods.stream_x.base import stream_ac, stream_q
from assay.methods.stream_x.losses import FitMoments, TracePolicy, TraceQ, TraceValue
from assay.methods.stream_x.models import Scaled, Sparse, sparse_perceptron
from assay.methods.stream_x.stream import Stream
from assay.models.heads.value import Greedy
from assay.models.model import Policy
from assay.recipes.presets import CONTINUOUS, CONTROL
from assay.runs import catalogue
from tests.methods.streams import SPEC, Models, normal, stream_of

ONE = torch.ones(())


def test_obgd_is_the_papers_rule() -> None:
    values, z, delta, kappa = [normal(3, 6)], torch.zeros(6).double(), [0.3, -5.0, 1e-3, 2.0], 2.0
    expected, optimizer = values[0].clone(), Traced(ObGD(kappa), decay=0.8)
    state = optimizer.init(values)
    for t, d in enumerate(delta):
        g = normal(10 + t, 6)
        z = 0.8 * z + g
        bound = kappa * max(abs(d), 1.0) * float(z.abs().sum())
        expected = expected + min(1.0, 1.0 / bound) * d * z
        optimizer.step(values, [-g], {"td_error": [(torch.tensor(d).double(), ONE)]}, state)
    assert torch.allclose(values[0], expected, atol=1e-12)


@pytest.mark.parametrize("inner", [ObGD(), Adam(clip_norm=0.0)])
def test_no_decision_or_no_error_leaves_the_first_step_still(inner: Any) -> None:
    values = [normal(3, 4).float()]
    before, optimizer = values[0].clone(), Traced(inner, 0.9)
    state = optimizer.init(values)
    optimizer.step(values, [torch.ones(4)], {}, state)
    optimizer.step(values, [torch.ones(4)], {"td_error": [(torch.zeros(()), ONE)]}, state)
    assert torch.equal(values[0], before)


def test_traces_are_emptied_after_an_end_and_before_a_cut() -> None:
    optimizer, values = Traced(ObGD(), 0.5), [torch.zeros(2)]
    state = optimizer.init(values)
    one = {"td_error": [(ONE, ONE)]}
    optimizer.step(values, [torch.ones(2)], one, state)
    optimizer.step(values, [torch.ones(2)], one, state)
    assert torch.equal(state["trace"][0], torch.full((2,), 1.5))
    optimizer.step(values, [torch.ones(2)], one | {"trace_cut": [(ONE, ONE)]}, state)
    assert torch.equal(state["trace"][0], torch.ones(2))
    optimizer.step(values, [torch.ones(2)], one | {"episode_over": [(ONE, ONE)]}, state)
    assert not state["trace"][0].any()


def test_averaging_moments_gives_mean_and_variance_of_all_that_was_seen() -> None:
    recipe = replace(
        stream_q(), stages=(Stage("m", ("actor",), critic=(FitMoments(("actor",)),), optimizer=Averaging()),)
    )
    engine = Engine(recipe, SPEC, 0, Placement())
    seen = stream_of(40).map(lambda c: c.float() if c.is_floating_point() else c)
    for t in range(40):
        pair = seen.columns(t, t + 2)
        engine.update(recipe.stages[0], replace(pair, mask=torch.tensor([[True, False]])))
    after: Tensor = seen.context["observation"][0, 1:]
    scale: Any = engine.models["actor"].body.scale
    assert torch.allclose(scale.mean, after.mean(0), atol=1e-5)
    assert torch.allclose(scale.variance, after.var(0, unbiased=False), atol=1e-5)
    assert torch.allclose(scale(after).std(0), torch.ones(3), atol=1e-4)
    assert scale.number.tolist() == [40.0]


def test_td_error_bootstraps_after_truncation_and_not_after_termination() -> None:
    batch, weight = stream_of(4, terminal=[1], truncated=[2]), normal(5, 3)
    value = Models({"value": lambda context: context["observation"] @ weight})
    v = batch.context["observation"][0] @ weight
    r, found = batch.reward[0], TraceValue(0.9)(batch, value).metrics
    expected = sum(r[t] + 0.9 * v[t + 1] * (t != 1) - v[t] for t in range(4))
    assert torch.allclose(found["td_error"][0], expected)
    assert float(found["episode_over"][0]) == 2.0


def test_trace_q_marks_decisions_that_were_not_greedy() -> None:
    actor: Any = Policy(Sparse((8,)), Greedy()).build(SPEC).double()
    batch = stream_of(6)
    greedy = actor.values(batch.context).argmax(-1)
    explored = replace(batch, action=torch.where(torch.arange(7) == 3, 1 - greedy, greedy))
    assert float(TraceQ()(explored, Models({"actor": actor})).metrics["trace_cut"][0]) == 1.0


def test_signed_entropy_is_ascended_whichever_way_the_error_points() -> None:
    batch = stream_of(1)
    for offset in (-9.0, 9.0):
        entropy = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
        scored = Scored(torch.zeros(1, 2, dtype=torch.float64), entropy)
        still = Models({"value": lambda context: torch.zeros(1, context["observation"].shape[1]).double()}, scored)
        loss = TracePolicy(entropy=0.5)(replace(batch, reward=torch.full_like(batch.reward, offset)), still)
        (slope,) = torch.autograd.grad(loss.sum, entropy)
        moved = -slope[0, 0] * loss.metrics["td_error"][0]
        assert float(moved) == pytest.approx(0.5 * abs(offset))


def test_a_decision_without_what_followed_is_refused() -> None:
    batch = stream_of(3)
    with pytest.raises(AssayError, match="after each decision"):
        TraceValue()(
            replace(batch, mask=torch.ones_like(batch.mask)), Models({"value": lambda c: c["observation"][..., 0]})
        )


def test_sparse_units_keep_a_tenth_of_their_inputs_and_at_least_one() -> None:
    net = sparse_perceptron(4, 2, (30, 30))
    first, second = (layer for layer in net[:-1] if isinstance(layer, torch.nn.Linear))
    assert (first.weight != 0).sum(1).tolist() == [1] * 30
    assert (second.weight != 0).sum(1).tolist() == [3] * 30


def test_rewards_are_scaled_by_the_spread_of_returns() -> None:
    stream, state = Stream(steps=1, discount=0.9), {"trace": 0.0, "mean": 0.0, "squares": 0.0, "number": 0}
    rewards, over, traces, u = [1.0, -2.0, 0.5, 3.0, 1.0], [False, False, True, False, False], [], 0.0
    for reward, end in zip(rewards, over, strict=True):
        found, u = stream.scaled(reward, end, state), 0.9 * u + reward
        traces.append(u)
        spread = float(torch.tensor(traces).double().var()) if len(traces) > 1 else 1.0
        assert found == pytest.approx(reward / (spread + 1e-8) ** 0.5, rel=1e-6)
        u = 0.0 if end else u


@pytest.mark.parametrize("recipe", [stream_ac(), stream_q(), plain_ac()], ids=lambda one: one.name)
def test_streams_go_on_bitwise_after_a_checkpoint(recipe: Any) -> None:
    task = catalogue.find_task("cartpole")
    through, stopped = (Loop(recipe, task, seed=3, num_steps=60) for _ in range(2))
    for _ in range(60):
        through.step()
    for _ in range(30):
        stopped.step()
    resumed = Loop(recipe, task, seed=3, num_steps=60)
    resumed.restore(stopped.snapshot())
    for _ in range(30):
        resumed.step()
    for name, flat in through.engine.flats.items():
        assert torch.equal(flat.values, resumed.engine.flats[name].values)
    assert through.engine.updates == through.progress.decisions


def test_networks_have_the_authors_sizes() -> None:
    for preset, width in ((CONTROL, 32), (CONTINUOUS, 128)):
        recipe: Any = stream_ac(preset)
        for model in (recipe.actor, recipe.critics["value"]):
            assert model.body.body.hidden == (width, width)


def test_the_actor_inside_sees_scaled_observations_when_it_acts_and_when_it_scores() -> None:
    actor: Any = Policy(Scaled()).build(SPEC)
    actor.body.scale.mean.data += 2.0
    actor.body.scale.variance.data += 2.5
    actor.body.scale.number.data += 2.0
    context = {"observation": torch.tensor([[4.0, -1.0, 2.0]])}
    scaled = {"observation": (context["observation"] - 2.0) / 5.0**0.5}
    assert torch.allclose(actor.logits(context), actor.body.inner(scaled), atol=1e-5)
