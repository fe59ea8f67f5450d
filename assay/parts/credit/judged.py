"""Columns of critics that credit reads. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.core.slots import Annotation, Over


@dataclass(frozen=True)
class ActionValues(Annotation):
    """Column `q`: min_i Q_i(s, a) of the recorded decisions by the critic `q`, zero where masked.

    Degenerate: a critic with one member gives its Q(s, a); an empty mask gives zeros. Source: by definition. Assumes a
    critic of actions with that name.
    """

    column: ClassVar[str] = "q"
    means: ClassVar[str] = "BT: value of the recorded action"
    model: ClassVar[str] = "q"

    def __call__(self, experience: Experience, over: Over) -> Tensor:
        return over(experience, lambda q, rows: torch.where(rows.mask, q(rows.context, rows.action).amin(0), 0.0))
