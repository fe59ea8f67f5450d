"""real: right answers and wrong answers of a group are two softmaxes of their mean log-ratios against an anchor.

    loss = mean over groups of log(1 + sum_right e^(-s_i / tau)) + log(1 + sum_wrong e^(s_j / tau)),  tau = 0.5
    s_i = mean_t (log pi(y_t) - log pi_old(y_t));   groups of one class have no loss

2026 (arXiv:2602.05630). Weights of grpo grow with the ratio, so the answers that need it least move most; here the
unlikely right and the likely wrong answers get more, and the pull of a class is below 1 / tau.

Axes: B sequences.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.method import LANGUAGE, LabelLoss, Method, Preset, Recipe, groups, recipes, with_minibatches, with_policy
from assay.parts import CrossEntropy, OutcomeAsLabel, SequenceRatio


@dataclass(frozen=True)
class AgainstAnchor(LabelLoss):
    """log(1 + sum over right of e^-score) + log(1 + sum over wrong of e^score), as a mean over groups: each class is
    a softmax against an anchor of score 0 (arXiv:2602.05630).

    A group of one class has no loss and is counted.
    """

    def __call__(self, score_B: Tensor, right_B: Tensor, by_group: groups.Groups) -> Tensor:
        """Returns the loss of each row: its class's, over the number of answers in the class."""
        share = by_group.share.to(score_B.dtype)
        loss = torch.zeros_like(score_B)
        sizes = [groups.total(share * one, by_group)[by_group.index] for one in (right_B, ~right_B)]
        for sign, is_class, size in zip((-1.0, 1.0), (right_B, ~right_B), sizes, strict=True):
            odds = (sign * score_B).clamp(max=80.0).exp() * share * is_class
            of_class = torch.log1p(groups.total(odds, by_group))[by_group.index] / size.clamp(min=1.0)
            loss = loss + torch.where(is_class, of_class, 0.0)
        return torch.where((sizes[0] > 0) & (sizes[1] > 0), loss, 0.0)

    def count(self, by_group: groups.Groups) -> Tensor:
        """Returns the number of groups with an answer."""
        return (groups.total(by_group.share, by_group) > 0).sum()


def recipe(preset: Preset = LANGUAGE, tau: float = 0.5, loss: LabelLoss = AgainstAnchor()) -> Recipe:
    """Returns cross-entropy of the right and of the wrong answers of each group against an anchor."""
    objective = OutcomeAsLabel(SequenceRatio(), 1.0 / tau, loss=loss)
    # The loss compares answers of a group: single decisions, which other methods use in control, are no answers.
    source = preset.minibatch_source if preset.tokens else preset.on_policy_source
    base = with_minibatches(replace(recipes.grpo(preset), credit=(), source=source), preset, 4)
    return with_policy(base, "real", objective)


def cross_entropy(preset: Preset = LANGUAGE) -> Recipe:
    """A cross-entropy of each answer instead of a softmax of each class."""
    return recipe(preset, loss=CrossEntropy())


METHOD = Method(
    paper="arXiv:2602.05630",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"real-bce": cross_entropy},
    departures=(
        "four updates a batch of answers, as in the authors' script",
        "an outcome above 1/2 is right; in the authors' code values other than 0 and 1 drop out",
        "no claim on the largest gradient: it is above grpo's by the factor 1 / tau (0.104 and 0.027, 3 pilot seeds)",
    ),
    results=(
        "undecided after 20 seeds: 0.698 and grpo 0.687, more on 13 of them; an effect above 0.022 is excluded",
    ),
)
