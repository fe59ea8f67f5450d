"""A state value that is a sum of decision trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from assay.core.slots import CriticSpec
from assay.core.spaces import Context, Spec
from assay.methods.gbrl.networks import TreeSum, categorical_features, tree_inputs


class SummedValue(nn.Module):
    """V(s) = f(s), f a sum of trees; 0 before the first."""

    def __init__(self, categorical_F: Tensor) -> None:
        super().__init__()
        self.trees = TreeSum(categorical_F, 1)

    def forward(self, context: Context) -> Tensor:
        """State values [...]."""
        return self.trees(tree_inputs(context)).squeeze(-1)


@dataclass(frozen=True)
class TreeValue(CriticSpec):
    """A critic V(s) of trees; `codes` are the features whose values have no order."""

    codes: tuple[int, ...] = ()
    breaks: ClassVar[dict[str, str]] = {"learns": "stepped by the gradient of its outputs; trees are no parameters"}

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        return SummedValue(categorical_features(spec, self.codes))
