"""What holds a policy at a reference, added to any base."""

from __future__ import annotations

from dataclasses import replace

from assay.core.recipe import Copy, Recipe
from assay.ops import divergences
from assay.parts.aggregations import SequenceSum
from assay.parts.regularizers.divergence import KlToReference


def with_kl_loss(recipe: Recipe, coefficient: float) -> Recipe:
    """The recipe with coefficient * KL(pi || reference) in its first stage's loss, as k2 (see KlToReference).

    For data of the policy itself its gradient is the KL's, decision by decision: what a decision does to the KL of
    later ones is left out, as is common. With one decision an episode that is nothing.
    """
    penalty = KlToReference(coefficient, divergences.k2, SequenceSum())
    stage = replace(recipe.stages[0], regularizers=(*recipe.stages[0].regularizers, penalty))
    copies = {**recipe.copies, "reference": Copy(of="actor")}
    return replace(recipe, copies=copies, stages=(stage, *recipe.stages[1:]))
