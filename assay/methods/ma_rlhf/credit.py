"""MA-RLHF's perplexity rule for segments. Axes: B sequences, T decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Prepare, Scene
from assay.parts.credit.neighbours import decision_before


@dataclass(frozen=True)
class FallingPerplexity(Prepare):
    """Extends a segment while its decisions grow likelier under the reference: MA-RLHF's perplexity rule.

    Writes `segment`; a decision with a lower log-probability than the previous one starts a new segment.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({Need.REFERENCE})

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Numbers the segments of each row from 1."""
        logp_ref, mask = experience.column("logp_ref"), experience.mask
        there, before = decision_before(mask)
        begins = mask & (~there | (logp_ref < logp_ref.gather(1, before)))
        return replace(experience, segment=begins.long().cumsum(1))
