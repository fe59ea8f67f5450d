"""Models that score a text with one number. Axes: B sequences, T tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Body, CriticHead
from assay.core.spaces import Context, Spec, Vocabulary
from assay.models.bodies.hidden import Sequences, wide
from assay.models.bodies.transformer import Transformer


class TransformerScore(nn.Module):
    """score(tokens 0..t), from its own trunk."""

    def __init__(self, vocabulary: Vocabulary, body: Transformer) -> None:
        super().__init__()
        self.trunk = body.states(Spec(vocabulary, vocabulary, 0))
        self.head = nn.Linear(body.width, 1, bias=False)
        nn.init.normal_(self.head.weight, std=body.width**-0.5)

    def forward(self, context: Context) -> Tensor:
        """Returns scores [B, T]."""
        return self.head(self.trunk.after(context)).squeeze(-1)


class StatesScore(nn.Module):
    """score(tokens 0..t), a linear layer on the states of any body of tokens, in float32 or wider; 0 at the start."""

    def __init__(self, body: Sequences, spec: Spec) -> None:
        super().__init__()
        states: Any = body.states(spec)
        self.states = states
        self.head = nn.Linear(states.width, 1, bias=False).to(wide(states.dtype))
        nn.init.zeros_(self.head.weight)

    def forward(self, context: Context) -> Tensor:
        """Returns scores [B, T]."""
        trunk: Any = self.states
        states: Tensor = trunk.after(context)
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.to(self.head.weight.dtype)).squeeze(-1)


@dataclass(frozen=True)
class TextScore(CriticHead):
    """A score of the text so far, its last token included."""

    def on(self, body: Body, spec: Spec) -> nn.Module:
        if not isinstance(spec.observation, Vocabulary) or not isinstance(body, Sequences):
            what = f"got {body} and observations {spec.observation}"
            raise AssayError(f"TextScore needs a Transformer() body and a language task, {what}. Use Transformer()")
        return TransformerScore(spec.observation, body) if isinstance(body, Transformer) else StatesScore(body, spec)
