"""hl-gauss: the critic classifies over bins, with Gaussian labels as targets; the rest is dqn, sac or ppo.

    V = sum_i centre_i * softmax(l)_i;   loss = -sum_i p_i(y) log softmax(l)_i,  p_i(y) = N(y, (0.75 width)^2) in bin i

Farebrother et al. 2024. y is the base's own target, from decoded values. The gradient in the logits is softmax - p:
bounded however large the error is, so that noisy and nonstationary targets do less harm.
"""

from typing import Any

import torch

from assay import recipes
from assay.claims.claim import Exact, Expect, Measured, Method
from assay.core.recipe import Recipe
from assay.core.spaces import Context
from assay.methods.hl_gauss.base import hl_gauss
from assay.methods.hl_gauss.claims import tracking_error
from assay.methods.hl_gauss.fits import HlGauss, TwoHot, cross_entropy
from assay.models.heads.bins import Bins
from assay.models.heads.value import Value
from assay.models.model import Critic
from assay.recipes.defaults import CONTINUOUS, CONTROL, LANGUAGE, TABLE, Defaults

BINS = Bins(-4.0, 36.0, num=101)
CRITIC = Critic(head=Value(BINS))
TARGET = torch.linspace(0.0, 32.0, 1001, dtype=torch.float64)


def largest_gradient() -> torch.Tensor:
    """Returns the largest sum of |d loss / d logits| over targets at all distances."""
    logits = torch.linspace(-5.0, 5.0, 101, dtype=torch.float64).expand(3, 101).clone().requires_grad_()
    loss = cross_entropy(logits, torch.tensor([16.0, -4.0, 1e9], dtype=torch.float64), BINS, HlGauss())
    return torch.autograd.grad(loss.sum(), logits)[0].abs().sum(-1).max()


def error_of_mean(label: HlGauss | TwoHot) -> torch.Tensor:
    return (label(TARGET, BINS) @ BINS.centres(TARGET) - TARGET).abs().max() / BINS.width


def classified(seed: int, noise: float = 0.0) -> float:
    def loss(critic: Any, context: Context, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(critic.outputs(context), target, BINS, HlGauss())

    return tracking_error(CRITIC, loss, seed, noise)


def regressed(seed: int, noise: float = 0.0) -> float:
    return tracking_error(Critic(), lambda critic, x, y: 0.5 * (critic(x) - y).square(), seed, noise)


def classified_noisy(seed: int) -> float:
    return classified(seed, noise=2.0)


def regressed_noisy(seed: int) -> float:
    return regressed(seed, noise=2.0)


def regressing(world: Defaults = CONTROL) -> Recipe:
    """Returns the recipe whose critic is replaced, for this world."""
    base = recipes.ppo if world.tokens or world.tabular else recipes.dqn if world.discrete else recipes.sac
    return base(world)


METHOD = Method(
    paper="arXiv:2403.03950",
    recipe=hl_gauss,
    worlds=(LANGUAGE, CONTROL, CONTINUOUS, TABLE),
    default_task="cartpole",
    family="value-based",
    base=regressing,
    departures=("targets beyond the bins are clipped", "the range is a guess from the task's rewards"),
    claims=(
        Exact("the gradient in the logits is at most 2, however wrong", largest_gradient, at_most=2.0),
        Exact("a label's mean is its target within 5e-6 widths", lambda: error_of_mean(HlGauss()), at_most=5e-6),
        Exact("a two-hot label's mean is its target", lambda: error_of_mean(TwoHot()), equals=0.0, tolerance=1e-9),
        Measured("follows moving targets better than regression", "", classified, regressed,
                 expect=Expect.BELOW, seeds=5, minutes=1.0),
        Measured("follows noisy moving targets better than regression", "", classified_noisy, regressed_noisy,
                 expect=Expect.BELOW, seeds=5, minutes=1.0),
        Measured("scores higher than dqn", "cartpole", hl_gauss(CONTROL), recipes.dqn(), seeds=5, minutes=5.0),
    ),
)  # fmt: skip
