"""lp-reg: pulls rare but plausible tokens of failed answers towards the policy without its noise.

    loss = mean_t [-min(rho_t A_t, clip(rho_t, 0, 10) A_t) + min(e^d - d - 1, 10) 1[t in S]],   d = log q_t - log pi_t
    q: tokens of at least 0.02 max pi_old, renormalised;  S: the lowest 1 % in pi_old of tokens with A < 0, where q > pi

2025 (arXiv:2510.03222). Exploration is lost where rare tokens that are worth a try are punished until they are gone; an
entropy bonus lifts noise with them. On-policy the pull is (1 - m) / m with m the mass that the filter keeps, against
|A| of the punishment: a few per cent. It grows as updates of one batch push the token below q.

Axes: B rows, T decisions, N, V.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, Experience, Method, Narrowing, Prepare, Preset, Recipe, Scene, State
from assay.method import categorical_logp, k3, model_name, over_logits, recipes, smallest, with_regularizers
from assay.method import with_token_clip
from assay.parts import NEVER, KlWhereHeld


def pull(log_ratio: Tensor) -> Tensor:
    """Returns min(k3, 10), k3 = e^d - d - 1, d = log q - log pi, where d > 0, else 0: above 10 without a gradient."""
    return k3(log_ratio.clamp(-20.0, 0.0)).clamp(max=10.0)


@dataclass(frozen=True)
class HoldUnlikely(Prepare):
    """Writes `logp_held` [B, T]: log q, q the acting policy with `min_p`, of the `share` of decisions with a negative
    advantage that were least likely; NEVER elsewhere. Degenerate: a share of less than two decisions holds none.
    """

    min_p: float = 0.02
    share: float = 0.01
    actor: str = model_name("actor")
    reads: ClassVar[tuple[str, ...]] = ("advantage",)
    writes: ClassVar[tuple[str, ...]] = ("logp_held",)
    not_a_part: ClassVar[str] = "the laws have no models here: the method's claims run it"

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        def log_q(logits_NV: Tensor, action_N: Tensor) -> Tensor:
            return categorical_logp(Narrowing(min_p=self.min_p).of(logits_NV), action_N).clamp(min=NEVER)

        blamed = experience.mask & (experience.column("advantage") < 0)
        num = int(self.share * int(blamed.sum()))
        chosen = smallest(experience.logp, blamed, num if num > 1 else 0)
        found = scene.models.over(self.actor, experience, lambda actor, rows: over_logits(actor, rows, log_q))
        return experience.add({"logp_held": torch.where(chosen, found, NEVER)})


def recipe(preset: Preset = LANGUAGE, beta: float = 1.0, floor: float = 0.02, share: float = 0.01) -> Recipe:
    """Returns grpo that holds unlikely tokens of failed answers near the policy without its noise."""
    base = with_token_clip(recipes.grpo(preset), "lp-reg", 1.0, 9.0)
    held = replace(base, credit=(*base.credit, HoldUnlikely(floor, share)))
    return with_regularizers(held, KlWhereHeld(beta, pull))


METHOD = Method(
    paper="arXiv:2510.03222",
    recipe=recipe,
    presets=(LANGUAGE,),
    family="policy gradient",
    base=recipes.grpo,
    results=(
        "undecided after ten seeds: right 0.705 and without the pull 0.704, more on four of them; an effect "
        "beyond 0.017 is excluded",
    ),
    departures=(
        "the lowest 1 % are those of the whole batch by recorded log-probabilities, not of each micro-batch by current",
        "the clip is off on both sides, as in the released on-policy scripts, also with several updates a batch",
        "not measured: a rare right branch against noise tokens, and an entropy bonus; no testbed here has such tokens",
    ),
    pilots=(
        "3 pilot seeds: distinct@64 0.87, without the pull 0.88; ten times the pull on ten times the tokens: 0.87 at a "
        "pass rate of 0.68 instead of 0.74. Two designs tried; a first measurement was cut off at seed 8, unseen",
    ),
)
