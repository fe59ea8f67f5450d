"""Duals of offline learning: conjugates, implicit maxima and the critic of recoil, against slow references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.claims.dual_rl import cloned
from assay.core.errors import AssayError
from assay.core.record import Draw, Origin, Scored
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.dual_rl import ChiSquare, ImplicitMaximum, MatchMixture, ReverseKl, TotalVariation, f_dvl, recoil
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.value import ActionValue
from assay.models.model import Critic
from assay.parts.critics.td import Td
from assay.parts.objectives.imitation import LogLikelihood
from assay.parts.objectives.weighted import AdvantageRegression
from assay.parts.predictions import OfState
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.recorded import RecordedAction
from assay.runs import catalogue
from tests.methods.streams import SPEC, Models, normal, stream_of
from tests.scenes import feeding


def least(part: ImplicitMaximum, x: Tensor) -> float:
    """The minimiser of the implicit maximum's loss over values of one state, by a fine search."""
    v = torch.linspace(float(x.min()) - 1.0, float(x.max()) + 1.0, 40_001, dtype=torch.float64)
    z = (x.unsqueeze(1) - v) / part.scale
    return float(v[(part.level * part.divergence.surrogate(z) - (1.0 - part.level) * z).mean(0).argmin()])


def test_implicit_maxima_are_a_quantile_and_a_soft_maximum() -> None:
    x = normal(21, 50)
    level = (2 * 0.8 - 1) / 0.8
    found = least(ImplicitMaximum(TotalVariation(), 0.8), x)
    assert float((x <= found + 1e-3).double().mean()) >= level >= float((x < found - 1e-3).double().mean())
    soft = 2.0 * float(((x / 2.0).exp().mean()).log())
    assert least(ImplicitMaximum(ReverseKl(), 0.5, scale=2.0), x) == pytest.approx(soft, abs=1e-3)
    assert least(ImplicitMaximum(ChiSquare(), 0.999), x) == pytest.approx(float(x.max()), abs=0.05)
    assert least(ImplicitMaximum(TotalVariation(), 0.8), 7.0 * x) == pytest.approx(7.0 * found, abs=2e-2)


def test_total_variation_bounds_what_a_transition_does_to_the_value() -> None:
    """A Q of 1e6 pulls V by at most `level`; reverse KL's pull grows as the exponential."""
    batch, value = stream_of(1), torch.zeros((), dtype=torch.float64, requires_grad=True)

    def pull(part: ImplicitMaximum, q: float) -> float:
        models = {
            "value": lambda context: value.expand(1, 1),
            "q_target": lambda c, a: torch.full((2, 1, 1), q).double(),
        }
        return float(torch.autograd.grad(Td(RecordedAction(), part, OfState())(batch, Models(models)).sum, value)[0])

    assert pull(ImplicitMaximum(TotalVariation(), 0.8), 1e6) == pytest.approx(-0.6)
    assert pull(ImplicitMaximum(ReverseKl(), 0.5), 5.0) == pytest.approx(-0.5 * (np.exp(5.0) - 1.0))


def test_recoils_critic_is_contrast_and_consistency() -> None:
    q: Any = Critic(Perceptron((8,)), ActionValue()).build(SPEC).double()
    rows = [replace(stream_of(1, terminal=[0] if k == 2 else ()), reward=torch.zeros(1, 2).double()) for k in range(4)]
    batch = replace(
        rows[0],
        **{
            name: torch.cat([getattr(row, name) for row in rows])
            for name in ("mask", "logp", "reward", "terminal", "truncated")
        },
    )
    batch = replace(
        batch,
        context={"observation": normal(31, 4, 2, 3)},
        action=torch.tensor([[0, 0], [1, 0], [1, 0], [0, 0]]),
        source=torch.tensor([Origin.TEACHER, Origin.DATASET, Origin.TEACHER, Origin.DATASET]),
    )
    value = Models({"q": q, "value": lambda context: context["observation"].sum(-1)})
    found = MatchMixture(0.3, 0.9)(batch, value)
    values, after = q(batch.now.context, batch.now.action), batch.context["observation"][:, 1].sum(-1)
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(4):
        expert, goes_on = row in (0, 2), row != 2
        y = 0.9 * after[row] * goes_on - values[:, row, 0]
        share = 0.3 if expert else 0.7
        expected = expected + (share / 2 * y.square() / 4 - (0.3 / 2 * values[:, row, 0] if expert else 0.0)).sum()
    assert torch.allclose(found.sum / found.count, expected)


def test_inverse_temperature_zero_is_cloning() -> None:
    batch, logp = stream_of(5), normal(9, 1, 6).requires_grad_()
    models = {"value": lambda context: torch.zeros(1, 5).double(), "q_target": lambda c, a: normal(4, 2, 1, 5)}
    view = Models(models, Scored(logp * batch.mask))
    weighted, plain = AdvantageRegression(inverse_temperature=0.0)(batch, view), LogLikelihood()(batch, view)
    assert torch.allclose(weighted.sum, plain.sum)
    limited = AdvantageRegression(inverse_temperature=1e6, limit=10.0)(batch, view)
    assert float(torch.autograd.grad(limited.sum, logp)[0].abs().max()) <= 10.0 + 1e-9


@pytest.mark.parametrize("task", ["cartpole", "pendulum", "gridworld"])
def test_logs_are_made_again_with_the_same_contents(task: str) -> None:
    one, again, other = (
        Logged((Log(2, noise),)).init(Scene(catalogue.find_task(task)))["contents"] for noise in (0.5, 0.5, 0.6)
    )
    assert one.hash == again.hash != other.hash
    with pytest.raises(AssayError, match="started with"):
        one.restore(other.snapshot())


def test_a_log_without_noise_is_the_experts_and_rows_say_where_they_are_from() -> None:
    task: Any = catalogue.find_task("cartpole")
    source = Logged((Log(2, noise=1.0), Log(1, noise=0.0, first=50, origin=int(Origin.TEACHER))), batch=32, updates=1)
    (batch,) = source(feeding(task, None, Draw(1)), source.init(Scene(task)))
    expert = batch.source == Origin.TEACHER
    assert batch.source is not None
    assert int(expert.sum()) == 32
    seen = {"observation": batch.context["observation"][expert, 0]}
    assert torch.equal(task.expert(seen), batch.action[expert, 0])
    assert not torch.equal(
        task.expert({"observation": batch.context["observation"][~expert, 0]}), batch.action[~expert, 0]
    )


@pytest.mark.parametrize("recipe", [f_dvl(), recoil(), cloned()], ids=lambda one: one.name)
def test_learning_from_a_log_needs_no_interaction(recipe: Any) -> None:
    loop = Loop(
        recipe.set("source.batch", 16).set("source.updates", 2), catalogue.find_task("cartpole"), seed=0, num_steps=2
    )
    steps = [loop.step() for _ in range(2)]
    assert loop.progress.decisions == 0
    assert all(np.isfinite(list(step.metrics.values())).all() for step in steps)
    assert loop.engine.updates == 4
