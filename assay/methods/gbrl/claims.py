"""One step of boosting on given gradients, and the same by brute force. Axes: R rows, F features, P outputs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.core.record import Fit
from assay.methods.gbrl.models import TreeSum
from assay.methods.gbrl.optimizer import Boost


def grown(
    boost: Boost, inputs_RF: Tensor, gradients: Mapping[str, Tensor], codes: tuple[int, ...] = ()
) -> dict[str, TreeSum]:
    """Returns sums of one tree each, by model: the update for these gradients [R, P] at these inputs.

    Gradients are per row; features in `codes` are tested for equality.
    """
    num, num_features = inputs_RF.shape
    categorical = torch.tensor([feature in codes for feature in range(num_features)])
    sums = {name: TreeSum(categorical, each.shape[1]).to(inputs_RF.dtype) for name, each in gradients.items()}
    boost.grow([Fit(name, sums[name], inputs_RF, each / num) for name, each in gradients.items()], {})
    return sums


def best_split_error(inputs_RF: Tensor, gradient_RP: Tensor) -> float:
    """Returns the smallest squared error that the means of the two sides of any threshold leave."""
    best = float("inf")
    for column in inputs_RF.T:
        for value in column:
            sides = [gradient_RP[column > value], gradient_RP[column <= value]]
            best = min(best, sum(float((side - side.mean(0)).square().sum()) for side in sides if len(side)))
    return best


def leaf_means_one_by_one(tree: TreeSum, inputs_RF: Tensor, gradient_RP: Tensor) -> Tensor:
    """Returns for each row the mean gradient of the rows that answer all conditions of the first tree alike."""
    asked, value = inputs_RF[:, tree.feature[0]], tree.value[0]
    answers = torch.where(tree.categorical[tree.feature[0]], asked == value, asked > value)
    return torch.stack([gradient_RP[(answers == answer).all(1)].mean(0) for answer in answers])
