"""Records moved by one column, so that a model that scores decisions returns what it computes after them.

Axes: B sequences, T columns, W width of a hidden state.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from assay.core.errors import AssayError
from assay.core.record import Experience, Need, pad


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


def states_after(actor: Any, experience: Experience) -> Tensor:
    """Returns the last hidden state of an actor of tokens after each decision, the last one included, [B, T, W]; 0
    where the mask is false. Raises AssayError for an actor without hidden states.
    """
    later = one_later(experience)
    hidden: Tensor | None = actor.score(later, frozenset({Need.LOGP, Need.HIDDEN})).hidden
    if hidden is None:
        raise AssayError("the actor has no hidden states, which embed an answer. Use a language task, or --model")
    return (hidden * later.mask.unsqueeze(-1))[:, 1:]
