"""A pull towards the filtered policy where a rare, plausible token was wrong. Axes: B rows, T decisions, V."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Loss, Need, State
from assay.core.settings import model_name
from assay.core.slots import Aggregation, Prepare, Regularizer, Scene, Schedule, View, number
from assay.ops.divergences import k3
from assay.ops.logits import over_logits
from assay.parts.aggregations import TokenMean, Weighed

NEVER = -1e4
"""log q of a token without a pull: below every log-probability."""


def filtered_logp(logits_NV: Tensor, action_N: Tensor, floor: float) -> Tensor:
    """Returns log q of the action, q the tokens of at least `floor` times the largest probability, renormalised, [N];
    NEVER if it was dropped.
    """
    logp = logits_NV.log_softmax(-1)
    least = logp.amax(-1, keepdim=True) + (math.log(floor) if floor else -math.inf)
    total = torch.where(logp >= least, logp, -math.inf).logsumexp(-1)
    chosen = logp.gather(-1, action_N.unsqueeze(-1))
    return torch.where(chosen >= least, chosen - total.unsqueeze(-1), NEVER).squeeze(-1)


@dataclass(frozen=True)
class FilterPolicy(Prepare):
    """Writes `logp_filtered` [B, T]: log q of the decision under the filtered acting policy if its advantage is
    negative and its recorded log-probability among the lowest `share` of those; NEVER elsewhere.

    Degenerate: if the share is less than two decisions, none is chosen.
    """

    floor: float = 0.02
    share: float = 0.01
    actor: str = model_name("actor")
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("logp_filtered",)
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
        return experience.add({"logp_filtered": torch.where(chosen, found, NEVER)})


@dataclass(frozen=True)
class PullUnlikely(Weighed, Regularizer):
    """coefficient * min(k3, 10), k3 = e^d - d - 1, d = log q - log pi, at decisions whose `logp_filtered`, log q, is
    above their log pi; 0 at the others. Where k3 exceeds 10 there is no gradient.
    """

    coefficient: float | Schedule = 1.0
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    divergence: ClassVar[bool] = False  # zero at the filtered policy, not at the reference
    reads: ClassVar[tuple[str, ...]] = ("logp_filtered",)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "logp_filtered": lambda batch: torch.where(batch.mask, batch.column("scored.logp") + 0.2, 100.0)
    }

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over decisions."""
        below = view.scored.logp - batch.column("logp_filtered").detach()
        pulled = batch.mask & (below < 0)
        distance = k3(torch.where(pulled, below, 0.0).clamp(min=-20.0)).clamp(max=10.0)
        metrics = {"pulled": (pulled.sum(), batch.num_decisions)}
        total = number(self.coefficient) * (distance * self.aggregate.weigh(batch)).sum()
        return Loss(total, self.count(batch), metrics)
