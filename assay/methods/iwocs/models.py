"""An actor by the minimum of several action values. Axes: B, T, N rows, A actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import ActorSpec
from assay.core.spaces import Context, Spec
from assay.methods.iwocs.validity import Coding
from assay.models.heads.value import Acting, Greedy
from assay.models.model import Policy


class MaxMinQ(Acting):
    """a = argmax_a min_j Q_j(s, a) over the j whose coder finds (s, a) valid, or over all if none does."""

    def __init__(self, members: Sequence[nn.Module], coders: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.members, self.coders = nn.ModuleList(members), nn.ModuleList(coders)
        self.num_actions = int(members[0].num_actions)  # type: ignore[arg-type]

    def values(self, context: Context) -> Tensor:
        """Returns min_j Q_j(s, .) over valid j, [..., A]."""
        values = torch.stack([member.values(context) for member in self.members])  # type: ignore[operator]
        if not self.coders:
            return values.amin(0)
        valid = torch.stack([coder.valid(context) for coder in self.coders])  # type: ignore[operator]
        return torch.where(valid | ~valid.any(0), values, torch.inf).amin(0)


@dataclass(frozen=True)
class MaxMin(ActorSpec):
    """`num` Q-networks, trained elsewhere and transferred to `members.0`, `members.1`, ...; equal ones act as one.

    `coder` tests where each has data, one for each network in `coders.0`, ...; without it they count everywhere.
    """

    member: Policy = Policy(head=Greedy())
    num: int = 3
    coder: Coding | None = Coding()

    def build(self, spec: Spec) -> nn.Module:
        """Returns the module for this task."""
        if self.num < 1:
            raise AssayError(f"MaxMin: num={self.num} leaves no values. Use 1 or more")
        coders = [] if self.coder is None else [self.coder.build(spec) for _ in range(self.num)]
        return MaxMinQ([self.member.build(spec) for _ in range(self.num)], coders)
