"""rec: REINFORCE on group-centred outcomes with a mask on the ratio instead of importance weights.

    loss = -mean_t (R_i - mean R) * M_t * log pi(a_t)
    M_t = 0 where (A > 0 and rho_t > 1 + high) or (A < 0 and rho_t < 1 - low), else 1

Yao et al. 2025. Requiring r - tau log(pi / pi_old) to be equal in a group has this gradient at pi_old for any
behaviour policy, so clipping acts as regularisation. With importance weights and the deviation it is grpo, with a
penalty OPMD.

Axes: B sequences, T decisions, G groups.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from assay.method import LANGUAGE, Aggregation, Choice, Draw, Experience, Loss, Method, Need, Prepare, Preset, Recipe
from assay.method import Regularizer, Scene, Schedule, State, TrustRegion, View, divergences, groups, number, random
from assay.method import recipes, with_policy
from assay.parts import LARGEST_LOG_RATIO, GroupDeviation, GroupMean, NoScale, OutcomeCredit, PolicyGradient, TokenMean
from assay.parts import Weighed, bounded_ratio


@dataclass(frozen=True)
class DropSurplusNegatives(Prepare):
    """Masks random samples below their group's mean until they are no more than those at or above it.

    "RED-Drop" of arXiv:2509.24203. Masked samples leave training: a later credit takes the mean of the others. The
    choice is a function of (run seed, step, start, sample index). Degenerate: equal outcomes and groups of one stay.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites `mask`."""
        by_group = groups.row_groups(experience)
        outcome = groups.outcome(experience)
        share = by_group.share.to(outcome.dtype)
        # Rounding of the mean must not turn a sample that equals all others into a negative one.
        negative = (outcome < groups.mean(outcome, by_group)) & groups.differs(outcome, by_group)
        num_others = groups.total(share * ~negative, by_group)[by_group.index]
        surplus = negative & (rank_among(negative, by_group, share, lots(experience, scene.draw)) > num_others - 0.5)
        return replace(experience, mask=experience.mask & ~surplus.unsqueeze(1))


def lots(experience: Experience, draw: Draw) -> Tensor:
    """Returns a uniform number for each sample, [B] float64; rows of an episode share start and sample index."""
    start, sample = (experience.column(name).cpu().numpy() for name in ("start", "sample"))
    return torch.from_numpy(random.uniform(draw, start, sample)).to(experience.mask.device)


def rank_among(chosen_B: Tensor, by_group: groups.Groups, share_B: Tensor, lot_B: Tensor) -> Tensor:
    """Returns how many chosen episodes of the row's group have a smaller lot, [B]."""
    same = by_group.index.unsqueeze(1) == by_group.index.unsqueeze(0)
    before = same & chosen_B.unsqueeze(0) & (lot_B.unsqueeze(0) < lot_B.unsqueeze(1))
    return before.to(share_B.dtype) @ share_B


class Keeps(Choice, Protocol):
    """Selects the decisions that are trained."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns bool [B, T]; true at ratio one."""


class Weight(Choice, Protocol):
    """Weights a decision."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns weights [B, T], not negative."""


# ---------------------------------------------------------------------------------------------------- selection
@dataclass(frozen=True)
class EveryDecision(Keeps):
    """Keeps all decisions: plain REINFORCE, whatever the data."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        return torch.ones_like(ratio, dtype=torch.bool)


@dataclass(frozen=True)
class OneSide(Keeps):
    """Keeps decisions that have not moved beyond the bound: ratio <= 1 + high for A > 0, >= 1 - low for A < 0.

    Degenerate: A = 0 is always kept.
    """

    low: float = 0.2
    high: float = 0.2

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns the decisions to which PPO's clip leaves a gradient."""
        below, above = ratio <= 1.0 + self.high, ratio >= 1.0 - self.low
        return torch.where(advantage > 0, below, torch.where(advantage < 0, above, below | above))


@dataclass(frozen=True)
class TwoSide(Keeps):
    """Keeps decisions with a ratio in [1 - low, 1 + high], whatever the sign of A."""

    low: float = 0.2
    high: float = 0.2

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns whether the ratio is inside the range."""
        return (ratio >= 1.0 - self.low) & (ratio <= 1.0 + self.high)


@dataclass(frozen=True)
class Ring(Keeps):
    """Keeps what TwoSide keeps, and far decisions that are pulled back: ratio <= 1 - far_low for A >= 0, >= 1 +
    far_high for A <= 0. Decisions between near and far are not trained.
    """

    low: float = 0.2
    high: float = 0.2
    far_low: float = 0.6
    far_high: float = 2.0

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns whether the ratio is near, or far on the side from which A pulls it back."""
        back_up = (advantage >= 0) & (ratio <= 1.0 - self.far_low)
        back_down = (advantage <= 0) & (ratio >= 1.0 + self.far_high)
        return TwoSide(self.low, self.high)(ratio, advantage) | back_up | back_down


