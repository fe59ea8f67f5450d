"""Policies that generate actions by a path: likelihood, entropy and what is recorded, against slow references."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.claims.laws import check_rollout
from assay.claims.laws.laws import assert_laws
from assay.claims.laws.rollout import brief_pendulum
from assay.core.errors import AssayError
from assay.core.record import Draw, Need
from assay.core.slots import PathActor
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.methods.reinflow import flow_matching
from assay.methods.reinflow import recipe as reinflow
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.diffusion import Diffusion
from assay.models.heads.flow import Flow
from assay.models.model import Policy
from assay.parts.rollouts.episodes import Episodes, Fragments
from assay.parts.sources.replay import from_columns, transitions
from assay.tasks.control.pendulum import pendulum
from tests.methods.generative import SPEC, TWO, built, nodes, seen, small_actor, uniform, walked_record

NEEDS = frozenset({Need.LOGP, Need.ENTROPY})
LOGP = frozenset({Need.LOGP})


# ---------------------------------------------------------------------------------------------------- flows
@torch.no_grad()
def slow_flow_logp(actor: Any, observation: Tensor, path: Tensor) -> float:
    """One path, one Gaussian after the other."""
    total = float(torch.distributions.Normal(0.0, 1.0).log_prob(path[0]).sum())
    for k in range(actor.steps):
        v = actor.velocity((), observation, actor.times[k], path[k])
        u = actor.noise((), observation, actor.times[k])
        low, high = actor.log_noise
        sigma = math.exp(low) ** (1 - (u.tanh() + 1) / 2) * math.exp(high) ** ((u.tanh() + 1) / 2)
        total += float(torch.distributions.Normal(path[k] + v / actor.steps, sigma).log_prob(path[k + 1]).sum())
    return total


@pytest.mark.parametrize("steps", [1, 4])
def test_path_likelihood_is_the_product_of_gaussians(steps: int) -> None:
    actor, context = built(Policy(Perceptron((8,)), Flow(steps))), seen(5)
    action, logp, path = actor.walk(context, uniform(5, actor.num_draws))
    slow = [slow_flow_logp(actor, context["observation"][row], path[row]) for row in range(5)]
    assert logp.tolist() == pytest.approx(slow, abs=1e-12)
    assert path.shape == (5, steps + 1, 2)
    inside = actor.centre + actor.half_range * path[:, -1].clamp(-1, 1)
    assert torch.equal(action, inside)


@torch.no_grad()
def test_flow_without_noise_is_eulers_rule_and_noise_moves_it_in_proportion() -> None:
    actor, context = built(Policy(Perceptron((8,)), Flow(3, noise=(0.1, 0.1)))), seen(1)
    path = actor.walk(context, None)[2][0]
    point = torch.zeros(2).double()
    for k in range(3):
        point = point + actor.velocity((), context["observation"][0], actor.times[k], point) / 3
    assert torch.allclose(path[-1], point)
    apart = []
    for sigma in (1e-3, 1e-5):
        actor.log_noise = math.log(sigma), math.log(sigma)
        draws = uniform(1, actor.num_draws)
        noisy = actor.walk(context, draws)[2][0, -1]
        still = torch.special.ndtri(draws[0, :2])
        for k in range(3):
            still = still + actor.velocity((), context["observation"][0], actor.times[k], still) / 3
        apart.append(float((noisy - still).abs().max()))
    assert apart[0] / apart[1] == pytest.approx(100.0, rel=1e-2)


@torch.no_grad()
def test_entropy_of_a_path_is_minus_its_mean_log_density() -> None:
    actor = small_actor(replace(reinflow(), actor=Policy(Perceptron((8,)), Flow(2))))
    normal, weight = nodes(actor.num_draws, 8)
    record, _ = walked_record(actor, normal)
    scored = actor.score(record, NEEDS)
    assert float((weight * -scored.logp[:, 0]).sum()) == pytest.approx(float(scored.entropy[0, 0]), abs=1e-9)


@torch.no_grad()
def test_density_of_paths_integrates_to_one() -> None:
    """One step of one number: a plane of paths."""
    actor = small_actor(replace(reinflow(), actor=Policy(Perceptron((8,)), Flow(1, noise=(0.3, 0.9)))))
    line = torch.linspace(-12.0, 12.0, 401, dtype=torch.float64)
    paths = torch.cartesian_prod(line, line)
    record, _ = walked_record(actor, torch.zeros(len(paths), 2).double())
    density = actor.score(record.add({"path": paths.view(-1, 1, 2, 1)}), LOGP).logp.exp()
    assert float(density.sum() * (line[1] - line[0]) ** 2) == pytest.approx(1.0, abs=1e-9)


def test_flow_matching_learns_a_conditional_distribution() -> None:
    """Two actions of different chance: what is generated is near them as often as they were shown."""
    torch.manual_seed(0)
    actor = Policy(Perceptron((32, 32)), Flow(10, noise=(1e-4, 1e-4))).build(SPEC)
    optimizer = torch.optim.Adam(actor.parameters(), 5e-3)
    context = {"observation": torch.zeros(256, 1, 3)}
    for _ in range(400):
        action = torch.where(torch.rand(256, 1, 1) < 0.75, 0.7, -0.7)
        optimizer.zero_grad()
        actor.misfit(context, action, torch.rand(256, 1, 2).clamp(1e-6, 1 - 1e-6)).mean().backward()
        optimizer.step()
    made = actor.act({"observation": torch.zeros(2000, 3)}, torch.rand(2000, actor.num_draws).clamp(1e-6, 1 - 1e-6))[0]
    assert float((made > 0).float().mean()) == pytest.approx(0.75, abs=0.06)
    assert float(((made.abs() - 0.7).abs() < 0.25).float().mean()) > 0.8


@pytest.mark.parametrize("bad", [Flow(steps=0), Flow(noise=(0.4, 0.1)), Flow(noise=(0.0, 0.1)), Diffusion(steps=1)])
def test_settings_that_cannot_work_are_refused(bad: Any) -> None:
    with pytest.raises(AssayError, match="needs"):
        Policy(head=bad).build(TWO)


# ---------------------------------------------------------------------------------------------------- the record
@pytest.mark.parametrize("model", [Policy(Perceptron((8,)), Flow(3)), Policy(Perceptron((8,)), Diffusion(3))])
def test_what_is_recorded_while_gathering_is_scored_again(model: Any) -> None:
    for rollout in (Episodes(2, 2), Fragments(3, 12)):
        assert_laws(check_rollout(rollout, task=brief_pendulum(), actor=model))


def test_the_task_gets_the_end_of_the_path_and_the_record_keeps_both() -> None:
    task = pendulum()
    torch.manual_seed(1)
    actor: Any = Policy(Perceptron((8,)), Flow(3)).build(task.spec)
    assert isinstance(actor, PathActor)
    starts = np.arange(3)
    played = task.play(actor, starts, starts * 0, Draw(1), split=0, greedy=False)
    assert played.action.shape == (3, 201, 1)
    assert played.column("path").shape == (3, 201, 4, 1)
    assert torch.equal(played.action[:, :200], 2.0 * played.column("path")[:, :200, -1].clamp(-1, 1))
    again = from_columns(transitions(played))
    assert torch.allclose(actor.score(again, LOGP).logp, again.logp * again.mask, atol=1e-4)
    resumed = task.resume(actor, task.begin(starts, 0), starts * 0, Draw(1), split=0)
    assert torch.equal(resumed.column("path"), played.column("path"))


def test_a_plain_record_has_no_path_and_says_so() -> None:
    actor, task = built(Policy(Perceptron((8,)), Flow(2)), pendulum().spec).float(), pendulum()
    shown = task.demonstrate(np.arange(2), 0)
    assert "path" not in shown.extra
    with pytest.raises(AssayError, match="no column 'path'"):
        actor.score(shown, LOGP)


def test_ppo_improves_a_cloned_flow_as_it_is() -> None:
    """A few steps: the objective is ppo's own, and the gathered return rises."""
    recipe = reinflow()
    assert type(recipe.stages[0].objective[0]).__name__ == "PolicyGradient"
    loop = Loop(replace(recipe, before=(), rollout=Fragments(8, 16)), pendulum(), seed=0, num_steps=2)
    alarms = [alarm for _ in range(2) for alarm in loop.step().alarms]
    assert not [alarm for alarm in alarms if alarm.stop]


def test_flow_matching_runs_from_a_log() -> None:
    loop = Loop(flow_matching(), pendulum(), seed=0, num_steps=12)
    misfit = [loop.step().metrics["misfit"] for _ in range(12)]
    assert misfit[-1] < 0.9 * misfit[0]
    assert np.isfinite(evaluation.scores(loop.policy, pendulum(), num=2)).all()
