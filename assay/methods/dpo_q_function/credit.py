"""The reward that a policy holds implicitly, decision by decision. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Scene


@dataclass(frozen=True)
class ImplicitReward(Credit):
    """advantage_t = beta (log pi(a_t | s_t) - log pi_ref(a_t | s_t)), of the policy that acted.

    For a policy that is optimal for some reward at beta (what DPO's loss asks for) this is r_t + V*(s_(t+1)) - V*(s_t),
    the soft advantage in the token process (arXiv:2404.12358): how much each decision changed the prospects. Over an
    episode it sums to the reward minus V* of the start.
    Assumes that `logp` is of the policy to be read. Degenerate: at the reference it is 0 everywhere.
    """

    beta: float = 0.1
    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})
    centred: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage`."""
        log_ratio = (experience.logp - experience.column("logp_ref")) * experience.mask
        return experience.add({"advantage": self.beta * log_ratio})
