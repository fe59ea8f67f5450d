"""Credit that is multiplied by a rule after it was computed. Axes: B rows, T decisions.

advantage_bt <- weight_bt * advantage_bt
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.slots import Annotation, Credit, CreditWeight, Prepare, Scene


@dataclass(frozen=True)
class BySign(CreditWeight):
    """Weighs positive and negative advantages differently: W-REINFORCE has 0.1 and 1 (arXiv:2506.01347).

    Degenerate: 1 and 1 change nothing; 0 removes one side. Assumes that the sign of an advantage says whether the
    answer was good.
    """

    positive: float = 1.0
    negative: float = 1.0

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        return torch.where(advantage_BT > 0, self.positive, self.negative).to(advantage_BT.dtype)


@dataclass(frozen=True)
class Reweigh(Credit):
    """Multiplies the advantage of every decision by the rule's weight. The group's sum is no longer zero.

    Degenerate: a rule with weight 1 everywhere, as `BySign()`, changes nothing. Source: arXiv:2506.01347. Assumes that
    an earlier part wrote `advantage`.
    """

    rule: CreditWeight = BySign()
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @property
    def needs(self) -> frozenset[Need | Annotation]:
        return self.rule.needs

    @property
    def breaks(self) -> dict[str, str]:
        """Laws that the rule does not obey, with the reason."""
        return self.rule.breaks

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        advantage = experience.column("advantage")
        return experience.add({"advantage": advantage * self.rule(advantage, experience) * experience.mask})


@dataclass(frozen=True)
class WithoutIdle(Prepare):
    """Masks rows whose advantages are all zero, so that they count in no mean: a loss is then averaged over the rows
    that teach something. Degenerate: if all rows are idle, no step is taken.

    Source: arXiv:2506.01347. Assumes that an earlier part wrote `advantage`.
    """

    reads: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        teaches = ((experience.column("advantage") != 0) & experience.mask).any(1, keepdim=True)
        return replace(experience, mask=experience.mask & teaches)
