"""An actor by the minimum of several action values. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import ActorSpec
from assay.core.spaces import Context, Spec
from assay.models.heads.value import Acting, Greedy
from assay.models.model import Policy


class MaxMinQ(Acting):
    """a = argmax_a min_j Q_j(s, a): the action whose lowest value is highest."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.num_actions = int(members[0].num_actions)  # type: ignore[arg-type]

    def values(self, context: Context) -> Tensor:
        """Returns min_j Q_j(s, .), [..., A]."""
        return torch.stack([member.values(context) for member in self.members]).amin(0)  # type: ignore[operator]


@dataclass(frozen=True)
class MaxMin(ActorSpec):
    """`num` Q-networks, trained elsewhere and transferred to `members.0`, `members.1`, ...; equal ones act as one."""

    member: Policy = Policy(head=Greedy())
    num: int = 3

    def build(self, spec: Spec) -> nn.Module:
        """Returns the module for this task."""
        if self.num < 1:
            raise AssayError(f"MaxMin: num={self.num} leaves no values. Use 1 or more")
        return MaxMinQ([self.member.build(spec) for _ in range(self.num)])
