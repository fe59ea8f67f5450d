"""Binary conditions on rows of features, and how well they separate numbers. Axes: R rows, F features, K conditions
of a feature, N nodes, P outputs, M trees, D levels.

A numeric feature is tested by `x > v`, a categorical one by `x == v`, where v is a value of some row.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Conditions:
    """Conditions (feature f, value[f, k]) on R rows; `ask` [F, K] marks those that separate rows at all.

    `code` [F, R]: a numeric condition k is true where code > k, a categorical one where code == k.
    """

    not_a_part: ClassVar[str] = "a value that split search returns"

    value: Tensor
    ask: Tensor
    code: Tensor
    categorical: Tensor


def conditions(inputs_RF: Tensor, categorical_F: Tensor, bins: int) -> Conditions:
    """Returns all distinct values if there are at most `bins` + 1 rows, else `bins` values at equal-count quantiles;
    all categories. Depends only on the order of a numeric feature's values.
    """
    rows, num = inputs_RF.T.contiguous(), len(inputs_RF)
    ordered = rows.sort(-1).values
    count = min(bins, num - 1)
    places = torch.arange(count, device=rows.device) * num // max(1, count + (num > bins + 1)) if count else None
    value = ordered[:, :0] if places is None else ordered[:, places]
    ask = value < ordered[:, -1:]
    ask[:, 1:] &= value[:, 1:] != value[:, :-1]
    # Conditions that separate rows come first and others are dropped, so that features with few values cost little.
    most = int(ask.sum(1).max())
    order = ask.int().argsort(dim=1, descending=True, stable=True)[:, :most]
    ask = ask.gather(1, order)
    value = torch.where(ask, value.gather(1, order), torch.inf)
    code = torch.searchsorted(value, rows)
    for f in categorical_F.nonzero().squeeze(1).tolist():
        found, code[f] = torch.unique(rows[f], return_inverse=True)
        value, ask = widened(value, len(found)), widened(ask, len(found))
        value[f, : len(found)], ask[f] = found, False
        ask[f, : len(found)] = len(found) > 1
    return Conditions(value, ask, code, categorical_F)


def widened(table_FK: Tensor, num: int) -> Tensor:
    """Pads to at least `num` columns with zeros."""
    return torch.nn.functional.pad(table_FK, (0, max(0, num - table_FK.shape[1])))


def separation(asked: Conditions, node_R: Tensor, num_nodes: int, numbers_RP: Tensor) -> Tensor:
    """Returns |S_L|^2 / n_L + |S_R|^2 / n_R for each node and condition, [N, F, K]; S are sums and n counts of the
    rows of the node where the condition is false and true. An empty side counts 0.
    """
    num_features, num_values = asked.ask.shape
    feature = torch.arange(num_features, device=node_R.device)[:, None]
    place = (node_R[None] * num_features + feature) * (num_values + 1) + asked.code
    columns = torch.cat([numbers_RP, torch.ones_like(numbers_RP[:, :1])], 1)
    filled = columns.new_zeros(num_nodes * num_features * (num_values + 1), columns.shape[1])
    filled.index_add_(0, place.reshape(-1), columns.repeat(num_features, 1))
    histogram = filled.view(num_nodes, num_features, num_values + 1, -1)
    total = histogram.sum(2, keepdim=True)
    is_equal = asked.categorical[None, :, None, None]
    true = torch.where(is_equal, histogram, total - histogram.cumsum(2))[:, :, :num_values]
    false = total - true
    squares = [side[..., :-1].square().sum(-1) / side[..., -1].round().clamp(min=1) for side in (true, false)]
    return squares[0] + squares[1]


def leaf_numbers(inputs_RF: Tensor, feature_MD: Tensor, value_MD: Tensor, categorical_F: Tensor) -> Tensor:
    """Returns the leaf [M, R] of each row in each of M oblivious trees: one bit per level, the first level's the
    highest.
    """
    num_trees, depth = feature_MD.shape
    feature, value = feature_MD.reshape(-1), value_MD.reshape(-1, 1)
    seen = inputs_RF.T.contiguous().index_select(0, feature)
    true = seen > value
    if bool(categorical_F.any()):
        true = torch.where(categorical_F[feature, None], seen == value, true)
    bits = true.view(num_trees, depth, -1)
    leaf = torch.zeros(num_trees, len(inputs_RF), dtype=torch.uint8 if depth <= 8 else torch.int32, device=seen.device)
    for level in range(depth):
        leaf.add_(bits[:, level].view(torch.uint8), alpha=2 ** (depth - 1 - level))
    return leaf.int()


def node_leaves(inputs_RF: Tensor, feature_MC: Tensor, value_MC: Tensor, categorical_F: Tensor) -> Tensor:
    """Returns the leaf [M, R] of each row in each of M trees with a condition for every node: C = 2^D - 1 of them,
    those of a level after those of the level above, from left (false) to right.
    """
    num_trees, num_nodes = feature_MC.shape
    node = torch.zeros(num_trees, len(inputs_RF), dtype=torch.int64, device=inputs_RF.device)
    row = torch.arange(len(inputs_RF), device=inputs_RF.device).expand_as(node)
    for _ in range(num_nodes.bit_length()):
        feature, value = feature_MC.gather(1, node), value_MC.gather(1, node)
        seen = inputs_RF[row, feature]
        node = 2 * node + 1 + torch.where(categorical_F[feature], seen == value, seen > value)
    return (node - num_nodes).int()


def leaves_of(inputs_RF: Tensor, feature_MC: Tensor, value_MC: Tensor, categorical_F: Tensor, num: int) -> Tensor:
    """Returns the leaf [M, R] of each row in trees of `num` leaves: with a condition for each level, or each node."""
    is_oblivious = 2 ** feature_MC.shape[1] == num
    return (leaf_numbers if is_oblivious else node_leaves)(inputs_RF, feature_MC, value_MC, categorical_F)


def leaf_means(leaf_R: Tensor, numbers_RP: Tensor, num: int) -> Tensor:
    """Returns the mean of the numbers in each leaf, [num, P]; 0 in an empty one."""
    sums = numbers_RP.new_zeros(num, numbers_RP.shape[1]).index_add_(0, leaf_R, numbers_RP)
    return sums / torch.bincount(leaf_R, minlength=num).clamp(min=1).unsqueeze(1)
