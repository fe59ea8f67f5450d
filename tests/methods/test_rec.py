"""REINFORCE with masks and weights: against slow references, and its variants."""

from __future__ import annotations

import math

import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.claims.rec import forward
from assay.core.record import Draw
from assay.core.slots import Scene
from assay.methods import rec
from assay.methods.rec import (
    DropSurplusNegatives,
    Even,
    EveryDecision,
    ExpAdvantage,
    Importance,
    Keeps,
    KlToBehaviour,
    MaskedScore,
    OneSide,
    Ring,
    TwoSide,
    Weight,
)
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.objectives.trust import Clip
from tests.methods.batches import slope_of

RATIOS = [0.1, 0.39, 0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 2.5, 3.1]
PULLS = probes.bandit_experience([0, 1, 2, 2, 0, 1], [1.0, 0.0, 1.0, 0.0, 0.3, 0.0], torch.tensor([0.0, 0.5, 0.2]))
MOVED = torch.tensor([0.3, -0.4, 0.9]).double().log_softmax(-1)[PULLS.action]


# ---------------------------------------------------------------------------------------------------- rec
def kept_by_hand(keeps: Keeps, ratio: float, advantage: float) -> bool:
    inside = 0.8 <= ratio <= 1.2
    if isinstance(keeps, TwoSide):
        return inside
    if isinstance(keeps, Ring):
        return inside or (advantage >= 0 and ratio <= 0.4) or (advantage <= 0 and ratio >= 3.0)
    if isinstance(keeps, OneSide):
        return not (advantage > 0 and ratio > 1.2) and not (advantage < 0 and ratio < 0.8)
    return True


def weight_by_hand(weight: Weight, ratio: float, advantage: float) -> float:
    if isinstance(weight, Importance):
        return ratio
    return math.exp(advantage / weight.temperature) if isinstance(weight, ExpAdvantage) else 1.0


@pytest.mark.parametrize("keeps", [EveryDecision(), OneSide(), TwoSide(), Ring()])
@pytest.mark.parametrize("weight", [Even(), Importance(), ExpAdvantage(0.5)])
def test_every_mask_goes_with_every_weight(keeps: Keeps, weight: Weight) -> None:
    ratio = torch.tensor(RATIOS, dtype=torch.float64)
    for size in (0.7, 0.0, -0.7):
        advantage = torch.full_like(ratio, size)
        found = slope_of(MaskedScore(keeps, weight), ratio.log(), advantage)
        expected = [-size * weight_by_hand(weight, r, size) * kept_by_hand(keeps, r, size) for r in RATIOS]
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64))


def test_one_side_with_importance_has_the_gradient_of_the_clip() -> None:
    log_ratio = torch.linspace(-2.0, 2.0, 41, dtype=torch.float64).repeat(2, 1)
    advantage = torch.tensor([[1.3], [-0.4]], dtype=torch.float64).expand_as(log_ratio)
    ours, theirs = (slope_of(one, log_ratio, advantage) for one in (MaskedScore(OneSide(), Importance()), Clip()))
    assert torch.allclose(ours, theirs)


def test_what_the_mask_leaves_out_has_a_value_but_no_gradient() -> None:
    logp = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    loss, cut = MaskedScore()(logp, torch.ones(1, dtype=torch.float64), logp)
    assert bool(cut)
    assert float(loss.detach()) == -1.0
    assert float(torch.autograd.grad(loss.sum(), logp)[0]) == 0.0


def test_a_forward_kl_to_who_acted_is_a_lower_baseline() -> None:
    """AsymRE."""
    plain = rec.recipe(keeps=EveryDecision())
    even = probes.credited(plain, PULLS)
    raised = even.add({"advantage": even.column("advantage") + 0.1})
    asymre = rec.recipe(keeps=EveryDecision(), penalty=(KlToBehaviour(0.1, forward),))
    logp = MOVED.clone().requires_grad_()
    (slope,) = torch.autograd.grad(probes.loss(asymre, PULLS, logp).loss, logp)
    assert torch.allclose(-slope, probes.decision_weights(plain, raised, MOVED))


def test_dropping_leaves_as_many_negatives_as_others() -> None:
    batch = probes.bandit_experience([0] * 8, [1.0, 0, 0, 0, 1.0, 1.0, 1.0, 0], torch.zeros(2), members=4)
    batch = batch.add({"start": batch.group, "sample": torch.arange(8) % 4})  # type: ignore[dict-item]
    kept = DropSurplusNegatives()(batch).mask[:, 0]
    assert int(kept[:4].sum()) == 2
    assert bool(kept[0])
    assert bool(kept[4:].all())
    credited = OutcomeCredit(GroupMean())(DropSurplusNegatives()(batch)).column("advantage")[:4, 0]
    assert sorted(credited.tolist()) == [-0.5, 0.0, 0.0, 0.5]


def test_which_negatives_are_dropped_differs_between_starts() -> None:
    rewards = [1.0, 0, 0, 0] * 50
    batch = probes.bandit_experience([0] * 200, rewards, torch.zeros(2), members=4)
    batch = batch.add({"start": batch.group, "sample": torch.arange(200) % 4})  # type: ignore[dict-item]
    kept = DropSurplusNegatives()(batch).mask.view(50, 4)
    assert bool((kept.sum(1) == 2).all())
    share = kept[:, 1:].double().mean(0)
    assert float(share.min()) > 0.1
    assert float(share.max()) < 0.6


def test_which_negatives_are_dropped_differs_between_seeds_and_steps() -> None:
    batch, draws = probes.sequences(num=64), (Draw(0, (1,)), Draw(0, (1,)), Draw(1, (1,)), Draw(0, (2,)))
    one, same, seed, step = (DropSurplusNegatives()(batch, Scene(draw=draw)).mask for draw in draws)
    assert torch.equal(one, same)
    assert not torch.equal(one, seed)
    assert not torch.equal(one, step)


@pytest.mark.parametrize("reward", [[0.1, 0.1, 0.1], [1.0, 1.0, 1.0]])
def test_equal_outcomes_drop_nothing(reward: list[float]) -> None:
    batch = probes.bandit_experience([0, 1, 0], reward, torch.zeros(2))
    batch = batch.add({"start": batch.group, "sample": torch.arange(3)})  # type: ignore[dict-item]
    assert bool(DropSurplusNegatives()(batch).mask.all())


# ---------------------------------------------------------------------------------------------------- all
def test_variants_of_rec_are_grpo_and_reinforce_by_their_numbers() -> None:
    batch = PULLS
    plain = probes.decision_weights(rec.recipe(keeps=EveryDecision()), batch, MOVED)
    theirs = probes.decision_weights(recipes.group_reinforce(), batch, MOVED)
    assert torch.allclose(plain, theirs)
