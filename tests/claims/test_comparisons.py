"""Claims that methods share, and the rivals in them: what these train is worked out by hand."""

from collections.abc import Callable

import pytest
import torch

from assay import recipes
from assay.claims import About, Area, Measured, best_of_group, by_hand, learns_faster, probes, reused, without_baseline
from assay.core.recipe import Recipe
from assay.recipes.presets import BIGRAMS, LANGUAGE, Preset


def best_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, losses = seen.experience, []
    outcome = by_hand.outcome(data)
    for rows in by_hand.rows_of_groups(data):
        best = max(rows, key=lambda row: float(outcome[row]))
        if outcome[best] > min(outcome[row] for row in rows):
            losses.append(-outcome[best] * seen.logp()[best].sum())
    return torch.stack(losses).mean()


def no_baseline_by_hand(seen: probes.Seen) -> torch.Tensor:
    outcome = by_hand.outcome(seen.experience)
    return -by_hand.sum_in_sequences(outcome.unsqueeze(1) * seen.logp(), seen.experience)


@pytest.mark.parametrize(("rival", "by_formula"), [(best_of_group, best_by_hand),
                                                   (without_baseline, no_baseline_by_hand)])  # fmt: skip
def test_the_gradient_of_a_rival_is_its_formulas(
    rival: Callable[[Preset], Recipe], by_formula: Callable[[probes.Seen], torch.Tensor]
) -> None:
    assert probes.formula_gap(rival(LANGUAGE), probes.UNIT_OUTCOME, by_formula) <= 1e-9


def test_a_batch_that_is_used_again_is_whole() -> None:
    assert probes.source_gap(reused(recipes.grpo(), 4), probes.sequences(), batches=4, epochs=4) == 0.0


def test_a_shared_headline_is_about_the_whole_curve() -> None:
    claim = learns_faster("it learns faster than reinforce", recipes.rloo(BIGRAMS), recipes.reinforce(BIGRAMS))
    assert isinstance(claim, Measured)
    assert claim.about is About.HEADLINE
    assert claim.metric == Area("pass_rate")
