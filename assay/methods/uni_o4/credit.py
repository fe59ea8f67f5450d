"""Credit from critics alone, without rewards. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Credit, Scene
from assay.parts.credit.judged import ActionValues


def some_values(experience: Experience) -> Tensor:
    """Returns stand-in values for the contract tests, where no critic has written any."""
    return experience.reward + 0.5 * experience.column("value")


@dataclass(frozen=True)
class CriticAdvantage(Credit):
    """A(s, a) = min_i Q_i(s, a) - V(s), from the critics `q` and `value`; rewards are not read (arXiv:2302.11312)."""

    needs: ClassVar[frozenset[Need | Annotation]] = frozenset({Need.VALUE, ActionValues()})
    centred: ClassVar[bool] = False
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {"q": some_values}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        value = experience.column("q") - experience.column("value")
        return experience.add({"advantage": torch.where(experience.mask, value, 0.0)})
