"""mathforge: divides by the mean absolute deviation, weighs hard questions more, leaves out those without signal.

    A = d / mean |d|,  d = R - mean R;   A <- n softmax_s(-mean R_s / T) A over the n groups s with signal,  T = 2
    loss = -mean over the tokens of these groups of min(rho_t A, clip(rho_t, 1 - 0.2, 1 + 0.2) A)

Dai et al. 2026 ("Harder Is Better"). With the standard deviation, groups that are half right move the policy most;
with the mean absolute deviation the sum of |A| is the group size for every share of right answers.

Axes: B rows, T decisions.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import LANGUAGE, CreditWeight, Experience, Method, Prepare, Preset, Recipe, RowStatistic, Scene, State
from assay.method import groups, recipes, with_token_clip
from assay.parts import GroupMean, OutcomeCredit, Reweigh


@dataclass(frozen=True)
class MeanAbsoluteDeviation(RowStatistic):
    """Mean of |R - mean R| in the group plus `epsilon` over its size."""

    epsilon: float = 1e-4

    def __call__(self, outcome_B: Tensor, experience: Experience) -> Tensor:
        """Returns the deviations of the groups, never 0."""
        by_group = groups.row_groups(experience)
        size_B = groups.total(by_group.share, by_group)[by_group.index].to(outcome_B.dtype).clamp(min=1)
        return groups.mean((outcome_B - groups.mean(outcome_B, by_group)).abs(), by_group) + self.epsilon / size_B


@dataclass(frozen=True)
class HarderMore(CreditWeight):
    """n softmax(-mean outcome / temperature) over the n groups with an advantage; their mean weight is 1.

    The mean outcome is read as the share of right answers: rewards are from 0 to 1.

    Degenerate: an infinite temperature, or equal groups, give weight 1.
    """

    temperature: float = 2.0
    reads_shares: ClassVar[bool] = True
    breaks: ClassVar[dict[str, str]] = {"groups_apart": "the weights are a softmax over the groups of the batch"}

    def __call__(self, advantage_BT: Tensor, experience: Experience) -> Tensor:
        """Returns the weight of each row, [B, 1]."""
        by_group, outcome_B = groups.row_groups(experience), groups.outcome(experience)
        has_signal = groups.any_of(groups.differs(outcome_B, by_group), by_group)
        share_B = torch.where(has_signal, by_group.share, 0.0).to(outcome_B.dtype)
        once_B = share_B / groups.total(share_B, by_group)[by_group.index].clamp(min=1e-6)  # 1 for each group
        score_B = (-groups.mean(outcome_B, by_group) / self.temperature).exp()
        weight_B = score_B * once_B.sum() / (score_B * once_B).sum().clamp(min=1e-12)
        return torch.where(has_signal, weight_B, 1.0).unsqueeze(1)


@dataclass(frozen=True)
class WithSignal(Prepare):
    """Masks the groups whose outcomes are all equal, so that the loss is a mean over all decisions of the others: also
    over those of an answer exactly at its group's mean. Degenerate: if no group is left, no step is taken.
    """

    @torch.no_grad()
    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Rewrites the mask."""
        differs = groups.differs(groups.outcome(experience), groups.row_groups(experience))
        return replace(experience, mask=experience.mask & differs.unsqueeze(1))


def recipe(preset: Preset = LANGUAGE, rule: CreditWeight = HarderMore()) -> Recipe:
    """Returns grpo on groups with a signal, in units of the absolute deviation, hard ones weighed more."""
    credit = (OutcomeCredit(GroupMean(), MeanAbsoluteDeviation()), Reweigh(rule), WithSignal())
    return with_token_clip(replace(recipes.grpo(preset), credit=credit), "mathforge")


METHOD = Method(
    paper="arXiv:2601.20614",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "the rewritten questions (three for each, same answer) are a matter of data: put them into the training file",
        "difficulty is the mean of the whole reward, not of the first reward function",
        "not measured: its two halves apart, and dr-grpo as a rival, for their cost",
    ),
)
