"""A table of numbers for each state: what it learns can be computed by enumeration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body
from assay.core.spaces import Context, Discrete, Spec


class Numbers(nn.Module):
    """table[state], [..., *shape]; members are the last axis of the table and the first of what it gives."""

    def __init__(self, num_states: int, ask: Ask) -> None:
        super().__init__()
        self.num_members = ask.members
        self.table = nn.Parameter(torch.zeros(num_states, *ask.shape, *([ask.members] if ask.members else [])))

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """The numbers of the states."""
        found = self.table[context["state"]]
        return found.movedim(-1, 0)[:num] if self.num_members else found


@dataclass(frozen=True)
class Table(Body):
    """A number of its own for each state, all 0 at first; for tasks with numbered states and actions."""

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        """The table for this task."""
        if not isinstance(spec.observation, Discrete) or ask.action:
            raise AssayError(
                f"a table needs numbered states and actions, the task has {spec.observation} and {spec.action}"
            )
        return Numbers(spec.observation.n, ask)
