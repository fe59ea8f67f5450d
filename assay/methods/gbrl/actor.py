"""Policies that are sums of decision trees: categorical and Gaussian. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.core.slots import ActorSpec
from assay.core.spaces import Box, Context, Discrete, Spec
from assay.methods.gbrl.networks import TreeSum, categorical_features, tree_inputs
from assay.models.mlp import Categorical, Gaussian, need_box


class TreeCategorical(Categorical):
    """Logits by a sum of trees; uniform before the first."""

    def __init__(self, categorical_F: Tensor, num_actions: int) -> None:
        super().__init__()
        self.trees = TreeSum(categorical_F, num_actions)

    def logits(self, context: Context) -> Tensor:
        """Unnormalised log-probabilities [..., A]."""
        return self.trees(tree_inputs(context))


class TreeGaussian(Gaussian):
    """Means by a sum of trees, 0 before the first; the deviation is a parameter, not a tree's."""

    def __init__(self, categorical_F: Tensor, space: Box, initial_log_std: float) -> None:
        super().__init__()
        self.num_draws = space.size
        self.trees = TreeSum(categorical_F, space.size)
        self.log_std = nn.Parameter(torch.full((space.size,), initial_log_std))

    def mean(self, context: Context) -> Tensor:
        """[..., A]."""
        return self.trees(tree_inputs(context))


@dataclass(frozen=True)
class Trees(ActorSpec):
    """A policy of trees: categorical for discrete actions, Gaussian for continuous ones.

    `codes` are the features whose values have no order: asked for equality. A numbered state is one by itself.
    """

    codes: tuple[int, ...] = ()
    initial_log_std: float = 0.0
    breaks: ClassVar[dict[str, str]] = {"learns": "stepped by the gradient of its outputs; trees are no parameters"}

    def build(self, spec: Spec) -> nn.Module:
        """The module for this task."""
        categorical_F = categorical_features(spec, self.codes)
        if isinstance(spec.action, Discrete):
            return TreeCategorical(categorical_F, spec.action.n)
        return TreeGaussian(categorical_F, need_box(spec, "a Gaussian actor"), self.initial_log_std)
