"""Credit of decisions in unfinished episodes. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Prepare, Scene
from assay.ops import returns


def stops_open(experience: Experience) -> Tensor:
    """Marks the last decision of a row whose episode continues after it, bool [B, T]."""
    later = experience.mask.long().flip(1).cumsum(1).flip(1) - experience.mask.long()
    return experience.mask & (later == 0) & ~experience.terminal & ~experience.truncated


@dataclass(frozen=True)
class ExtendedGae(Credit):
    """GAE on a window (T-PPO, arXiv:2506.15050): if a row stops before its episode's end, the value after its last
    decision is taken to be the value before it, V(s_L) := V(s_(L-1)).

    A_t = delta_t + discount * decay * A_(t+1), delta_t = r_t + discount * V(s_(t+1)) - V(s_t). With discount 1 the
    last decision of such a row has advantage 0 and the others those of the window without it. Degenerate: ended rows
    have GAE's.
    """

    discount: float = 1.0
    gae_lambda: float = 0.95
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})
    centred: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ("advantage", "return")

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage` and `return`."""
        value, mask = experience.column("value"), experience.mask
        after, goes_on = returns.following_value(value, mask, experience.terminal, experience.truncated)
        after = torch.where(stops_open(experience), value, after)
        delta = experience.reward + self.discount * after - value
        advantage = returns.accumulate(delta, self.discount * self.gae_lambda, mask, goes_on)
        return experience.add({"advantage": advantage, "return": (advantage + value) * mask})


@dataclass(frozen=True)
class WithoutTail(Prepare):
    """Masks decisions in the last `num` positions of a window, whose credit is mostly the critic's estimate.

    Place it after a credit. `left` [B, T] is the number of positions left in the window after a decision. Answers that
    ended there lose their last decisions too: otherwise the decisions would determine whether they are trained on,
    which is biased.
    """

    num: int = 1
    needs: ClassVar[frozenset[Need]] = frozenset()
    reads: ClassVar[tuple[str, ...]] = ("left",)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {
        "left": lambda batch: batch.mask.long().flip(1).cumsum(1).flip(1) - 1
    }

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Narrows the mask."""
        return replace(experience, mask=experience.mask & (experience.column("left") >= self.num))
