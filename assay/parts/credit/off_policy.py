"""Three policies in a ratio: the one that sampled, the one before the update, and the one that is trained.

    objective of a decision = w * trust(pi / pi_old, A),   w = pi_old / sampler, truncated or masked

Samples come from other weights, kernels, precisions or truncated distributions than those that an update begins with.
With one ratio pi / sampler a clip is around the sampler, so that old samples are clipped at once; with two it is around
pi_old, and what the sampler did is corrected for by a weight without gradient: decoupled PPO (arXiv:2110.00641). Axes:
B rows, T decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience, Origin, State
from assay.core.settings import model_name
from assay.core.slots import Credit, Prepare, RatioLevel, Scene, logp_of
from assay.decoding.sampling_parameters import LOGP_SAMPLER
from assay.parts.objectives.ratio import SequenceRatio, TokenRatio


@dataclass(frozen=True)
class OldPolicy(Prepare):
    """logp <- log pi_old, by the weights before the step's first update; the column `logp_sampler` keeps what was
    recorded.

    Rows that the policy did not sample keep their log-probability in both. Degenerate: samples of the same weights in
    the same arithmetic have equal columns.
    """

    actor: str = model_name("actor")
    not_a_part: ClassVar[str] = "the laws have no policy beside the one that sampled: tests of whole steps run it"
    writes: ClassVar[Mapping[str, str]] = {LOGP_SAMPLER: "BT: log-probability under the policy that sampled"}

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `logp`; logs the KL of the sampler from the old policy."""
        if LOGP_SAMPLER in experience.extra:  # written where rows were gathered, with `logp` computed again there
            old, recorded = experience.logp, experience.column(LOGP_SAMPLER)
        else:
            recorded = experience.logp
            own, source = experience.mask, experience.source
            own = own if source is None else own & (source == int(Origin.POLICY)).unsqueeze(1)
            old = torch.where(own, scene.models.over(self.actor, experience, logp_of).to(recorded.dtype), recorded)
        gap = (old - recorded) * experience.mask
        scene.log("kl_to_sampler", float((torch.expm1(gap) - gap).sum()), float(experience.mask.sum()))
        return replace(experience, logp=old).add({LOGP_SAMPLER: recorded})


def another_sampler(experience: Experience) -> Tensor:
    """Returns log-probabilities of a sampler whose chances are further apart, for the laws."""
    return 1.25 * experience.logp


@dataclass(frozen=True)
class SamplerWeight(Credit):
    """advantage <- w * advantage,   w = pi_old / sampler by `level`, at least `low` and at most `high`.

    Truncated importance sampling by decision (IMPALA, arXiv:1802.01561), or by answer with a `level` of sequences.
    With `masks`, decisions whose w is outside of [low, high] have weight 0 instead. It comes after the credit, and
    after `OldPolicy`. Since an objective is a multiple of its advantages, this is the loss times w. Degenerate: where
    both policies are the same, w is 1; low 0, high infinity and the decision's level are the plain weights. Assumes
    that the sampler's own log-probabilities were recorded.
    """

    level: RatioLevel = TokenRatio()
    low: float = 0.0
    high: float = 2.0
    masks: bool = False
    centred: ClassVar[bool] = False
    reads: ClassVar[Mapping[str, str]] = {"advantage": "BT", LOGP_SAMPLER: "BT"}
    writes: ClassVar[tuple[str, ...]] = ("advantage",)
    fills: ClassVar[Mapping[str, Callable[[Experience], Tensor]]] = {LOGP_SAMPLER: another_sampler}
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"low": 0.5, "masks": True}, {"level": SequenceRatio()})

    def __post_init__(self) -> None:
        if not 0.0 <= self.low <= 1.0 <= self.high:
            what = f"SamplerWeight has range {self.low} to {self.high}"
            raise AssayError(f"{what}. Use one that contains 1, such as 0 to 2")

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`; logs the mean weight and the share of decisions outside of the range."""
        mask, sampled = experience.mask, replace(experience, logp=experience.column(LOGP_SAMPLER))
        log_weight = self.level(experience.logp, sampled).clamp(-50.0, 50.0)
        low = math.log(self.low) if self.low else -math.inf
        outside = ((log_weight < low) | (log_weight > math.log(self.high))) & mask
        weight = log_weight.clamp(low, math.log(self.high)).exp()
        weight = torch.where(outside, 0.0, weight) if self.masks else weight
        scene.log("sampler_weight", float((weight * mask).sum()), float(mask.sum()))
        scene.log("sampler_outside", float(outside.sum()), float(mask.sum()))
        return experience.add({"advantage": experience.column("advantage") * weight * mask})
