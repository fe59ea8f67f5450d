"""Masks of discrete actions. Axes: A options of all choices, side by side."""

from __future__ import annotations

from torch import Tensor

from assay.core.spaces import MASK, Context

FORBIDDEN = -1e9
"""Logit and value of a forbidden option: its probability is exactly 0 in float32 and float64, and entropies, unlike
those of minus infinity, stay finite.
"""


def apply_mask(outputs: Tensor, context: Context) -> Tensor:
    """Returns logits or values [..., A] with those of forbidden options replaced; no gradient reaches these.

    The identity where the task has no masks. Padding allows nothing: all options are equal there.
    """
    allowed = context.get(MASK)
    return outputs if allowed is None else outputs.masked_fill(~allowed.bool(), FORBIDDEN)
