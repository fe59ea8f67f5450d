"""What rare, plausible tokens of failed answers are held to. Axes: B rows, T decisions, N, V."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, State
from assay.core.settings import model_name
from assay.core.slots import Prepare, Scene
from assay.ops.divergences import k3
from assay.ops.logits import over_logits
from assay.parts.regularizers.divergence import NEVER


def filtered_logp(logits_NV: Tensor, action_N: Tensor, floor: float) -> Tensor:
    """Returns log q of the action, q the tokens of at least `floor` times the largest probability, renormalised, [N];
    NEVER if it was dropped.
    """
    logp = logits_NV.log_softmax(-1)
    least = logp.amax(-1, keepdim=True) + (math.log(floor) if floor else -math.inf)
    kept = torch.where(logp >= least, logp, -math.inf)
    found = kept - kept.logsumexp(-1, keepdim=True)
    return found.gather(-1, action_N.unsqueeze(-1)).squeeze(-1).clamp(min=NEVER)


def pull(log_ratio: Tensor) -> Tensor:
    """Returns min(k3, 10), k3 = e^d - d - 1, d = log q - log pi, where d > 0, else 0: above 10 without a gradient."""
    return k3(log_ratio.clamp(-20.0, 0.0)).clamp(max=10.0)


@dataclass(frozen=True)
class HoldUnlikely(Prepare):
    """Writes `logp_held` [B, T]: log q of the decision under the filtered acting policy if its advantage is negative
    and its recorded log-probability among the lowest `share` of those; NEVER elsewhere.

    Degenerate: if the share is less than two decisions, none is chosen.
    """

    floor: float = 0.02
    share: float = 0.01
    actor: str = model_name("actor")
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("logp_held",)
    not_a_part: ClassVar[str] = "the laws have no models here: the method's claims run it"

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes the column."""
        blamed = experience.mask & (experience.column("advantage") < 0)
        chosen, num = torch.zeros_like(blamed), int(self.share * int(blamed.sum()))
        if num > 1:
            chosen = blamed & (experience.logp <= experience.logp[blamed].kthvalue(num).values)
        of_rows = partial(over_logits, function=partial(filtered_logp, floor=self.floor))
        found = scene.models.over(self.actor, experience, of_rows)
        return experience.add({"logp_held": torch.where(chosen, found, NEVER)})
