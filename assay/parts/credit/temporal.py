"""Credit along time: generalised advantage estimation and reward to go. Axes: B sequences, T decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from assay.core.record import Experience, Need, State
from assay.core.slots import Credit, Scene
from assay.ops import groups, returns


@dataclass(frozen=True)
class Gae(Credit):
    """Generalised advantage estimation (arXiv:1506.02438).

        A_t = sum_k (discount * gae_lambda)^k delta_(t+k),  delta_t = r_t + discount * V(s_(t+1)) - V(s_t)
        return_t = A_t + V(s_t)

    Terminal steps do not bootstrap; truncated steps and the end of a fragment do. `gae_lambda` is the paper's lambda.
    Degenerate: gae_lambda 0 gives delta_t; 1 gives, where the episode terminates, the reward to go minus V(s_t).
    Assumes a value for every context, in column `value`.
    """

    discount: float = 0.99
    gae_lambda: float = 0.95
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VALUE})
    centred: ClassVar[bool] = False
    writes: ClassVar[Mapping[str, str]] = {"advantage": "BT", "return": "BT: regression target of the critic"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        value = experience.column("value")
        advantage = returns.gae(
            experience.reward,
            value,
            experience.mask,
            experience.terminal,
            experience.truncated,
            self.discount,
            self.gae_lambda,
        )
        return experience.add({"advantage": advantage, "return": (advantage + value) * experience.mask})


@dataclass(frozen=True)
class RewardToGo(Credit):
    """G_t = r_t + discount * G_(t+1), without a critic; a truncated episode counts the rewards that were seen.

    Degenerate: discount 0 gives each decision its own reward. Source: Williams 1992. Assumes that earlier rewards do
    not depend on later decisions.
    """

    discount: float = 1.0
    centred: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ("advantage", "return")

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Writes `advantage` and `return`, both the reward to go."""
        to_go = returns.discounted_returns(
            experience.reward, experience.mask, experience.terminal, experience.truncated, self.discount
        )
        return experience.add({"advantage": to_go, "return": to_go})


@dataclass(frozen=True)
class Whiten(Credit):
    """advantage <- (advantage - mean) / (std + epsilon) over all decisions of the batch; place it after another
    credit.

    With `centre` false only the scale changes. Degenerate: fewer than two decisions, or equal advantages, give 0 when
    centred. Source: arXiv:2006.05990, normalised advantages. Assumes that an earlier part wrote `advantage`.
    """

    centre: bool = True
    epsilon: float = 1e-8
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "mean and deviation are those of the whole batch"}
    centred: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("advantage",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        advantage, mask = experience.column("advantage"), experience.mask
        count = mask.sum().clamp(min=1)
        mean = groups.inside((advantage * mask).sum() / count, *groups.range_of(advantage, mask))
        centred = (advantage - mean) * mask
        deviation = (centred.square().sum() / (count - 1).clamp(min=1)).sqrt()
        return experience.add(
            {"advantage": (centred if self.centre else advantage * mask) / (deviation + self.epsilon)}
        )
