"""Gradient boosting as an optimizer: every update adds one tree, fitted to the gradient in the outputs.

Axes: R rows, F features, P outputs, D levels, C conditions, N nodes, L leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from assay.method import Adam, AssayError, Choice, Fit, Optimizer, Schedule, State, Sums, number
from assay.methods.gbrl.splits import Conditions, conditions, leaf_means, leaves_of, separation

NOWHERE = 3e38
"""The value of a level at which no condition separates anything."""


class Score(Choice, Protocol):
    """Scores a condition by the sums of squares that it separates."""

    def scaled(self, gradient_RP: Tensor) -> Tensor:
        """Returns the gradients to separate."""

    def of(self, separation: Tensor) -> Tensor:
        """Returns the score of a node from |S_L|^2 / n_L + |S_R|^2 / n_R; scores of nodes are added."""


@dataclass(frozen=True)
class Cosine(Score):
    """sqrt(|S_L|^2 / n_L + |S_R|^2 / n_R): (sum of G . leaf) / |leaf|, the cosine of gradients and leaves up to |G|.

    Outputs with larger gradients dominate the choice.
    """

    def scaled(self, gradient_RP: Tensor) -> Tensor:
        """Returns the gradients unchanged."""
        return gradient_RP

    def of(self, separation: Tensor) -> Tensor:
        """Returns the square root."""
        return separation.clamp(min=0).sqrt()


@dataclass(frozen=True)
class SquaredError(Score):
    """The reduction of the gradients' squared error by a split, every output in units of its own deviation."""

    def scaled(self, gradient_RP: Tensor) -> Tensor:
        """Returns the gradients centred, over their standard deviation (n - 1); constant outputs are only centred."""
        centred = gradient_RP - gradient_RP.mean(0)
        spread = centred.square().sum(0).div(max(1, len(centred) - 1)).sqrt()
        return centred / torch.where(spread > 0, spread, 1.0)

    def of(self, separation: Tensor) -> Tensor:
        """Returns the separation unchanged."""
        return separation


