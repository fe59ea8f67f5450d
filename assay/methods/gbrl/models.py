"""A growing sum of decision trees: f(x) = sum_i leaf_i(x). Axes: M trees, C conditions, F features, P outputs."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from assay.method import Ask, AssayError, Body, Box, Context, Discrete, Spec, State
from assay.methods.gbrl.splits import leaves_of
from assay.models import feature_size, features, shaped

AT_ONCE = 4_000_000
"""Leaves looked up at a time."""


def categorical_features(spec: Spec, codes: tuple[int, ...]) -> Tensor:
    """Returns which features are categorical, [F]: those named, and a numbered state."""
    if isinstance(spec.observation, Discrete):
        return torch.ones(1, dtype=torch.bool)
    if not isinstance(spec.observation, Box):
        raise AssayError(f"trees cannot read {spec.observation}; they need vectors or numbered states")
    size = feature_size(spec)
    if codes and not 0 <= min(codes) <= max(codes) < size:
        raise AssayError(f"codes={codes} names a feature beyond the {size} of this task")
    return torch.tensor([feature in codes for feature in range(size)])


def tree_inputs(context: Context) -> Tensor:
    """Returns the observation and goal, or the number of the state as the only feature."""
    return context["state"].unsqueeze(-1).float() if "state" in context else features(context)


def appended(rows: Tensor, new: Tensor) -> Tensor:
    """Returns `rows` with one more. Their memory doubles when it is full, so that n rows cost O(n) copies in total.

    The result may share memory with `rows`, which stay as they are.
    """
    num, shape = len(rows), rows.shape[1:]
    room = rows.untyped_storage().nbytes() // max(1, rows.element_size() * shape.numel())
    if rows.is_contiguous() and rows.storage_offset() == 0 and room > num:
        longer = rows.as_strided((num + 1, *shape), rows.stride())
    else:
        longer = rows.new_empty(max(64, 2 * num), *shape)[: num + 1]
        longer[:num] = rows
    longer[num] = new
    return longer


class TreeSum(nn.Module):
    """[..., F] -> [..., P]. Trees are added, never changed: each keeps its step size, inside its leaves.

    It is trained by the gradient of its outputs: between `record` and `recorded`, outputs are leaves of the autograd
    graph.
    """

    feature: Tensor
    value: Tensor
    leaf: Tensor
    categorical: Tensor

    def __init__(self, categorical_F: Tensor, num_outputs: int) -> None:
        super().__init__()
        self.num_outputs = num_outputs
        self.register_buffer("categorical", categorical_F, persistent=False)
        self.register_buffer("feature", torch.zeros(0, 1, dtype=torch.int64))
        self.register_buffer("value", torch.zeros(0, 1))
        self.register_buffer("leaf", torch.zeros(0, 2, num_outputs))
        self._kept: list[tuple[Tensor, Tensor]] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the sum of all trees; while recording, equal inputs return the same leaf of the graph."""
        if self._kept is None or not torch.is_grad_enabled():
            return self.predict(inputs)
        for known, outputs in self._kept:
            if known is inputs:
                return outputs
        self._kept.append((inputs, self.predict(inputs).requires_grad_()))
        return self._kept[-1][1]

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        """Returns the outputs row by row, in parts of bounded size."""
        rows = inputs.reshape(-1, inputs.shape[-1])
        size = max(1, AT_ONCE // max(1, len(self.feature)))
        parts = [self._sum(rows[first : first + size]) for first in range(0, len(rows), size)]
        outputs = torch.cat(parts) if parts else self.leaf.new_zeros(0, self.num_outputs)
        return outputs.view(*inputs.shape[:-1], self.num_outputs)

    def _sum(self, rows: Tensor) -> Tensor:
        num_trees, num_leaves = self.leaf.shape[:2]
        if not num_trees:
            return self.leaf.new_zeros(len(rows), self.num_outputs)
        leaf = leaves_of(rows.to(self.value.dtype), self.feature, self.value, self.categorical, num_leaves)
        leaf += torch.arange(0, num_trees * num_leaves, num_leaves, dtype=leaf.dtype, device=leaf.device)[:, None]
        return nn.functional.embedding_bag(leaf.T.contiguous(), self.leaf.flatten(0, 1), mode="sum")

    def add(self, feature_C: Tensor, value_C: Tensor, leaf_LP: Tensor) -> None:
        """Adds a tree of the same shape as the others."""
        if not len(self.feature):
            self.regrow({"feature": feature_C[None], "value": value_C[None], "leaf": leaf_LP[None]})
            return
        if self.feature.shape[1] != len(feature_C):
            raise AssayError(f"a tree of {len(feature_C)} conditions among trees of {self.feature.shape[1]}")
        self.feature = appended(self.feature, feature_C)
        self.value, self.leaf = appended(self.value, value_C), appended(self.leaf, leaf_LP)

    # ------------------------------------------------------------------------------------------------ grown
    def record(self) -> None:
        """Starts to keep inputs and outputs."""
        self._kept = []

    def recorded(self) -> list[tuple[Tensor, Tensor]]:
        """Returns the inputs and outputs kept since `record`."""
        kept, self._kept = self._kept or [], None
        return kept

    def growth(self) -> State:
        """Returns the trees."""
        return {"feature": self.feature, "value": self.value, "leaf": self.leaf}

    def regrow(self, state: State) -> None:
        """Replaces the trees by these."""
        self.feature = state["feature"].to(self.feature).clone()
        self.value, self.leaf = state["value"].to(self.value).clone(), state["leaf"].to(self.leaf).clone()

    def follow(self, other: Any, rate: float) -> None:
        """Averages both sums: own trees scaled by 1 - rate, the other's by rate; shared trees are merged."""
        if rate == 1.0:
            self.regrow(other.growth())
            return
        shared = min(len(self.feature), len(other.feature))
        same = (self.feature[:shared] == other.feature[:shared]) & (self.value[:shared] == other.value[:shared])
        if len(self.feature) > shared or not bool(same.all()):
            raise AssayError("a target network of trees can only track the ensemble that it was copied from")
        missing = torch.zeros_like(other.leaf[shared:])
        self.feature, self.value = other.feature.clone(), other.value.clone()
        self.leaf = torch.cat([self.leaf, missing]).lerp(other.leaf, rate) if shared else other.leaf * rate


class TreeOutputs(nn.Module):
    """Outputs of a sum of trees; 0 before the first tree."""

    def __init__(self, categorical_F: Tensor, ask: Ask) -> None:
        super().__init__()
        self.trees, self.shape = TreeSum(categorical_F, ask.num), ask.shape

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns outputs [..., *shape]."""
        return shaped(self.trees(tree_inputs(context)), self.shape)


@dataclass(frozen=True)
class Trees(Body):
    """A sum of decision trees; a head's own parameters (a standard deviation) stay parameters.

    `codes` are categorical features, tested for equality. A numbered state is always categorical.
    """

    codes: tuple[int, ...] = ()
    scale_free: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {"learns": "trained by the gradient of its outputs; trees are not parameters"}

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        if ask.members or ask.action:
            raise AssayError("Trees() reads states only and is a single sum; this head needs more. Use Perceptron()")
        return TreeOutputs(categorical_features(spec, self.codes), ask)
