"""Targets of classifiers: one side of what is to be told apart. Axes: B sequences, T columns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.record import Experience, Origin
from assay.core.slots import Prediction, Target, View
from assay.parts.critics.td import Td
from assay.parts.fits.logistic import Logistic


@dataclass(frozen=True)
class Label(Target):
    """y = `value` for the rows of one `origin`: one side of a classifier, whose loss has a mean of its own.

    `after` labels the context after each decision, `solved` only decisions that solved the task, by the column
    `success`. Rows without a column `source` are the policy's. Degenerate: without a row of that origin nothing is
    labelled, and the count is 0. Source: by definition. Assumes that the origin of a row says its label.
    """

    value: float = 1.0
    origin: int = int(Origin.POLICY)
    after: bool = False
    solved: bool = False

    def rows(self, batch: Experience) -> Experience:
        now = batch.now if self.after else batch
        there = now.mask & now.column("success") if self.solved else now.mask
        if batch.source is not None:
            there = there & (batch.source == self.origin).unsqueeze(1)
        elif self.origin != Origin.POLICY:
            there = torch.zeros_like(there)
        return (batch.after if self.after else batch).with_columns(mask=there)

    def __call__(self, batch: Experience, view: View) -> Tensor:
        return torch.full_like(self.rows(batch).reward, self.value)


def told_apart(of: Prediction, *labels: Label) -> tuple[Td, ...]:
    """Returns the losses of a classifier, one for each label: they tell origins apart whatever their numbers are.

    told_apart(of, Label(1.0), Label(0.0, Origin.DATASET)) tells what the policy did from the log.
    """
    return tuple(Td(label, Logistic(), of) for label in labels)
