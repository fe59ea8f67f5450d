"""Exact claims of methods whose reward is a learned classifier of success (`assay.recipes.classified`)."""

from __future__ import annotations

from collections.abc import Callable

from assay.claims.claim import Exact
from assay.claims.gradient import same_gradient
from assay.claims.probes import BOX_SPEC, classified, foreign_rows, hand_off_gap
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.slots import Task


def classifier_claims(recipe: Callable[[], Recipe], data: Experience, task: Task, warmup: int) -> tuple[Exact, ...]:
    """Returns the claims on the classifier's pretraining, on the weights handed on, on the warm-up and on the first
    temperature.

    The recipe is made when a claim runs, so that a mutant of its functions is seen.
    """
    return (
        same_gradient("the classifier's first negatives are demonstrated states", lambda: recipe().before[0].recipe,
                      classified.success_loss, lambda: data, BOX_SPEC),
        Exact("the classifier first learns from demonstrations alone",
              lambda: foreign_rows(recipe().before[0].recipe, task), equals=0.0, of="sources"),
        Exact("the classifier is trained on 100 batches before the policy acts",
              lambda: classified.num_pretrained(recipe(), task), equals=100.0, of="phases"),
        Exact(f"the first batch is drawn when {warmup} decisions are stored",
              lambda: classified.early_batches(recipe(), task, warmup), equals=0.0, of="sources"),
        Exact("the classifier begins online as it was pretrained",
              lambda: hand_off_gap(recipe(), ["success"], BOX_SPEC), equals=0.0, of="phases"),
        Exact("the temperature begins at 0.01", lambda: recipe().critics["temperature"].build(BOX_SPEC)(), equals=0.01),
    )  # fmt: skip
