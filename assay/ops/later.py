"""Records moved by one column, so that a model that scores decisions returns what it computes after them."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from assay.core.record import Experience, pad


def one_later(experience: Experience, mask_BT: Tensor | None = None) -> Experience:
    """Returns the sequences with the mask, by default the record's own, one column later and one column more.

    An actor of tokens then scores the token that follows each of these decisions: its state there has read the decision
    itself, the last one included. Columns of decisions keep their places and belong to the earlier token.
    """
    longer = pad(experience, experience.num_columns + 1)
    mask = functional.pad(experience.mask if mask_BT is None else mask_BT, (1, 0))
    context = dict(longer.context)
    if "valid" in context:
        context["valid"] = context["valid"] | mask
    return longer.with_columns(mask=mask, context=context)
