"""Layers and tokens of a sequence of numbers. Axes: R rows, L tokens, W width, D head size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import AssayError
from assay.models.bodies.transformer import Block

MAKES = "it makes layers inside a body, for which the laws of bodies hold"


class Blocks(nn.Module):
    """The layers of `Trunk`, with its initial weights and rotary positions, on vectors instead of tokens."""

    def __init__(self, width: int, num_layers: int, num_heads: int) -> None:
        super().__init__()
        self.head_size = width // num_heads
        self.blocks = nn.ModuleList(Block(width, num_heads) for _ in range(num_layers))
        self.norm = nn.Parameter(torch.ones(width))
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = (2 * num_layers) ** -0.5 if "out" in name or "down" in name else 1.0
                nn.init.normal_(weight, std=deep * weight.shape[1] ** -0.5)

    @property
    def width(self) -> int:
        """Size of a hidden state."""
        return self.norm.shape[0]

    def turn(self, length: int) -> Tensor:
        """Returns the rotations of positions 0 to `length` - 1, complex [L, W], for queries and keys."""
        half = self.head_size // 2
        frequency = torch.exp(torch.arange(half, device=self.norm.device) * (-math.log(10000.0) / half))
        angle = (torch.arange(length, device=self.norm.device).unsqueeze(-1) * frequency).to(self.norm.dtype)
        return torch.polar(torch.ones_like(angle), angle).repeat(1, self.width // half)

    def forward(self, x: Tensor) -> Tensor:
        """Returns hidden states [R, L, W]; a token sees none after it."""
        turn = self.turn(x.shape[1])
        for block in self.blocks:
            x = block(x, turn, None)
        return functional.layer_norm(x, (self.width,), self.norm)


class Stack(Protocol):
    """Layers between the tokens and the outputs, in which a token sees none after it."""

    def build(self) -> nn.Module:
        """Returns a module [R, L, W] -> [R, L, W] with `width`."""


@dataclass(frozen=True)
class CausalStack(Stack):
    """Layers of assay's own transformer, with rotary positions."""

    width: int = 64
    layers: int = 2
    heads: int = 2
    not_a_part: ClassVar[str] = MAKES

    def __post_init__(self) -> None:
        if self.width % (2 * self.heads):
            raise AssayError(f"stack.width is {self.width}. Use a multiple of 2 x heads, {2 * self.heads}")

    def build(self) -> nn.Module:
        return Blocks(self.width, self.layers, self.heads)


class Embedding(Protocol):
    """Makes tokens of numbers, and outputs of hidden states."""

    is_timed_first: ClassVar[bool]
    """Whether the time is added before the normalisation of tokens."""

    def token(self, size: int, width: int) -> nn.Module:
        """Returns a module [..., size] -> [..., width]."""

    def output(self, width: int, size: int) -> nn.Module:
        """Returns a module [..., width] -> [..., size]."""


@dataclass(frozen=True)
class LinearTokens(Embedding):
    """One layer for each kind of token, and one for the outputs (arXiv:2106.01345)."""

    not_a_part: ClassVar[str] = MAKES
    is_timed_first: ClassVar[bool] = True

    def token(self, size: int, width: int) -> nn.Module:
        return nn.Linear(size, width)

    def output(self, width: int, size: int) -> nn.Module:
        return nn.Linear(width, size)
