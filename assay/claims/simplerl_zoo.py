"""The loss by hand, and groups of answers with and without a box. Axes: B sequences, T decisions."""

from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Expect, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, Recipe
from assay.claims.testbeds.language.formats import formats
from assay.methods.simplerl_zoo import independent, recipe, strict

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


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand),
        Exact("strict pays a wrong answer in a box more than a right one without",
              lambda: paid_gap(strict(), -1.0, -0.5, -1.0, 1.0), at_most=1e-9),
        Exact("strict pushes right answers down and boxed wrong ones up", lambda: probes.distance(
              pushed(strict(), RIGHT, BOXED, WRONG, WRONG), (-0.5, 1.5, -0.5, -0.5)), at_most=1e-3,
              of="simplerl-zoo-strict"),
        Exact("strict learns nothing without a box", lambda: pushed(strict(), RIGHT, WRONG).norm(), equals=0.0,
              of="simplerl-zoo-strict"),
        Exact("independent pays for the right answer and for the box",
              lambda: paid_gap(independent(), 1.5, 0.5, 0.0, 2.0), at_most=1e-9),
        Exact("on a task that says its box, strict and independent pay for that",
              lambda: max(probes.table_gap(strict(), formats(91, 22), (("00", 0, -1.0), ("90", 0, -0.5))),
                          probes.table_gap(independent(), formats(91, 22), (("0", 0, 0.0), ("9", 0, 0.5)))),
              at_most=1e-9, of="simplerl-zoo-strict"),
        Exact("counts of behaviours are those by hand", lambda: probes.mode_gap(recipe(), BEHAVING), at_most=1e-9),
        Measured("where a tenth of the answers has the box strict learns slower: mean pass rate",
                 "formats:shares=91,right=22", strict(BIGRAMS), recipe(BIGRAMS), Area("pass_rate"),
                 Expect.BELOW, seeds=10, minutes=6.0, steps=60, looks=2, about=About.HEADLINE),
        Measured("control: where nine tenths have the box strict learns as fast, within 0.05",
                 "formats:shares=19,right=22",
                 strict(BIGRAMS), recipe(BIGRAMS), Area("pass_rate"), Expect.WITHIN, margin=0.05, seeds=10,
                 minutes=6.0, steps=60, looks=2, about=About.COMPONENT),
    ),
    mutants=(
        Edit("a box is worth nothing", strict, "-0.5", "-1.0"),
        Edit("no box costs nothing", strict, "closed=-1.0", "closed=0.0"),
        Edit("a bonus for the box instead", independent, "1.5", "0.1"),
        Edit("no KL", recipe, "1e-4", "1e-9"),
    ),
)
