"""Mirror descent: its gradient, its proximity, its step size, and the closed form it converges to."""

from __future__ import annotations

import math

import pytest
import torch

from assay.core.record import Progress
from assay.engine.loop import Loop
from assay.methods.mdpo import MirrorDescent
from assay.parts.objectives.trust import NoTrust
from assay.recipes.presets import CONTINUOUS
from assay.runs import catalogue


def test_mirror_descent_is_reinforce_at_ratio_one_and_pulls_back_elsewhere() -> None:
    logp = torch.tensor([[-1.0, -2.0, -0.5]], dtype=torch.float64).requires_grad_()
    advantage = torch.tensor([[1.0, -2.0, 0.0]], dtype=torch.float64)
    slopes = [
        torch.autograd.grad(trust(logp - logp.detach(), advantage, logp)[0].sum(), logp)[0]
        for trust in (MirrorDescent(0.3), NoTrust())
    ]
    torch.testing.assert_close(*slopes)
    loss, _ = MirrorDescent(0.5)(logp - logp.detach() + 0.4, torch.zeros_like(advantage), logp)
    (slope,) = torch.autograd.grad(loss.sum(), logp)
    torch.testing.assert_close(slope, torch.full_like(slope, math.exp(0.4) * 0.4 / 0.5))


def test_the_proximity_of_gaussians_is_their_kl() -> None:
    """Averaged over the acting policy by quadrature: the same part, for torques."""
    action = torch.linspace(-14.0, 14.0, 40001, dtype=torch.float64)
    old, new = torch.distributions.Normal(0.3, 1.1), torch.distributions.Normal(-0.4, 0.8)
    log_ratio = new.log_prob(action) - old.log_prob(action)
    loss, cut = MirrorDescent(1.0)(log_ratio, torch.zeros_like(action), new.log_prob(action))
    found = torch.trapezoid(loss * old.log_prob(action).exp(), action)
    assert float(found) == pytest.approx(float(torch.distributions.kl_divergence(new, old)), abs=1e-6)
    assert bool((loss >= 0).all())
    assert not bool(cut.any())


def test_mirror_descent_steps_converge_to_the_closed_form() -> None:
    old, advantage = torch.tensor([0.2, -0.3, 0.5]).double(), torch.tensor([1.0, -1.0, 0.3]).double()
    logits, prob_old = old.clone().requires_grad_(), old.softmax(-1)
    for _ in range(3000):
        log_ratio = logits.log_softmax(-1) - old.log_softmax(-1)
        loss, _ = MirrorDescent(0.7)(log_ratio, advantage, logits.log_softmax(-1))
        (slope,) = torch.autograd.grad((prob_old * loss).sum(), logits)
        logits = (logits - 0.5 * slope).detach().requires_grad_()
    torch.testing.assert_close(logits.softmax(-1), (old + 0.7 * advantage).softmax(-1), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "bandit", "addition-1"])
def test_the_step_size_falls_from_one_to_one_over_the_number_of_steps(name: str) -> None:
    recipe = catalogue.recipe_for("mdpo", catalogue.find_task(name), {})
    at = [recipe.at(Progress(step=step, num_steps=4)).stages[0].objective[0].trust.step_size for step in range(4)]
    assert at == pytest.approx([1.0, 0.75, 0.5, 0.25])


def test_the_off_policy_variant_starts_at_the_old_policy_and_trains() -> None:
    """Before the first update the policy is the old one: the KL is 0."""
    recipe = catalogue.find_method("mdpo:off-policy")[1].recipe(CONTINUOUS)
    small = recipe.set("source.warmup", 8).set("source.updates", 1).set("source.batch", 8)
    loop = Loop(small, catalogue.find_task("pendulum"), seed=0, num_steps=2)
    found = [loop.step().metrics for _ in range(2)]
    assert found[0]["kl_old"] == pytest.approx(0.0, abs=1e-3)
    assert torch.isfinite(loop.engine.flats["actor"].values).all()
