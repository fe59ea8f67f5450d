"""Critics of what was written so far. Axes: B rows, T columns, N critics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import CriticSpec
from assay.core.spaces import Context, Spec, Vocabulary
from assay.models.bodies.transformer import Trunk


class TransformerQ(nn.Module):
    """Q_i(tokens before t, token t) of N heads on one trunk; starts at 0."""

    def __init__(self, trunk: Trunk, num: int) -> None:
        super().__init__()
        self.trunk = trunk
        width = trunk.norm.shape[0]
        self.inner, self.heads = nn.Linear(width, num * width), nn.Parameter(torch.zeros(num, width))

    def forward(self, context: Context, action: Tensor) -> Tensor:
        """Action values [N, B, T]; the decisions of a token sequence are its own tokens, so it is read once."""
        hidden = self.inner(self.trunk(context["tokens"])).relu().unflatten(-1, self.heads.shape)
        return (hidden * self.heads).sum(-1).movedim(-1, 0)


@dataclass(frozen=True)
class TokenQ(CriticSpec):
    """`num` critics of what was written so far, the last token included: at an utterance's end, of the utterance."""

    width: int = 128
    layers: int = 2
    heads: int = 4
    num: int = 2

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        if not isinstance(spec.action, Vocabulary):
            raise AssayError(f"TokenQ needs a token task, this one has actions {spec.action}; use ActionValue()")
        return TransformerQ(Trunk(spec.action, self.width, self.layers, self.heads), self.num)
