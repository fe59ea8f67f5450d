"""Diffusion policies and safety by reachability: against slow references."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.metrics import watched_in
from assay.core.record import Experience
from assay.core.slots import Scene
from assay.datasets.recorded import Recorded, with_data
from assay.engine import evaluation
from assay.engine.loop import Loop
from assay.methods.fisor import BestOf, Feasible, WithCosts, WorstToCome, least_harm
from assay.methods.fisor import recipe as fisor
from assay.models.bodies.perceptron import Perceptron
from assay.models.heads.diffusion import Diffusion, alphas
from assay.models.model import Policy
from assay.parts.critics.td import Td
from assay.parts.fits.squared import Expectile
from assay.parts.predictions import OfState
from assay.parts.sources.logged import Log, Logged
from assay.parts.targets.recorded import RecordedAction
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.steered import avoidable, steered_hazards
from tests.methods.generative import built, seen, uniform


# ---------------------------------------------------------------------------------------------------- diffusion
@torch.no_grad()
def test_diffusion_path_is_ddpm_step_by_step() -> None:
    actor, context = built(Policy(Perceptron((8,)), Diffusion(4))), seen(1)
    draws = uniform(1, actor.num_draws)
    noise = torch.special.ndtri(draws).view(4, 2)
    action, logp, path = actor.walk(context, draws)
    alpha, point = alphas(4), noise[0]
    total = float(torch.distributions.Normal(0.0, 1.0).log_prob(point).sum())
    for k in (4, 3, 2, 1):
        bar = alpha[:k].prod()
        guess = actor.noise((), context["observation"][0], actor.times[4 - k], point)
        mean = ((point - (1 - alpha[k - 1]) / (1 - bar).sqrt() * guess) / alpha[k - 1].sqrt()).clamp(-1, 1)
        if k == 1:
            point = mean
            break
        std = (1 - alpha[k - 1]).sqrt()
        point = mean + std * noise[5 - k]
        total += float(torch.distributions.Normal(mean, std).log_prob(point).sum())
        assert torch.allclose(path[0, 5 - k], point, atol=1e-6)
    assert torch.allclose(action[0], actor.centre + actor.half_range * point, atol=1e-6)
    assert float(logp) == pytest.approx(total, abs=1e-5)


def test_weighted_denoising_is_denoising_of_resampled_data() -> None:
    """Pointwise: the minimiser over e of sum_a q(a) w(a) p(x|a) |e - noise(x, a)|^2 is the posterior mean under q w."""
    actions, q, w = (
        torch.tensor([-0.8, 0.1, 0.9]).double(),
        torch.tensor([0.5, 0.3, 0.2]),
        torch.tensor([0.0, 2.0, 7.0]),
    )
    total, point = 0.3, torch.linspace(-2, 2, 9).double()
    noise = (point[:, None] - total**0.5 * actions) / (1 - total) ** 0.5
    chance = (-0.5 * noise.square()).exp()

    def minimiser(share: Tensor) -> Tensor:
        return (share * chance * noise).sum(1) / (share * chance).sum(1)

    resampled = q * w / (q * w).sum()
    guess = minimiser(q * w).clone().requires_grad_()
    loss = (q * w * chance * (guess[:, None] - noise).square()).sum()
    (slope,) = torch.autograd.grad(loss, guess)
    assert float(slope.abs().max()) < 1e-12
    assert torch.allclose(minimiser(q * w), minimiser(resampled))
    assert torch.allclose(minimiser(5.0 * q * w), minimiser(q * w))


# ---------------------------------------------------------------------------------------------------- reachability
def two_columns(cost: list[float] | None, terminal: bool = False, truncated: bool = False) -> Experience:
    num = 3 if cost is None else len(cost)
    mask = torch.tensor([[True, False]]).expand(num, 2)
    flags = [torch.tensor([[flag, False]]).expand(num, 2) for flag in (terminal, truncated)]
    given = None if cost is None else torch.tensor(cost).double().view(num, 1, 1).expand(num, 2, 1)
    observation = torch.randn(num, 2, 3, generator=torch.Generator().manual_seed(0)).double()
    nothing = torch.zeros(num, 2).double()
    action = torch.zeros(num, 2, 2).double()
    return Experience({"observation": observation}, action, mask, nothing, nothing, *flags, cost=given)


def test_worst_to_come_by_hand() -> None:
    part, after = WorstToCome(0.9, harm=5.0), torch.tensor([[2.0], [-0.5], [9.0]]).double()
    batch = two_columns([0.0, 0.0, 1.0]).columns(0, 1)
    # -0.1 + 0.9 * 2;  -0.1 - 0.9 * 0.5;  0.5 + 0.9 * 9
    assert part.backed_up(batch, after).squeeze(1).tolist() == pytest.approx([1.7, -0.55, 8.6])
    ended = two_columns([0.0, 0.0, 1.0], terminal=True).columns(0, 1)
    assert part.backed_up(ended, after).squeeze(1).tolist() == [-1.0, -1.0, 5.0]
    cut = two_columns([0.0, 0.0, 1.0], truncated=True).columns(0, 1)
    assert torch.equal(part.backed_up(cut, after), part.backed_up(batch, after))
    assert part.backed_up(two_columns(None).columns(0, 1), -after.abs()).max() < 0


def expectile(level: float) -> Td:
    return Td(RecordedAction(), Expectile(level), OfState())


def fitted(loss: Any, samples: Tensor) -> float:
    """The value that minimises the loss on samples of Q [1, B, 1], by bisection on its gradient."""
    low, high = float(samples.min()), float(samples.max())
    for _ in range(60):
        middle = torch.tensor((low + high) / 2, dtype=torch.float64, requires_grad=True)
        batch, values = two_columns([0.0] * samples.shape[1]), middle.expand(*samples.shape[1:])
        (slope,) = torch.autograd.grad(loss(batch, judged(values, samples)).sum, middle)
        low, high = (low, float(middle.detach())) if slope > 0 else (float(middle.detach()), high)
    return low


def judged(value: Tensor, q: Tensor) -> Named:
    """Values of states and actions, of reward and of harm alike."""
    states, actions = dict.fromkeys(("value", "harm"), lambda context: value), ("q_target", "harm_q_target")
    return Named({**states, **dict.fromkeys(actions, lambda context, action: q)})


class Named:
    """A view of functions."""

    def __init__(self, models: dict[str, Any]) -> None:
        self.models = models

    def model(self, name: str) -> Any:
        return self.models[name]


def test_expectiles_reversed_and_in_the_limit() -> None:
    x = torch.randn(1, 40, 1, generator=torch.Generator().manual_seed(4)).double()
    low = fitted(least_harm(0.8), x)
    side = torch.where(x < low, 0.8, 0.2)
    assert float((side * (x - low)).sum()) == pytest.approx(0.0, abs=1e-9)
    assert low == pytest.approx(fitted(expectile(0.2), x))
    assert low == pytest.approx(-fitted(expectile(0.8), -x))
    assert fitted(least_harm(0.5), x) == pytest.approx(float(x.mean()))
    assert fitted(least_harm(1 - 1e-7), x) == pytest.approx(float(x.min()), abs=1e-3)


def test_twins_are_read_pessimistically() -> None:
    """Low values of reward, high values of harm."""
    view = judged(torch.zeros(1, 1).double(), torch.tensor([[[1.0]], [[3.0]]]).double())
    assert float(expectile(0.9)(two_columns([0.0]), view).sum) == pytest.approx(0.9)
    assert float(least_harm(0.9)(two_columns([0.0]), view).sum) == pytest.approx(0.1 * 9.0)


def test_weights_of_feasible_and_infeasible_decisions() -> None:
    harm, harm_q = torch.tensor([[-0.5, -0.5, 2.0]]), torch.tensor([[[-0.2, 0.3, 2.4]], [[-0.3, -1.0, 0.0]]])
    value, q = torch.zeros(1, 3), torch.tensor([[[0.1, 5.0, 5.0]], [[0.4, 9.0, 9.0]]])
    models = {
        "harm": lambda context: harm,
        "harm_q_target": lambda context, action: harm_q,
        "value": lambda context: value,
        "q_target": lambda context, action: q,
    }
    batch = two_columns([0.0])
    weights = Feasible(3.0, 5.0)(batch, Named(models))  # type: ignore[arg-type]
    assert weights[0].tolist() == pytest.approx([math.exp(0.3), 0.0, math.exp(5.0 * (2.0 - 2.4))])
    models["harm"] = lambda context: torch.full_like(harm, -1.0)
    models["harm_q_target"] = lambda context, action: torch.full_like(harm_q, -1.0)
    free = Feasible(3.0, 5.0)(batch, Named(models))  # type: ignore[arg-type]
    assert free[0].tolist() == pytest.approx([math.exp(0.3), 100.0, 100.0])


def test_the_safest_candidate_acts() -> None:
    actor = built(Policy(Perceptron((8,)), Diffusion(3))).float()

    def critic(context: Any, action: Tensor) -> Tensor:
        return action.sum(-1).expand(2, len(action))

    models = {"actor": actor, "q_target": critic}
    context = {name: value.float() for name, value in seen(4).items()}
    lowest, highest = (BestOf(8, lowest=lowest).around(models).act(context, None)[0].sum(1) for lowest in (True, False))
    one, content = BestOf(1).around(models), BestOf(8, lowest=True, enough=100.0).around(models)
    eight = uniform(4, 8 * one.num_draws).float()
    assert torch.allclose(content.act(context, eight)[0], actor.act(context, eight[:, : one.num_draws])[0], atol=1e-5)
    assert bool((lowest <= highest).all())
    assert bool((lowest < highest).any())
    numbers = uniform(4, one.num_draws).float()
    assert torch.equal(one.act(context, numbers)[0], actor.act(context, numbers)[0])


def test_data_without_costs_are_refused_and_the_message_names_the_column() -> None:
    with pytest.raises(AssayError, match="no column 'cost'"):
        Logged((Log(1),), condition=WithCosts()).init(Scene(pendulum()))


def test_a_wrapper_that_reads_a_missing_model_is_refused() -> None:
    with pytest.raises(AssayError, match="wrapper reads 'nobody'"):
        replace(fisor(), wrapper=BestOf(critic="nobody")).check()


# ---------------------------------------------------------------------------------------------------- steered hazards
def test_careful_and_reckless_logs_differ_in_cost_alone() -> None:
    task = steered_hazards()
    careful, reckless = (Log(30, noise=0.1, reckless=which).columns(task) for which in (False, True))
    assert float(careful["cost"].sum()) == 0.0
    assert float(reckless["cost"].sum()) > 30.0
    assert len(reckless["mask"]) < len(careful["mask"])  # the straight way is shorter
    plain, same = (Log(2, noise=0.5, reckless=which).columns(pendulum()) for which in (False, True))
    assert torch.equal(plain["action"], same["action"])


def test_avoidable_is_true_where_a_point_rests_outside_and_false_where_it_flies_in() -> None:
    state = np.array([[-0.8, 0.0, 0.0, 0.0], [-0.3, 0.0, 0.2, 0.0], [0.0, 0.0, 0.0, 0.0], [-0.3, 0.0, -0.2, 0.0]]).T
    assert avoidable(state).tolist() == [True, False, False, True]


def test_fisor_trains_from_a_log_and_hands_out_the_chooser() -> None:
    task = steered_hazards()
    loop = Loop(replace(fisor(), source=Logged((Log(5, 0.4), Log(5, 0.4, first=1000, reckless=True)), 16, 2)), task,
                seed=0, num_steps=3)  # fmt: skip
    alarms = [alarm for _ in range(3) for alarm in loop.step().alarms]
    assert not [alarm for alarm in alarms if alarm.stop]
    scores, costs = evaluation.outcomes(loop.policy, task, num=3)
    assert np.isfinite(scores).all()
    assert costs["evaluation_cost"] >= 0.0


def test_weights_at_a_limit_and_those_that_are_none_are_reported_and_watched() -> None:
    shares = Feasible().shares(torch.tensor([[0.0, 5e-4, 1.0, 100.0, 150.0]]))
    assert shares["lost_weights"].tolist() == [[True, True, False, False, False]]
    assert shares["clipped_weights"].tolist() == [[False, False, False, True, True]]
    recipe = fisor().set("source.batch", 8).set("source.updates", 1)
    recipe = replace(recipe, source=replace(recipe.source, logs=(Log(2, noise=0.4), Log(2, noise=0.4, first=9))))
    metrics = Loop(recipe, steered_hazards(), seed=0, num_steps=1).step().metrics
    assert {"clipped_weights", "lost_weights"} <= set(metrics)
    assert {"clipped_weights", "lost_weights"} <= set(watched_in(fisor()))


def test_one_file_stands_for_both_halves_of_the_data() -> None:
    """Cautious and careless episodes are not told apart, so a user's data are one file."""
    recipe = with_data(fisor(), (Recorded("costs.npz"),))
    assert [log.path for log in recipe.source.logs] == ["costs.npz"]
    assert recipe.source.batch == 2 * fisor().source.batch
    with pytest.raises(AssayError, match="learns from 2 datasets"):
        with_data(fisor(), tuple(Recorded(f"{place}.npz") for place in range(3)))
