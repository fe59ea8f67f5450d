"""Pieces of formulas and of data that claims of several methods share, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from assay import recipes
from assay.claims import by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.core.verifier import Verifier
from assay.parts.credit.modes import CountModes
from assay.parts.regularizers.divergence import EntropyBonus, KlToReference
from assay.recipes.group import with_regularizers, with_token_clip


def test_a_gradient_claim_holds_for_the_formula_and_for_no_other() -> None:
    assert same_gradient("grpo's", recipes.grpo, by_hand.grpo_loss).run().holds
    assert not same_gradient("grpo's", recipes.dr_grpo, by_hand.grpo_loss).run().holds


def test_a_loss_over_tokens_leaves_out_rows_that_are_not_kept() -> None:
    def formula(seen: probes.Seen) -> torch.Tensor:
        return by_hand.token_loss(seen, by_hand.standardised(seen.experience), high=0.28)

    def first_half(seen: probes.Seen) -> torch.Tensor:
        kept = torch.arange(len(seen.experience)) < 8
        return by_hand.token_loss(seen, by_hand.standardised(seen.experience), high=0.28, kept=kept)

    def ours() -> Recipe:
        return with_token_clip(recipes.grpo(), "tokens", high=0.28)

    assert same_gradient("over tokens", ours, formula).run().holds
    assert not same_gradient("over some", ours, first_half).run().holds


def test_rows_without_a_decision_are_in_no_group() -> None:
    data = probes.groups_with_right(1, 2, size=3)
    data = replace(data, mask=data.mask & (torch.arange(6) != 1).unsqueeze(1))
    assert by_hand.rows_of_groups(data) == [[0, 2], [3, 4, 5]]
    assert by_hand.outcome(data).tolist() == [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]


def test_one_sequence_ends_with_its_last_reward() -> None:
    data = probes.one_sequence(0.0, 0.5, 2.0)
    assert data.reward.tolist() == [[0.0, 0.5, 2.0]]
    assert data.terminal.tolist() == [[False, False, True]]
    assert not data.truncated.any()
    assert probes.outcomes(1.0, 3.0).reward.tolist() == [[1.0], [3.0]]


@pytest.mark.parametrize(("found", "gap"), [((1.0, 2.5), 0.5), ((1.0,), inf), ((1.0, nan), inf)])
def test_the_distance_of_other_shapes_and_of_no_number_is_infinite(found: tuple[float, ...], gap: float) -> None:
    assert probes.distance(found, (1.0, 2.0)) == gap


def test_slopes_have_regularizers_and_decision_weights_do_not() -> None:
    data = probes.outcomes(1.0, 0.0)
    ours = with_regularizers(recipes.grpo(), KlToReference(0.5))
    assert ours.copies["reference"].of == "actor"
    assert with_regularizers(recipes.grpo(), EntropyBonus()).copies == {}
    found = probes.slopes(ours, data, data.logp, logp_ref=data.logp - 1.0)
    weights = probes.decision_weights(ours, data, data.logp, logp_ref=data.logp - 1.0)
    kl = 0.5 * (1.0 - torch.tensor(-1.0).double().exp()) / 2  # d/d logp of k3 at log ratio 1, a mean over two
    assert torch.allclose(found + weights, kl.expand(2, 1))


def test_rewards_and_logged_numbers_of_answers_to_the_question() -> None:
    ours = replace(recipes.grpo(), rewards=(Verifier(),))
    assert probes.reward_gap(ours, {"7": 1.0, "8": 0.0}) == 0.0
    assert probes.reward_gap(ours, {"7": 0.75, "8": 0.0}) == 0.25
    task, rows = probes.answered(["7", "x", "77"], cut=[2])
    assert probes.log_gap(CountModes({"seven": "7+"}), {"mode/seven": 2 / 3, "stopped_length": 2.0}, task, rows) == 0.0
    assert probes.log_gap(CountModes({"seven": "7"}), {"mode/seven": 2 / 3}, task, rows) == pytest.approx(1 / 3)


def test_a_derivative_has_the_shape_of_its_point() -> None:
    point = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    assert torch.equal(probes.derivative(lambda x: x.square(), point), 2.0 * point)
    assert not point.requires_grad
