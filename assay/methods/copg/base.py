"""A KL loss to a reference, added to any base recipe."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Copy, Recipe
from assay.ops import divergences
from assay.parts.aggregations import SequenceSum
from assay.parts.regularizers.divergence import KlToReference


def with_kl_loss(recipe: Recipe, coefficient: float) -> Recipe:
    """Returns the recipe with coefficient * KL(pi || reference) in its first stage's loss, as k2 (see KlToReference).

    On on-policy data its gradient is the KL's, decision by decision; the effect of a decision on the KL of later ones
    is left out, as is common. With one decision per episode there is no such effect.
    """
    penalty = KlToReference(coefficient, divergences.k2, SequenceSum())
    stage = replace(recipe.stages[0], regularizers=(*recipe.stages[0].regularizers, penalty))
    copies = {**recipe.copies, "reference": Copy(of="actor")}
    return replace(recipe, copies=copies, stages=(stage, *recipe.stages[1:]))
