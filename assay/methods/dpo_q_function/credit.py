"""The implicit reward of a policy, per decision. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Scene


@dataclass(frozen=True)
class ImplicitReward(Credit):
    """advantage_t = beta (log pi(a_t | s_t) - log pi_ref(a_t | s_t)), of the behaviour policy.

    For a policy that is optimal for some reward at beta (DPO's assumption) this is r_t + V*(s_(t+1)) - V*(s_t), the
    soft advantage in the token MDP (arXiv:2404.12358). Over an episode it sums to the reward minus V* of the start.
    Assumes that `logp` is that of the policy to be read. Degenerate: at the reference it is 0 everywhere.
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
