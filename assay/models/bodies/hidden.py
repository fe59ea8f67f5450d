"""Bodies that read sequences of tokens: hidden states and outputs on top of them. Axes: B, T, W width, N."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body
from assay.core.spaces import Context, Spec
from assay.models.bodies.perceptron import shaped


@runtime_checkable
class Sequences(Body, Protocol):
    """A body whose last hidden states a head may read."""

    def states(self, spec: Spec) -> nn.Module:
        """Returns a module with `width` and `dtype` of its states, and their values `before(context)` and
        `after(context)` each token, [B, T, W], zeros before the first; raises AssayError if the task has no tokens.
        """

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """Returns outputs on the states before the decisions, or after them if the decision is an input; 0 at first."""
        return OfDecided(self.states(spec), ask) if ask.action else OfSeen(self.states(spec), ask)


class OfSeen(nn.Module):
    """A linear layer on the states before the decisions, in float32 or wider; initialised to 0."""

    def __init__(self, states: Any, ask: Ask) -> None:
        super().__init__()
        if ask.members:
            raise AssayError("a body of tokens has no members without an action. Use Perceptron() or one member")
        self.states, self.shape = states, ask.shape
        self.layer = nn.Linear(states.width, ask.num).to(wide(states.dtype))
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns [B, T, *shape]."""
        states: Tensor = self.states.before(context)
        with torch.autocast(states.device.type, enabled=False):
            return shaped(self.layer(states.to(self.layer.weight.dtype)), self.shape)


class OfDecided(nn.Module):
    """N hidden layers side by side on the states after the decisions, each with its own outputs, in float32 or wider;
    initialised to 0.

    The decisions of a token sequence are its own tokens, so it is read once.
    """

    def __init__(self, states: Any, ask: Ask) -> None:
        super().__init__()
        width, num = states.width, max(1, ask.members)
        self.states, self.num_members = states, ask.members
        self.inner, self.layers = nn.Linear(width, num * width), nn.Parameter(torch.zeros(num, *ask.shape, width))
        self.to(wide(states.dtype))

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns [N, B, T, *shape]; without members [B, T, *shape]."""
        states: Tensor = self.states.after(context)
        members, *shape, width = self.layers.shape
        with torch.autocast(states.device.type, enabled=False):
            hidden = self.inner(states.to(self.layers.dtype)).relu()
        hidden = hidden.unflatten(-1, (members, *[1] * len(shape), width))
        found = (hidden * self.layers).sum(-1).movedim(-1 - len(shape), 0)[:num]
        return found if self.num_members else found[0]


def wide(dtype: torch.dtype) -> torch.dtype:
    """Returns float32, or the dtype itself if it is wider: a bfloat16 value would have three digits."""
    return torch.promote_types(dtype, torch.float32)
