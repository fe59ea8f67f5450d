"""Negative-aware training against the formula of the paper."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.claims import probes
from assay.core.record import Experience
from assay.methods import nft
from assay.methods.nft import NegativeAware, PopulationDeviation, odds_of_centred, odds_of_scaled
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from tests.methods.batches import ragged, slope_of


def nft_slopes_by_hand(batch: Experience, logp: Tensor, floor: float, centred: bool) -> Tensor:
    """-d loss / d logp of a sum over tokens, prompt by prompt and token by token, from the paper's formula."""
    assert batch.group is not None
    outcome, result = (batch.reward * batch.mask).sum(1), torch.zeros_like(logp)
    for row in range(len(batch)):
        members = [r for r in range(len(batch)) if batch.group[r] == batch.group[row] and bool(batch.mask[r].any())]
        rate = sum(float(outcome[r]) for r in members) / max(1, len(members))
        if not members or rate in (0.0, 1.0):
            continue
        weight = 1 - rate if centred else math.sqrt((1 - rate) / rate)
        for time in batch.mask[row].nonzero().squeeze(1).tolist():
            ratio = math.exp(float(logp[row, time] - batch.logp[row, time]))
            if float(outcome[row]) > 0:
                result[row, time] = weight
            else:
                implicit = max((1 - rate * ratio) / (1 - rate), floor)
                result[row, time] = -weight * rate / (1 - rate) * ratio / implicit
    return result


@pytest.mark.parametrize("floor", [1.0, 0.3])
@pytest.mark.parametrize("centred", [False, True])
def test_negative_aware_is_the_formula_of_the_paper(floor: float, centred: bool) -> None:
    batch = ragged()
    logp = (batch.logp + 0.4 * torch.sin(torch.arange(batch.mask.numel()).double().view_as(batch.logp))) * batch.mask
    credit = OutcomeCredit(GroupMean()) if centred else OutcomeCredit(GroupMean(), PopulationDeviation())
    trust = NegativeAware(odds_of_centred if centred else odds_of_scaled, floor)
    base = nft.recipe()
    objective = replace(base.stages[0].objective[0], trust=trust)  # type: ignore[type-var, call-arg]
    base = replace(base, credit=(credit,), stages=(replace(base.stages[0], objective=(objective,)),))
    bare = replace(batch, extra={})  # as it comes from a rollout: the credit is the recipe's
    weights = probes.decision_weights(base, bare, logp) * int(batch.mask.sum())
    assert torch.allclose(weights, nft_slopes_by_hand(batch, logp, floor, centred))
    assert bool((weights < 0).any())
    assert bool((weights > 0).any())


def test_a_wrong_answer_is_pushed_less_the_less_likely_it_has_become() -> None:
    log_ratio = torch.tensor([0.0, -0.5, -1.0, -4.0], dtype=torch.float64)
    slope = slope_of(NegativeAware(), log_ratio, torch.full((4,), -2.0, dtype=torch.float64))
    assert bool((slope.diff() < 0).all())
    assert float(slope[0]) == 2.0
    assert float(slope[-1]) > 0


@pytest.mark.parametrize("rewards", [[1.0], [0.0, 0.0, 0.0], [1.0, 1.0]])
def test_groups_that_do_not_differ_teach_nothing(rewards: list[float]) -> None:
    batch = probes.bandit_experience([0] * len(rewards), rewards, torch.zeros(2))
    assert not probes.decision_weights(nft.recipe(), batch, batch.logp + 0.2).any()


def test_population_deviation_is_of_the_pass_rate() -> None:
    batch = probes.bandit_experience([0] * 8, [1.0, 0, 0, 0, 1.0, 1.0, 1.0, 0], torch.zeros(2), members=4)
    scale = PopulationDeviation()(batch.reward[:, 0], batch)
    assert torch.allclose(scale, torch.full((8,), math.sqrt(3) / 4, dtype=torch.float64))
