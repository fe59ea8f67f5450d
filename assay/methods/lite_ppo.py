"""lite-ppo: grpo with the deviation of the whole batch as scale and one mean over all tokens.

    A = (R - mean of the group) / (std of the batch + 1e-6);   loss = -mean_t min(rho_t A, clip(rho_t, 0.8, 1.2) A)

Liu et al. 2025 ("Tricks or Traps?"). The deviation of a group whose answers are nearly all right is small, and its
lone failure gets a large advantage; the deviation of all outcomes does not depend on the group.

Axes: B rows.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from assay.method import LANGUAGE, Experience, Method, Preset, Recipe, RowStatistic, groups, recipes, with_token_clip
from assay.parts import GroupMean, OutcomeCredit


@dataclass(frozen=True)
class BatchDeviation(RowStatistic):
    """Standard deviation (n - 1) of the outcomes of all episodes plus `epsilon`, not of the centred outcomes."""

    epsilon: float = 1e-6
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the scale is the deviation of the whole batch"}

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the deviation for every row, never 0."""
        share = groups.row_groups(experience).share.to(outcome_B.dtype)
        mean = (outcome_B * share).sum() / share.sum().clamp(min=1)
        variance = ((outcome_B - mean).square() * share).sum() / (share.sum() - 1).clamp(min=1)
        return (variance.sqrt() + self.epsilon).expand_as(outcome_B)


def recipe(preset: Preset = LANGUAGE) -> Recipe:
    """Returns grpo with the deviation of the batch and a mean over all tokens."""
    base = replace(recipes.grpo(preset), credit=(OutcomeCredit(GroupMean(), BatchDeviation()),))
    return with_token_clip(base, "lite-ppo")


METHOD = Method(
    paper="arXiv:2508.08221",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "two updates a batch, as grpo here",
        "the deviation has n - 1, as torch's default in the authors' framework; the paper does not say",
    ),
    results=(
        "where nearly all answers are right the batch's own deviation is small and the largest gradient above grpo's "
        "(levels:easy=0.9: 0.040 against 0.031, 5 pilot seeds)",
    ),
)
