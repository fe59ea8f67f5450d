"""Targets without a next state: a column of the record, or the value of the recorded action. Axes: B, T, N critics."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.settings import model_name
from assay.core.slots import Target, View


@dataclass(frozen=True)
class Column(Target):
    """y = a column written by the credit or a constraint, for all decisions: `return`, `cost_return`.

    Degenerate: a decision in the last column has a target too. Source: by definition. Assumes that an earlier part
    wrote the column.
    """

    name: str = "return"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def rows(self, batch: Experience) -> Experience:
        """Returns all decisions, including the last column."""
        return batch

    def __call__(self, batch: Experience, view: View) -> Tensor:
        return batch.column(self.name).detach()


@dataclass(frozen=True)
class RecordedAction(Target):
    """y = min_i Q_i(s, a) of the recorded action, to which a state value is fitted by an expectile or implicit
    maximum.

    `largest` takes the maximum over the critics instead, which is the pessimistic choice for costs. Degenerate: with
    one critic, `largest` changes nothing. Source: arXiv:2110.06169. Assumes a critic of actions.
    """

    q: str = model_name("q_target")
    largest: bool = False

    @torch.no_grad()
    def __call__(self, batch: Experience, view: View) -> Tensor:
        values: Tensor = view.model(self.q)(batch.now.context, batch.now.action)
        return values.amax(0) if self.largest else values.amin(0)