# ---------------------------------------------------------------------------------------------------- weights
@dataclass(frozen=True)
class Even(Weight):
    """Weight 1: no importance sampling."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        return torch.ones_like(ratio)


@dataclass(frozen=True)
class Importance(Weight):
    """Weight equal to the ratio: importance sampling."""

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns the ratio."""
        return ratio


@dataclass(frozen=True)
class ExpAdvantage(Weight):
    """Weight exp(A / temperature), at most e^20: good samples count more than bad ones ("RED-Weight")."""

    temperature: float = 1.0
    breaks: ClassVar[dict[str, str]] = {"first_order": "the data are weighted on purpose, at ratio one too"}

    def __call__(self, ratio: Tensor, advantage: Tensor) -> Tensor:
        """Returns the weights, above 1 for positive advantages."""
        return (advantage / self.temperature).clamp(max=LARGEST_LOG_RATIO).exp()


@dataclass(frozen=True)
class MaskedScore(TrustRegion):
    """-A * weight * log pi; decisions that `keeps` drops have a value but no gradient, as with a clip.

    Degenerate: A = 0 gives 0.
    """

    keeps: Keeps = OneSide()
    weight: Weight = Even()
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"keeps": EveryDecision()},
        {"keeps": TwoSide(), "weight": Importance()},
        {"keeps": Ring()},
        {"keeps": EveryDecision(), "weight": ExpAdvantage()},
    )

    @property
    def breaks(self) -> dict[str, str]:
        """Returns the laws that plain REINFORCE and a selection on both sides break."""
        if isinstance(self.keeps, TwoSide | Ring):
            return {"way_back": "the paper's selection leaves decisions beside its band untrained, on both sides alike"}
        is_plain = isinstance(self.keeps, EveryDecision) and not isinstance(self.weight, Importance)
        return {"old_policy": "neither the weights nor the selection read the ratio"} if is_plain else {}

    def __call__(self, log_ratio: Tensor, advantage: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (loss, not kept)."""
        ratio = bounded_ratio(log_ratio.detach())
        kept = self.keeps(ratio, advantage)
        return -advantage * self.weight(ratio, advantage) * torch.where(kept, logp, logp.detach()), ~kept


@dataclass(frozen=True)
class KlToBehaviour(Weighed, Regularizer):
    """coefficient * estimator(log pi - log pi_old) at each decision, with gradient.

    `ops.divergences.k2`: OPMD's penalty (Kimi k1.5), half a square. `forward`: AsymRE's (arXiv:2506.20520), which is
    REINFORCE with the baseline lowered by `coefficient`; as a loss it may be negative.
    """

    coefficient: float | Schedule = 0.1
    estimator: Callable[[Tensor], Tensor] = divergences.k2
    aggregate: Aggregation = TokenMean()
    needs: ClassVar[frozenset[Need]] = frozenset({Need.LOGP})
    divergence: ClassVar[bool] = False  # zero at the behaviour policy, not at the reference

    def __call__(self, batch: Experience, view: View) -> Loss:
        """Returns the weighted sum over decisions."""
        log_ratio = torch.where(batch.mask, view.scored.logp - batch.logp.detach(), 0.0)
        value = self.estimator(log_ratio) * self.aggregate.weigh(batch)
        return Loss(number(self.coefficient) * value.sum(), self.count(batch))


def recipe(
    preset: Preset = LANGUAGE,
    keeps: Keeps = OneSide(),
    weight: Weight = Even(),
    scale: NoScale | GroupDeviation = NoScale(),
    penalty: tuple[KlToBehaviour, ...] = (),
    drop: tuple[DropSurplusNegatives, ...] = (),
) -> Recipe:
    """Returns group REINFORCE with a mask on ratios, as given, in place of weights."""
    base = with_policy(recipes.grpo(preset), "rec", PolicyGradient(trust=MaskedScore(keeps, weight)))
    stage = replace(base.stages[0], regularizers=penalty)
    return replace(base, stages=(stage,), credit=(*drop, OutcomeCredit(GroupMean(), scale)))


METHOD = Method(
    paper="arXiv:2509.24203",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={
        "rec-is": partial(recipe, weight=Importance()),
        "red-drop": partial(recipe, drop=(DropSurplusNegatives(),)),
        "opmd": partial(recipe, keeps=EveryDecision(), penalty=(KlToBehaviour(),)),
    },
    departures=("dropped samples leave the mean over tokens too",
             "stale: answers of 40 updates ago, where the paper trains 20 updates on one rollout"),
    results=("with parameters shared by all prompts (rank 4) the mask slows learning too; no third design was tried",),
)
