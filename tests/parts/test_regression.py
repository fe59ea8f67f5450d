"""The regression of log-ratios, against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from assay.claims import probes
from assay.core.record import Scored
from assay.parts.objectives.regression import RegressLogRatio

MOVED = torch.tensor([[0.3], [-0.2], [0.0], [0.1]]).double()


class Given:
    """A view with log-probabilities and nothing else."""

    def __init__(self, logp: torch.Tensor) -> None:
        self.scored = Scored(logp)


@pytest.mark.parametrize(
    ("pairs", "residual"),
    [
        (False, [0.35, -0.4, 0.5, -0.55]),  # R - 1/2 - s / 2
        (True, [0.375, -0.375, 0.525, -0.525]),  # the same minus its mean, -0.025
    ],
)
def test_residuals_are_centred_as_stated(pairs: bool, residual: list[float]) -> None:
    data = probes.bandit_experience([0] * 4, [1.0, 0.0, 1.0, 0.0], torch.zeros(2))
    logp = (data.logp + MOVED).requires_grad_()
    loss = RegressLogRatio(0.5, reference=False, pairs=pairs)(data, Given(logp))
    size = 3 if pairs else 4
    assert float(loss.sum.detach()) == pytest.approx(sum(one**2 for one in residual) / size, rel=1e-6)
    (slope,) = torch.autograd.grad(loss.sum, logp)
    assert (-slope.squeeze(1) * size).tolist() == pytest.approx(residual, rel=1e-6)
    assert int(loss.count) == 1


def test_the_reference_takes_the_place_of_the_acting_policy() -> None:
    data = probes.bandit_experience([0] * 4, [1.0, 0.0, 1.0, 0.0], torch.zeros(2))
    far = data.add({"logp_ref": data.logp - MOVED})
    mine, theirs = (
        RegressLogRatio(0.5, reference=reference, pairs=False)(batch, Given(logp)).sum
        for reference, batch, logp in ((True, far, data.logp), (False, data, data.logp + MOVED))
    )
    assert float(mine) == pytest.approx(float(theirs))
