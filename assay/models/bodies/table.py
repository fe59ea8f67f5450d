"""A table with an entry for each state, whose optimum can be computed by enumeration.

Axes: B, T, S states, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from assay.core.errors import AssayError
from assay.core.slots import Ask, Body
from assay.core.spaces import Context, Discrete, Spec


class Numbers(nn.Module):
    """table[state] or table[state, action]; members are the table's last axis and the output's first."""

    def __init__(self, *shape: int, members: int = 0) -> None:
        super().__init__()
        self.num_members = members
        self.table = nn.Parameter(torch.zeros(*shape, *([members] if members else [])))

    def forward(self, context: Context, action: Tensor | None = None, num: int | None = None) -> Tensor:
        """Returns the entries of the states, or of the actions in them."""
        found = self.table[context["state"]] if action is None else self.table[context["state"], action]
        return found.movedim(-1, 0)[:num] if self.num_members else found


@dataclass(frozen=True)
class Table(Body):
    """A separate entry for each state, initialised to 0; for tasks with numbered states and actions."""

    def outputs(self, spec: Spec, ask: Ask) -> nn.Module:
        fits = isinstance(spec.action, Discrete) or not ask.action
        if not isinstance(spec.observation, Discrete) or not fits:
            raise AssayError(
                f"a table needs discrete states and actions, the task has {spec.observation} and {spec.action}"
            )
        actions = (spec.action.n,) if ask.action and isinstance(spec.action, Discrete) else ()
        return Numbers(spec.observation.n, *actions, *ask.shape, members=ask.members)
