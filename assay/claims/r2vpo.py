"""The formulas behind r2vpo's exact claims. Axes: B sequences, T decisions, A actions."""

import math
from functools import partial

import torch
from torch import Tensor

from assay.claims import ALONE, About, Area, Average, Claims, Edit, Exact, Expect, Measured, by_hand, probes
from assay.claims import same_gradient
from assay.method import CONTINUOUS, PLACES, Experience, Recipe, recipes
from assay.methods.r2vpo import FIXED, VARIANCE, FollowVariance, RatioVariance, recipe

SPREAD = partial(probes.sequences, spread=2.0)


def loss_by_hand(seen: probes.Seen, weight: float = 1.0) -> Tensor:
    """Returns the loss of tokens with a multiplier `weight`."""
    data, ratio = seen.experience, by_hand.ratio(seen)
    gain = ratio * by_hand.standardised(data).unsqueeze(1) - weight * (ratio - 1) ** 2
    return -by_hand.mean_of_decisions(gain, data)


def losses_of_torques(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses of networks on continuous actions: Gaussian policy, value."""
    return by_hand.ppo_of_torques(seen, lambda ratio, ahead: ratio * ahead - (ratio - 1) ** 2)


def brake(ours: Recipe, ratio: float, advantage: float) -> Tensor:
    """Returns the coefficient of grad log pi of one decision with this ratio."""
    data = probes.outcomes(0.0)
    data = ours.credit[-1](data.add({"advantage": data.reward + advantage}))
    return -probes.slopes(ours, data, data.logp + math.log(ratio)).squeeze()


def moved(ours: Recipe, variance: float) -> float:
    """Returns the multiplier after the first step, in which the ratios had this variance."""
    part = ours.credit[-1]
    assert isinstance(part, FollowVariance)
    state = part.init(ALONE)
    part.updated({VARIANCE: variance}, state)
    return float(state["multiplier"])


def followed_gap(ours: Recipe, data: Experience) -> float:
    """Returns how far the logged variance is from its formula where log-probabilities moved by up to 0.3."""
    data = ours.credit[-1](data.add({"advantage": data.reward}))
    logp = data.logp + 0.3 * torch.sin(torch.arange(data.logp.numel())).reshape(data.logp.shape)
    total, count = probes.loss(ours, data, logp).metrics[VARIANCE]
    expected = ((logp - data.logp).exp() - 1.0).square()[data.mask].mean()
    return abs(float(total / count - expected))


CLAIMS = Claims(
    claims=(
        same_gradient("with tokens its gradient is the formula's", recipe, loss_by_hand, SPREAD),
        same_gradient("with torques its gradient is that of a Gaussian", partial(recipe, CONTINUOUS), losses_of_torques,
                      partial(probes.transitions, num=64), probes.BOX_SPEC),
        same_gradient("with multiplier 0 its gradient is the unclipped ratio's", partial(recipe, start=0.0),
                      partial(loss_by_hand, weight=0.0), SPREAD),
        Exact("the brake reverses: its coefficient is -3 at ratio 3, advantage 1, multiplier 1/2",
              lambda: brake(FIXED(start=0.5), 3.0, 1.0), equals=-3.0, of="r2vpo-fixed"),
        Exact("the brake pulls back a decision that moved against its advantage: 0.75 at ratio 1/2",
              lambda: brake(FIXED(start=0.5), 0.5, 1.0), equals=0.75, of="r2vpo-fixed"),
        Exact("the multiplier 1 becomes 3 after a step with five times the target, at the shipped rate",
              lambda: moved(recipe(), 0.05), equals=3.0),
        Exact("the variance that is followed is the mean square of ratio - 1 over decisions",
              lambda: followed_gap(recipe(), SPREAD()), at_most=1e-6),
        Measured("with eight passes over a batch the variance is held within a fifth of a target of 0.002, mean over "
                 "the second half", "levels", recipe(PLACES, target=0.002).set("epochs", 8), 0.002,
                 Average("ratio_variance", 0.5), Expect.WITHIN, margin=0.0004, minutes=6.0, steps=50, looks=2,
                 about=About.MECHANISM),
        Measured("it learns faster than grpo when every batch is used eight times: mean pass rate", "levels",
                 recipe(PLACES).set("epochs", 8), recipes.grpo(PLACES).set("epochs", 8), Area("pass_rate"), seeds=10,
                 minutes=6.0, steps=50, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("around the mean", RatioVariance.__call__, "bounded_ratio(moved) - 1.0",
             "bounded_ratio(moved) - bounded_ratio(moved).mean().detach()"),
        Edit("the log ratio", RatioVariance.__call__, "(bounded_ratio(moved) - 1.0).square()", "moved.square()"),
        Edit("the multiplier stays", FollowVariance.updated, "if VARIANCE in metrics", "if VARIANCE not in metrics"),
        Edit("less where there is more", FollowVariance.updated, "metrics[VARIANCE] / self.target, 1.0",
             "1.0, metrics[VARIANCE] / self.target"),
        Edit("twice the target", FollowVariance.updated, "/ self.target, 1.0", "/ self.target, 2.0"),
    ),
)
