"""Entropy of some decisions: values worked out by hand. Axes: B rows, T decisions."""

from __future__ import annotations

import math

import pytest
import torch

from assay.claims.probes import bandit_experience
from assay.core.record import Scored
from assay.ops.logits import likeliest, nucleus_entropy
from assay.parts.regularizers.entropy import MaskedEntropy, above_quantile, mean_above


class Seen:
    """A view that holds the actor's scores alone."""

    def __init__(self, scored: Scored) -> None:
        self.scored = scored


def logp(*prob: float) -> torch.Tensor:
    return torch.tensor(prob, dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("prob", "crossing", "entropy"),
    [
        ((0.5, 0.25, 0.15, 0.07, 0.03), False, 0.636514),
        ((0.03, 0.25, 0.15, 0.07, 0.5), True, 0.980990),
        ((0.3, 0.3, 0.2, 0.1, 0.1), False, math.log(2.0)),
        ((0.3, 0.3, 0.2, 0.1, 0.1), True, 1.082196),
        ((0.9, 0.05, 0.05), False, 0.0),
        ((0.9, 0.05, 0.05), True, 0.0),
    ],
)
def test_the_nucleus_of_four_fifths(prob: tuple[float, ...], crossing: bool, entropy: float) -> None:
    assert float(nucleus_entropy(logp(*prob), 0.8, crossing)) == pytest.approx(entropy, abs=1e-6)


def test_the_tail_behind_the_nucleus_has_no_gradient() -> None:
    logits = logp(0.5, 0.25, 0.15, 0.07, 0.03).requires_grad_()
    (slope,) = torch.autograd.grad(nucleus_entropy(logits.log_softmax(-1), 0.8), logits)
    assert slope.tolist() == pytest.approx([-0.154033, 0.154033, 0.0, 0.0, 0.0], abs=1e-6)


def test_likely_actions_come_with_their_log_probabilities() -> None:
    found = likeliest(logp(0.2, 0.5, 0.3).unsqueeze(0), 2)
    assert found[0, :, 0].tolist() == [1.0, 2.0]
    assert found[0, :, 1].exp().tolist() == pytest.approx([0.5, 0.3])
    assert likeliest(torch.zeros(1, 300, dtype=torch.bfloat16), 300)[0, :, 0].unique().numel() == 300


def test_decisions_above_the_quantile_of_their_own_row() -> None:
    value = torch.tensor([[1.0, 5.0, 3.0, 4.0, 2.0, 9.0], [7.0, 7.0, 7.0, 0.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]).bool()
    # 0.8 of the way from 1 to 5 is between 4 and 5: only 5 is above; equal values have none above.
    assert above_quantile(value, mask, 0.8).nonzero().tolist() == [[0, 1]]
    assert above_quantile(value, mask, 0.5).nonzero().tolist() == [[0, 1], [0, 3]]
    assert torch.equal(above_quantile(value, mask, 0.0), mask)
    assert mean_above(value, mask, 0.5).tolist() == [4.5, 0.0]


@pytest.mark.parametrize(("prob", "slope"), [(0.9, -0.89464), (1 / math.e, 0.0), (0.1, 1.302585)])
def test_the_estimate_at_the_sampled_token_has_slope_minus_log_p_minus_one(prob: float, slope: float) -> None:
    data = bandit_experience([0], [0.0], logp(prob, 1 - prob))
    now = data.logp.clone().requires_grad_()
    estimate = MaskedEntropy(mass=None).entropy(data, Scored(now))
    assert float(torch.autograd.grad(estimate.sum(), now)[0]) == pytest.approx(slope, abs=1e-5)


def test_the_mean_gradient_of_the_estimate_is_that_of_the_entropy() -> None:
    chance, total = logp(0.7, 0.2, 0.1).exp(), torch.zeros(3, dtype=torch.float64)
    for arm in range(3):
        data, logits = bandit_experience([arm], [0.0], chance.log()), chance.log().requires_grad_()
        estimate = MaskedEntropy(mass=None).entropy(data, Scored(logits.log_softmax(-1)[arm].view(1, 1)))
        total += chance[arm] * torch.autograd.grad(estimate.sum(), logits)[0]
    assert total.tolist() == pytest.approx([-0.31160, 0.16152, 0.15008], abs=1e-5)


def test_rows_are_weighed_and_counted_once() -> None:
    data = bandit_experience([0, 1], [0.0, 0.0], logp(0.5, 0.5)).add({"entropy_weight": torch.tensor([2.0, -3.0])})
    candidates = torch.stack((logp(0.5, 0.4, 0.1), logp(0.4, 0.3, 0.3))).unsqueeze(1)
    loss = MaskedEntropy(0.5, 0.95, peak=0.0)(data, Seen(Scored(data.logp, candidates=candidates)))
    first, second = (-sum(q * math.log(q) for q in some) for some in ((5 / 9, 4 / 9), (4 / 7, 3 / 7)))
    assert float(loss.sum) == pytest.approx(0.5 * (2 * first - 3 * second))
    assert int(loss.count) == 2
    assert float(loss.metrics["masked_entropy"][0]) == pytest.approx(first + second)
