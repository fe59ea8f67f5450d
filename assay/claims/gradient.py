"""The first claims of nearly every method: its gradient is that of its loss by hand, and so are its reports.

Tensors have any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from assay.claims.claim import Exact
from assay.claims.probes.formulas import TABLE_SPEC, Data, Formula, Seen, formula_gap, report_gap
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


def same_report(
    recipe: Callable[[], Recipe], formula: Callable[[Seen], Mapping[str, Tensor]], data: Data, spec: Spec
) -> Exact:
    """Returns the claim that the metrics of an update are the formula's numbers, and keep no graph: `report_gap`."""
    name = "its reports are means over rows with a decision and over critics, and carry no gradient"
    return Exact(name, lambda: report_gap(recipe(), data, formula, spec), at_most=1e-6)
