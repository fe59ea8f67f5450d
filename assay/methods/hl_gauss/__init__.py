"""hl-gauss: the critic classifies over bins, with Gaussian labels as targets; the rest is dqn, sac or ppo.

    V = sum_i centre_i * softmax(l)_i;   loss = -sum_i p_i(y) log softmax(l)_i,  p_i(y) = N(y, (0.75 width)^2) in bin i

Farebrother et al. 2024. y is the base's own target, from decoded values. The gradient in the logits is softmax - p:
bounded however large the error is, so that noisy and nonstationary targets do less harm.
"""

from typing import Any

import torch

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.core.spaces import Context
from assay.methods.hl_gauss.base import hl_gauss
from assay.methods.hl_gauss.claims import (
    dqn_by_hand,
    error_of_mean,
    loud,
    loud_sequences,
    ppo_by_hand,
    sac_by_hand,
    tracking_error,
)
from assay.methods.hl_gauss.fits import CrossEntropy, HlGauss, cross_entropy
from assay.models.heads.bins import Bins
from assay.models.heads.value import Value
from assay.models.model import Critic
from assay.recipes.defaults import CONTINUOUS, CONTROL, LANGUAGE, TABLE, Defaults

BINS = Bins(-4.0, 36.0, num=101)
CRITIC = Critic(head=Value(BINS))


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
    worlds=(CONTROL, CONTINUOUS, LANGUAGE, TABLE),
    default_task="cartpole",
    family="value-based",
    base=regressing,
    departures=(
        "targets beyond the bins are clipped, and a guard reports more than a fifth of them",
        "ranges: +-110 (rewards within 1), +-1800 (the pendulum), +-1.5 (outcomes); else set bins.low, bins.high",
    ),
    mutants=(
        Edit("two-hot labels", CrossEntropy.__call__, "self.label)", "TwoHot())"),
        Edit("labels half as wide", CrossEntropy.__call__, "self.label)", "HlGauss(0.375))"),
        Edit("the bins of outcomes everywhere", hl_gauss, "reach or 110.0)", "1.5)"),
    ),
    claims=(
        Exact("dqn: its gradient is that of the formula", lambda: probes.formula_gap(
              hl_gauss(CONTROL), loud(probes.CHOICE_SPEC, 100.0), dqn_by_hand, probes.CHOICE_SPEC), at_most=1e-9),
        Exact("sac: its gradients are those of the formulas", lambda: probes.formula_gap(
              hl_gauss(CONTINUOUS), loud(probes.BOX_SPEC, 1500.0), sac_by_hand, probes.BOX_SPEC), at_most=1e-6),
        Exact("ppo: its critic's gradient is that of the formula", lambda: probes.formula_gap(
              hl_gauss(TABLE), loud_sequences(), ppo_by_hand), at_most=1e-9),
        Exact("a label's mean is its target within 5e-6 widths", error_of_mean, at_most=5e-6),
        Measured("follows moving targets better than regression", "", classified, regressed,
                 expect=Expect.BELOW, seeds=5, minutes=1.0),
        Measured("follows noisy moving targets better than regression", "", classified_noisy, regressed_noisy,
                 expect=Expect.BELOW, seeds=5, minutes=4.0, looks=4),
        Measured("scores higher than dqn", "cartpole", hl_gauss(CONTROL), recipes.dqn(), seeds=5, minutes=5.0),
    ),
)  # fmt: skip
