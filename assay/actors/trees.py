"""Policies that are sums of decision trees: categorical and Gaussian. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay.actors.mlp import need_box, score_categorical
from assay.networks.trees import TreeSum, categorical_features, tree_inputs
from assay.ops import distributions
from assay.types import Box, Context, Discrete, Experience, Need, Scored, Spec


class TreeCategorical(nn.Module):
    """pi(a|s) = softmax(f(s))[a], f a sum of trees; uniform before the first."""

    num_draws = 1

    def __init__(self, categorical_F: Tensor, num_actions: int) -> None:
        super().__init__()
        self.trees = TreeSum(categorical_F, num_actions)

    def logits(self, context: Context) -> Tensor:
        """Unnormalised log-probabilities [..., A]."""
        return self.trees(tree_inputs(context))

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """One decision for each row; the mode where `uniform` is None."""
        logits = self.logits(context)
        action = logits.argmax(-1) if uniform is None else distributions.categorical_sample(logits, uniform[:, 0])
        return action, distributions.categorical_logp(logits, action)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-probabilities of the recorded decisions; entropy and logits if asked."""
        return score_categorical(self.logits(batch.context), batch, needs)


class TreeGaussian(nn.Module):
    """pi(a|s) = N(f(s), diag(exp(log_std))^2), f a sum of trees; the deviation is a parameter, not a tree's."""

    def __init__(self, categorical_F: Tensor, space: Box, initial_log_std: float) -> None:
        super().__init__()
        self.num_draws = space.size
        self.trees = TreeSum(categorical_F, space.size)
        self.log_std = nn.Parameter(torch.full((space.size,), initial_log_std))

    def act(self, context: Context, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        """mean + std * noise; the mean where `uniform` is None."""
        mean = self.trees(tree_inputs(context))
        noise = torch.zeros_like(mean) if uniform is None else distributions.normal_sample(uniform)
        action = mean + self.log_std.exp() * noise
        return action, distributions.normal_logp(action, mean, self.log_std)

    def score(self, batch: Experience, needs: frozenset[Need]) -> Scored:
        """Log-densities of the recorded decisions; the entropy is the same in every state."""
        mean = self.trees(tree_inputs(batch.context))
        logp = distributions.normal_logp(batch.action, mean, self.log_std) * batch.mask
        entropy = None
        if Need.ENTROPY in needs:
            entropy = (self.log_std + 0.5 + distributions.HALF_LOG_TWO_PI).sum() * batch.mask
        return Scored(logp, entropy)


@dataclass(frozen=True)
class Trees:
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
