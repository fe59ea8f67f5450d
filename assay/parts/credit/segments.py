"""Credit over segments: runs of decisions credited as one. Axes: B sequences, T decisions.

`Spans` writes the column `segment`, `SegmentGae` reads it: equal numbers on neighbouring decisions are one segment. An
episode's end always ends one; without the column every decision is its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Prepare, Scene
from assay.ops import returns
from assay.parts.credit.neighbours import decision_after, decision_before


def segment_begins(experience: Experience, goes_on_BT: Tensor) -> Tensor:
    """Marks the first decision of each segment, bool [B, T]."""
    there, before = decision_before(experience.mask)
    inside = there & goes_on_BT.gather(1, before)
    segment = experience.segment
    inside = inside & (segment.gather(1, before) == segment) if segment is not None else torch.zeros_like(inside)
    return experience.mask & ~inside


@dataclass(frozen=True)
class Spans(Prepare):
    """Segments of `length` decisions, counted from each episode's first decision in the row; the last is shorter.

    Writes `segment`. MA-RLHF's fixed n-gram rule (arXiv:2410.02743). Degenerate: length 1 makes every decision its own
    segment, a length beyond the episode's makes the whole episode one. Assumes that neighbouring decisions belong
    together.
    """

    length: int = 5

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Numbers the segments of each row from 1."""
        mask = experience.mask
        over = (experience.terminal | experience.truncated) & mask
        count = mask.long().cumsum(1)
        episode_begin = pad(torch.where(over, count, 0).cummax(1).values[:, :-1], (1, 0))
        begins = mask & ((count - 1 - episode_begin) % self.length == 0)
        return replace(experience, segment=begins.long().cumsum(1))


@dataclass(frozen=True)
class SegmentGae(Credit):
    """GAE over segments as single steps of a semi-Markov process, the same on all their decisions.

        A_k = R_k + discount^n_k * V_(k+1) - V_k + discount^n_k * gae_lambda * A_(k+1), R_k = sum_i discount^i r_(t_k+i)

    V_k is the value at the segment's first state, so credit is unbiased if the critic is exact. Within a segment
    nothing decays. `return` is each state's own: A + V as if it started there. Terminal steps do not bootstrap;
    truncated ones do. Degenerate: one decision per segment is Gae, one segment per episode its return minus V(first).
    Source: arXiv:1506.02438; arXiv:2410.02743. Assumes that an earlier part wrote `segment`.
    """

    discount: float = 0.99
    gae_lambda: float = 0.95
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})
    centred: ClassVar[bool] = False
    breaks: ClassVar[dict[str, str]] = {
        "episodes": "credit along time ends with its row; inside a segment a reward also reaches the decisions after it"
    }
    writes: ClassVar[tuple[str, ...]] = ("advantage", "return")

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        value, mask = experience.column("value"), experience.mask
        after, goes_on = returns.following_value(value, mask, experience.terminal, experience.truncated)
        begins = segment_begins(experience, goes_on)
        column = torch.arange(mask.shape[1], device=mask.device)
        leaves = pad(begins, (0, 1)).gather(1, decision_after(mask))
        trace = goes_on * torch.where(leaves, value.new_tensor(self.gae_lambda), value.new_tensor(1.0))
        delta = experience.reward + self.discount * after - value
        own = returns.accumulate(delta, self.discount, mask, trace)
        first = torch.where(begins, column, 0).cummax(1).values
        return experience.add({"advantage": own.gather(1, first) * mask, "return": (own + value) * mask})