class Shape(Choice, Protocol):
    """Grows a tree of one update; `depth` levels have 2^depth leaves."""

    depth: int

    def __call__(self, inputs_RF: Tensor, gradient_RP: Tensor, categorical_F: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (feature [C], value [C]): a condition for each level, or for each node (`splits.node_leaves`)."""


@dataclass(frozen=True)
class Oblivious(Shape):
    """Grows a tree with one condition per level: the one with the largest sum of scores over the level's nodes.

    Conditions are values of this batch, at most `bins` per numeric feature; none is used twice. Degenerate: a level
    without a remaining condition separates nothing.
    """

    depth: int = 4
    bins: int = 256
    score: Score = Cosine()

    def __call__(self, inputs_RF: Tensor, gradient_RP: Tensor, categorical_F: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (feature [D], value [D]) of each level."""
        asked = conditions(inputs_RF, categorical_F, self.bins)
        numbers, is_free = self.score.scaled(gradient_RP), asked.ask.clone()
        node = torch.zeros(len(inputs_RF), dtype=torch.int64, device=inputs_RF.device)
        feature = torch.zeros(self.depth, dtype=torch.int64, device=inputs_RF.device)
        value = torch.full((self.depth,), NOWHERE, dtype=inputs_RF.dtype, device=inputs_RF.device)
        for level in range(self.depth if bool(is_free.any()) else 0):
            scores_FK = self.score.of(separation(asked, node, 2**level, numbers)).sum(0)
            best = torch.where(is_free, scores_FK, -torch.inf).reshape(-1).argmax()
            f, k = best // is_free.shape[1], best % is_free.shape[1]
            if not bool(is_free[f, k]):
                break
            is_free[f, k] = False
            feature[level], value[level] = f, asked.value[f, k]
            node = 2 * node + answer(asked, f, k)
        return feature, value


@dataclass(frozen=True)
class NodeWise(Shape):
    """Grows a tree with one condition per node: the one with the largest score there (the authors' `greedy` trees).

    Conditions are values of this batch, at most `bins` per numeric feature. Degenerate: a node that no condition
    separates better than none keeps its rows together.
    """

    depth: int = 4
    bins: int = 256
    score: Score = Cosine()

    def __call__(self, inputs_RF: Tensor, gradient_RP: Tensor, categorical_F: Tensor) -> tuple[Tensor, Tensor]:
        asked, num = conditions(inputs_RF, categorical_F, self.bins), 2**self.depth - 1
        numbers, device = self.score.scaled(gradient_RP), inputs_RF.device
        node = torch.zeros(len(inputs_RF), dtype=torch.int64, device=device)
        feature = torch.zeros(num, dtype=torch.int64, device=device)
        value = torch.full((num,), NOWHERE, dtype=inputs_RF.dtype, device=device)
        for level in range(self.depth if bool(asked.ask.any()) else 0):
            first, size = 2**level - 1, 2**level
            scores_NC = torch.where(asked.ask, self.score.of(separation(asked, node, size, numbers)), -torch.inf)
            best, where = scores_NC.flatten(1).max(1)
            f, k = where // asked.ask.shape[1], where % asked.ask.shape[1]
            whole = numbers.new_zeros(size, numbers.shape[1]).index_add_(0, node, numbers).square().sum(1)
            alone = self.score.of(whole / torch.bincount(node, minlength=size).clamp(min=1))
            splits = best > alone * (1.0 + 1e-12)
            feature[first : first + size] = f
            value[first : first + size] = torch.where(splits, asked.value[f, k].to(value), value[0].new_tensor(NOWHERE))
            code, is_code = asked.code[f[node], torch.arange(len(node), device=device)], asked.categorical[f[node]]
            node = 2 * node + (torch.where(is_code, code == k[node], code > k[node]) & splits[node])
        return feature, value


def answer(asked: Conditions, f: Tensor, k: Tensor) -> Tensor:
    """Returns whether condition k of feature f is true, row by row."""
    return torch.where(asked.categorical[f], asked.code[f] == k, asked.code[f] > k)


@dataclass(frozen=True)
class Boost(Optimizer):
    """f <- f - learning_rate * rates[model] * tree (arXiv:2407.08250): a leaf is the mean gradient of its rows.

    Gradients are per row: the mean over R rows is undone, so that the step does not depend on the batch size. With
    `shared` the models of a stage have trees of one structure, fitted to all their outputs, with separate leaves.
    `inner` updates the parameters beside the trees (a Gaussian's deviation).
    """

    learning_rate: float | Schedule = 0.1
    rates: Mapping[str, float] = field(default_factory=dict)
    tree: Shape = Oblivious()
    shared: bool = True
    inner: Optimizer = Adam(3e-4, clip_norm=0.0)
    clip_norm: float = 0.0

    def init(self, values: Sequence[Tensor]) -> State:
        """Returns the state of the inner optimizer."""
        return {"inner": self.inner.init(values)}

    def step(self, values: Sequence[Tensor], gradients: Sequence[Tensor], sums: Sums, state: State) -> None:
        """Updates the parameters, if there are any."""
        if any(len(each) for each in values):
            self.inner.step(values, gradients, sums, state["inner"])

    def grow(self, fits: Sequence[Fit], state: State) -> None:
        """Adds one tree to each model, of one structure if they share it."""
        for group in [fits] if self.shared else [[fit] for fit in fits]:
            inputs, num = group[0].inputs, len(group[0].inputs)
            if any(fit.inputs.shape != inputs.shape or not torch.equal(fit.inputs, inputs) for fit in group[1:]):
                names = ", ".join(fit.name for fit in group)
                raise AssayError(f"{names} saw different inputs in one update, so no tree fits all. Set shared=False")
            if num:
                gradient = torch.cat([num * fit.gradient.double() for fit in group], 1)
                self._add(group, inputs, gradient)

    def _add(self, group: Sequence[Fit], inputs: Tensor, gradient_RP: Tensor) -> None:
        categorical = group[0].module.categorical
        feature, value = self.tree(inputs, gradient_RP, categorical)
        num = 2**self.tree.depth
        leaf = leaves_of(inputs, feature[None], value[None], categorical, num)[0].long()
        mean_LP = leaf_means(leaf, gradient_RP, num)
        for fit, own in zip(group, mean_LP.split([fit.gradient.shape[1] for fit in group], 1), strict=True):
            fit.module.add(feature, value, -number(self.learning_rate) * self.rates.get(fit.name, 1.0) * own)
