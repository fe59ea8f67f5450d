"""The first claim of nearly every method: its gradient is that of its loss by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.claims.claim import Exact
from assay.claims.probes.formulas import TABLE_SPEC, Data, Formula, formula_gap
from assay.claims.probes.uneven import ANY_OUTCOME
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.core.spaces import Spec


def same_gradient(
    name: str,
    recipe: Callable[[], Recipe],
    formula: Formula,
    data: Data | Sequence[Data] = ANY_OUTCOME,
    spec: Spec = TABLE_SPEC,
    at_most: float = 1e-9,
    earlier: Sequence[Experience] = (),
    of: str = "",
) -> Exact:
    """Returns the claim that all gradients of the recipe equal those of the formula on the data; see `formula_gap`.

    Recipe and data are made when the claim runs, so that a mutant of their functions is seen. Without `data` they are
    equal and unequal groups, short and long answers, outcomes of any number, graded and signed, and answers of a chat
    after a template and prompts of unequal length.
    """
    made = (data,) if callable(data) else tuple(data)
    return Exact(name, lambda: formula_gap(recipe(), made, formula, spec, earlier=earlier), at_most=at_most, of=of)
