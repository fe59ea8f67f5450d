"""Claims of nft: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from dataclasses import replace

import torch

from assay.claims import About, Claims, Edit, Exact, Final, Measured, by_hand, probes
from assay.method import BIGRAMS
from assay.methods.nft import NegativeAware, recipe

DATA = probes.sequences(num=24, spread=2.0)


SCORE = torch.tensor([1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0]).unsqueeze(1)


DATA = replace(DATA, reward=torch.where(DATA.mask, SCORE * (DATA.terminal | DATA.truncated), DATA.reward))
"""Six prompts; pass rates 1/4, 3/4 (scores -1 and 0), 1/2, all right, all wrong, and 2/3 where one row is empty."""


def loss_by_hand(seen: probes.Seen, negative: float = 1.0) -> torch.Tensor:
    data, ratio = seen.experience, by_hand.ratio(seen)
    right = by_hand.in_groups(by_hand.outcome(data), data, lambda one: (one > one.mean()).double())
    rate = by_hand.in_groups(right, data, lambda one: one.mean().expand_as(one)).clamp(1e-9, 1 - 1e-9).unsqueeze(1)
    wrong = (1 - rate * ratio) / (1 - rate)
    # The logarithm of at least 1, with the slope of the plain logarithm at the clipped point.
    slope = negative * wrong / wrong.detach().clamp(min=1.0)
    gain = ((1 - rate) / rate).sqrt() * torch.where(right.unsqueeze(1) > 0, ratio.log(), slope)
    return -by_hand.mean_of_decisions(torch.where((rate > 0.01) & (rate < 0.99), gain, 0.0), data)


def graded_by_hand(seen: probes.Seen) -> torch.Tensor:
    """The odds of a graded outcome are the square of its advantage."""
    data, ratio = seen.experience, by_hand.ratio(seen)
    centred = by_hand.centred(data)
    spread = by_hand.in_groups(centred, data, lambda one: one.square().mean().sqrt().expand_as(one))
    advantage = (centred / spread.clamp(min=1e-9)).unsqueeze(1)
    rest = 1 + advantage.square() * (1 - ratio)
    size = torch.where(advantage == 0, 1.0, advantage.abs())
    gain = torch.where(advantage > 0, advantage * ratio.log(), rest / rest.detach().clamp(min=1.0) / size)
    return -by_hand.mean_of_decisions(torch.where(advantage != 0, gain, 0.0), data)


def gap() -> float:
    """Returns the larger gap of outcomes of two values, and of graded ones."""
    two_values = probes.formula_gap(recipe(), (lambda: DATA, probes.signed, probes.binary), loss_by_hand)
    return max(two_values, probes.formula_gap(recipe(), probes.graded(), graded_by_hand))


CLAIMS = Claims(
    claims=(
        Exact(
            "off-policy its gradient is the formula's",
            gap,
            at_most=1e-9,
        ),
        Measured(
            "where prompts share parameters it is right more often than learning from right answers alone",
            "many-ways:rare=0", recipe(BIGRAMS), recipe(BIGRAMS, negative=0.0), Final("pass_rate"), seeds=5,
            minutes=10.0, steps=100, looks=4, about=About.HEADLINE,
        ),
    ),
    mutants=(
        Edit("the floor cuts the gradient", NegativeAware.__call__,
             "torch.log1p(held) + (gain - gain.detach()) / (1.0 + held)", "torch.log1p(gain.clamp(min=least))"),
        Edit("grpo's loss for wrong answers", NegativeAware.__call__,
             "/ odds * log_negative", "* (1.0 - bounded_ratio(log_ratio))"),
        Edit("importance weights for right answers", NegativeAware.__call__,
             "-advantage * log_ratio", "-advantage * bounded_ratio(log_ratio)"),
        Edit("odds without a square", NegativeAware.__call__, "self.odds(size)", "size"),
    ),
)
