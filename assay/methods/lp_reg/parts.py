"""What rare, plausible tokens of failed answers are held to. Axes: B rows, T decisions, N, V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Prepare, Scene
from assay.ops.distributions import categorical_logp
from assay.ops.divergences import k3
from assay.ops.logits import over_logits
from assay.ops.ranks import smallest
from assay.parts.regularizers.divergence import NEVER
from assay.playing.narrowing import Narrowing


def pull(log_ratio: Tensor) -> Tensor:
    """Returns min(k3, 10), k3 = e^d - d - 1, d = log q - log pi, where d > 0, else 0: above 10 without a gradient."""
    return k3(log_ratio.clamp(-20.0, 0.0)).clamp(max=10.0)


@dataclass(frozen=True)
class HoldUnlikely(Prepare):
    """Writes `logp_held` [B, T]: log q, q the acting policy with `min_p`, of the `share` of decisions with a negative
    advantage that were least likely; NEVER elsewhere. Degenerate: a share of less than two decisions holds none.
    """

    min_p: float = 0.02
    share: float = 0.01
    actor: str = model_name("actor")
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("logp_held",)
    not_a_part: ClassVar[str] = "the laws have no models here: the method's claims run it"

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes the column."""

        def log_q(logits_NV: Tensor, action_N: Tensor) -> Tensor:
            return categorical_logp(Narrowing(min_p=self.min_p).of(logits_NV), action_N).clamp(min=NEVER)

        blamed = experience.mask & (experience.column("advantage") < 0)
        num = int(self.share * int(blamed.sum()))
        chosen = smallest(experience.logp, blamed, num if num > 1 else 0)
        found = scene.models.over(self.actor, experience, lambda actor, rows: over_logits(actor, rows, log_q))
        return experience.add({"logp_held": torch.where(chosen, found, NEVER)})
