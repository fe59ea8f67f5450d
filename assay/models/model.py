"""A model is a body with a head: `Policy(Perceptron((256, 256)), SquashedGaussian())`.

A new body works with every head, a new head on every body.

Tensors have any shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.core.slots import ActorHead, ActorSpec, Body, CriticHead, CriticSpec
from assay.core.spaces import Spec
from assay.models.bodies.convolution import Convolution
from assay.models.bodies.normalised import Normalised
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bins import Bins, Quantiles
from assay.models.heads.bounded import Deterministic, SquashedGaussian
from assay.models.heads.gaussian import Distribution
from assay.models.heads.score import TextScore
from assay.models.heads.value import ActionValue, Greedy, Value

SMALL, FEW = Transformer(16, 1, 2), Bins(-1.0, 1.0, 11)
EYE = Convolution((4,), (3,), (1,), 8)


@dataclass(frozen=True)
class Policy(ActorSpec):
    """An actor: a body with an actor head."""

    body: Body = Perceptron()
    head: ActorHead = Distribution()
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"body": Table()},
        {"body": Transformer()},
        {"head": Greedy()},
        {"head": Greedy(FEW)},
        {"head": Greedy(Quantiles(5))},
        {"body": Perceptron((256, 256)), "head": SquashedGaussian()},
        {"body": Normalised((64, 64)), "head": SquashedGaussian()},
        {"head": Deterministic()},
        {"body": EYE},
        {"body": EYE, "head": SquashedGaussian()},
    )

    def build(self, spec: Spec) -> nn.Module:
        return self.head.on(self.body, spec)


@dataclass(frozen=True)
class Critic(CriticSpec):
    """A critic: a body with a critic head."""

    body: Body = Perceptron()
    head: CriticHead = Value()
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"body": Table()},
        {"body": Table(), "head": Value(FEW)},
        {"body": Transformer()},
        {"body": SMALL, "head": Value(FEW)},
        {"body": SMALL, "head": TextScore()},
        {"body": SMALL, "head": ActionValue()},
        {"head": Value(FEW)},
        {"head": ActionValue()},
        {"head": ActionValue(bins=FEW)},
        {"head": ActionValue(bins=Quantiles(5))},
        {"body": Table(), "head": ActionValue()},
        {"body": Normalised((64, 64)), "head": ActionValue(10)},
        {"body": EYE, "head": ActionValue()},
    )

    def build(self, spec: Spec) -> nn.Module:
        return self.head.on(self.body, spec)


class Exponential(nn.Module):
    """A learned positive number exp(log_value)."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log_value = nn.Parameter(torch.tensor(initial).log())

    def forward(self) -> Tensor:
        """Returns the number."""
        return self.log_value.exp()


@dataclass(frozen=True)
class Temperature(CriticSpec):
    """SAC's temperature: a learned positive number without a body."""

    initial: float = 1.0

    def build(self, spec: Spec) -> nn.Module:
        """Returns the module, the same for every task."""
        return Exponential(self.initial)
