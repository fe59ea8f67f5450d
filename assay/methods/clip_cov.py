"""clip-cov: grpo without the policy gradient of the few tokens that would cost most entropy.

    c_t = (log pi(a_t) - mean log pi) (A_t - mean A);  A_t <- 0 for a random share of the tokens with low < c_t < high
    kl_cov instead adds to the loss: coefficient * |log pi(a_t) - log pi_old(a_t)| on the share with the largest c_t

Cui et al. 2025. A step changes the entropy by minus the covariance of log-probability and advantage; few tokens make
up most of it.

Axes: B, T decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.method import LANGUAGE, Credit, Draw, Experience, Method, Prepare, Preset, Recipe, Scene, State, random
from assay.method import recipes, smallest, with_policy, with_regularizers
from assay.parts import NEVER, KlWhereHeld, PolicyGradient, SequenceMean, Unclipped


def covariance_of(experience: Experience) -> Tensor:
    """Returns c_t, [B, T]; 0 where masked."""
    count = experience.mask.sum().clamp(min=1)
    centred = [
        column - torch.where(experience.mask, column, 0.0).sum() / count
        for column in (experience.logp, experience.column("advantage"))
    ]
    return torch.where(experience.mask, centred[0] * centred[1], 0.0)


def num_of(share: float, experience: Experience) -> int:
    """Returns a share of the number of decisions, rounded down, at least one."""
    return max(1, int(share * int(experience.mask.sum())))


def lots(experience: Experience, draw: Draw) -> Tensor:
    """Returns a uniform number for each decision, [B, T] float64: a function of (start, sample index, time)."""
    start, sample = (experience.column(name).cpu().numpy()[:, None] for name in ("start", "sample"))
    values = random.uniform(draw, start, sample, np.arange(experience.num_columns)[None])
    return torch.from_numpy(values).to(experience.mask.device)


@dataclass(frozen=True)
class DropHighCovariance(Credit):
    """Sets to 0 the advantage of a random `share` of all decisions, drawn among those with low < c_t < high:
    Clip-Cov.

    Without an advantage a decision has no policy gradient. The draw is a function of (run seed, step, start, sample
    index, time). Degenerate: if no decision is in the band, or all advantages are equal, nothing changes.
    """

    share: float = 2e-4
    low: float = 1.0
    high: float = 5.0
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the covariance and the share are those of the whole batch"}
    centred: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[Mapping[str, str]] = {
        "advantage": "BT",
        "dropped": "BT: whether clip-cov excludes the decision",
    }

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `advantage`, writes `dropped`, and logs the share of decisions in the band, which may be 0."""
        covariance = covariance_of(experience)
        in_band = (covariance > self.low) & (covariance < self.high) & experience.mask
        dropped = smallest(lots(experience, scene.draw), in_band, num_of(self.share, experience))
        scene.log("in_band", float(in_band.sum()), float(experience.mask.sum()))
        advantage = experience.column("advantage") * (experience.mask & ~dropped)
        return experience.add({"advantage": advantage, "dropped": dropped})


@dataclass(frozen=True)
class HoldHighCovariance(Prepare):
    """Writes `logp_held` [B, T]: the recorded log-probability of the `share` of all decisions with the largest c_t
    above 0, and their ties, and NEVER elsewhere: KL-Cov. Degenerate: equal advantages hold nothing.
    """

    share: float = 2e-4
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the covariance and the share are those of the whole batch"}
    writes: ClassVar[tuple[str, ...]] = ("logp_held",)

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        covariance = covariance_of(experience)
        positive = (covariance > 0) & experience.mask
        held = smallest(-covariance, positive, num_of(self.share, experience))
        return experience.add({"logp_held": torch.where(held, experience.logp, NEVER)})


SHARE = 0.01


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo without the gradient of a share of the tokens whose covariance is high."""
    base = recipes.grpo(preset)
    return replace(base, name="clip-cov", credit=(*base.credit, DropHighCovariance(SHARE)))


def kl_cov(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo with a KL term, in place of the clip, on the tokens whose covariance is highest."""
    base, sequences = recipes.grpo(preset), SequenceMean()
    held = replace(base, credit=(*base.credit, HoldHighCovariance(SHARE)))
    plain = with_policy(held, "kl-cov", PolicyGradient(trust=Unclipped(), aggregate=sequences))
    return with_regularizers(plain, KlWhereHeld(aggregate=sequences))


METHOD = Method(
    paper="arXiv:2505.22617",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"kl-cov": kl_cov},
    departures=(
        "covariances are computed once per step, on all fresh tokens with their recorded log-probabilities",
        "tokens that the ratio's clip will cut may be among the dropped; the released code draws among the others",
        "the share is 1 % instead of 0.02 %: a step here has 1500 tokens, not millions",
        "no claim on pass@64: on many-ways it ends +0.004 [-0.013, 0.022] above grpo's (20 seeds), which is undecided",
    ),
)
