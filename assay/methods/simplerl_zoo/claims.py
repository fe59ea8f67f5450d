"""The loss by hand, and groups of answers with and without a box."""

from __future__ import annotations

from torch import Tensor

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe

RIGHT, BOXED, WRONG, BOTH = "so it is 7", r"\boxed{8}", "so it is 8", r"\boxed{7}=7"
BEHAVING = {
    "Wait, 7": "backtracking", "2. Try again: 7": "backtracking", "I check: 7": "verification", "First, 7": "subgoals",
    "for each 7": "enumeration", "7": "other", "a waiter 7": "other", "checks 7": "other",
}  # fmt: skip
"""Answers and their behaviours."""


def loss_by_hand(seen: probes.Seen) -> Tensor:
    terms = 1e-4 * by_hand.k3(seen) - 0.001 * by_hand.entropy(seen)
    loss = by_hand.token_loss(seen, by_hand.standardised(seen.experience))
    return loss + by_hand.mean_of_decisions(terms, seen.experience)


def paid_gap(ours: Recipe, *expected: float) -> float:
    """Returns how far a right, a boxed wrong, a wrong and a boxed right answer are from being paid the expected."""
    return probes.reward_gap(ours, dict(zip((RIGHT, BOXED, WRONG, BOTH), expected, strict=True)))


def pushed(ours: Recipe, *said: str) -> Tensor:
    """Returns the standardised rewards of a group of answers."""
    return by_hand.standardised(probes.outcomes(*probes.rewarded(ours, *probes.answered(said)).tolist()))
