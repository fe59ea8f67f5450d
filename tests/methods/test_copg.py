"""Contrastive policy gradients: the mean over all pairs, and the optimum whoever acts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.claims import probes
from assay.claims.laws.cases import EPISODES, RAGGED, SEGMENTS, TOKENS, TORQUES, build
from assay.core.record import Scored
from assay.methods import copg
from assay.parts.objectives.regression import RegressLogRatio
from assay.recipes.presets import TABLE
from tests.methods.members import members, total

BATCHES = {"tokens": build(TOKENS, RAGGED), "segments": build(TOKENS, SEGMENTS), "torques": build(TORQUES, EPISODES)}


class Given:
    """A view with log-probabilities and nothing else."""

    def __init__(self, logp: Tensor) -> None:
        self.scored = Scored(logp)


@pytest.mark.parametrize("name", BATCHES)
def test_contrastive_loss_is_the_mean_over_all_pairs(name: str) -> None:
    batch, beta = BATCHES[name], 0.3
    logp = (batch.logp - 0.2) * batch.mask
    expected, count = 0.0, 0
    for episodes in members(batch).values():
        d = [
            total(batch.reward, batch, rows) - beta * total(logp - batch.column("logp_ref"), batch, rows)
            for rows in episodes.values()
        ]
        pairs = list(itertools.combinations(d, 2))
        if pairs:
            expected += sum((one - other) ** 2 for one, other in pairs) / len(pairs) / (4 * beta)
            count += 1
    loss = RegressLogRatio(beta)(batch, Given(logp))
    assert float(loss.sum) == pytest.approx(expected, rel=1e-10)
    assert int(loss.count) == count


def test_a_group_of_one_teaches_copg_nothing() -> None:
    alone = replace(BATCHES["tokens"], group=None)
    logp = alone.logp.clone().requires_grad_()
    loss = RegressLogRatio()(alone, Given(logp))
    (slope,) = torch.autograd.grad(loss.sum, logp)
    assert float(loss.sum.detach()) == 0.0
    assert int(loss.count) == 0
    assert not slope.any()


def test_equal_rewards_pull_copg_back_to_the_reference() -> None:
    logits = torch.tensor([1.0, -1.0])
    batch = probes.bandit_experience([0, 1], [0.4, 0.4], logits)
    reference = torch.full((2, 1), math.log(0.5)).double()
    push = probes.decision_weights(copg.recipe(beta=0.5), batch, batch.logp, logp_ref=reference)
    assert float(push[0]) < 0 < float(push[1])
    still = probes.decision_weights(copg.recipe(beta=0.5), batch, reference, logp_ref=reference)
    assert not still.any()


def test_copg_goes_to_the_optimum_whoever_acts() -> None:
    arms, uniform = probes.bandit_episodes(torch.tensor([0.0, 0.5, 1.0])), torch.zeros(1, 3)
    target = probes.posterior(arms, uniform, 0.5).logp
    for behaviour in (torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[2.0, 0.0, -1.0]])):
        table = probes.trained_table(
            copg.recipe(TABLE, 0.5), arms, uniform, steps=200, members=16, behaviour_SA=behaviour
        )
        assert float(probes.divergence(arms.logp(table), target)) < 1e-3
