"""mathforge: divides by the mean absolute deviation, weighs hard questions more, leaves out those without signal.

    A = d / mean |d|,  d = R - mean R;   A <- n softmax_s(-mean R_s / T) A over the n groups s with signal,  T = 2
    loss = -mean over the tokens of these groups of min(rho_t A, clip(rho_t, 1 - 0.2, 1 + 0.2) A)

Dai et al. 2026 ("Harder Is Better"). With the standard deviation, groups that are half right move the policy most;
with the mean absolute deviation the sum of |A| is the group size for every share of right answers.
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, probes
from assay.core.recipe import Recipe
from assay.core.slots import CreditWeight
from assay.methods.mathforge.credit import HarderMore, MeanAbsoluteDeviation
from assay.parts.aggregations import TokenMean
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.credit.reweigh import Reweigh, WithoutIdle
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.trust import Clip
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults
from assay.recipes.group import with_policy


def recipe(world: Defaults = LANGUAGE, rule: CreditWeight = HarderMore()) -> Recipe:
    credit = (OutcomeCredit(GroupMean(), MeanAbsoluteDeviation()), Reweigh(rule), WithoutIdle())
    objective = PolicyGradient(trust=Clip(0.2, 0.2), aggregate=TokenMean())
    return with_policy(replace(recipes.grpo(world), credit=credit), "mathforge", objective)


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    outcome = by_hand.outcome(data)
    absolute = by_hand.in_groups(outcome, data, lambda one: len(one) * (one - one.mean()) / (
        (one - one.mean()).abs().sum() + 1e-4))  # fmt: skip
    rate = by_hand.in_groups(outcome, data, lambda one: one.mean().expand_as(one))
    assert data.group is not None
    signal = [g for g in data.group.unique() if absolute[(data.group == g) & data.mask.any(1)].abs().max() > 0]
    total = torch.stack([(-rate[data.group == g].max() / 2).exp() for g in signal])
    weight = len(signal) * (-rate / 2).exp() / total.sum()
    gain = by_hand.clipped(by_hand.ratio(seen), (weight * absolute).unsqueeze(1), 0.2, 0.2)
    return -by_hand.mean_of_decisions(gain, replace(data, mask=data.mask & (absolute != 0).unsqueeze(1)))


def total_weight(right: int) -> Tensor:
    """Returns the sum of |A| of eight answers of which some are right, in a batch of this group alone."""
    data = probes.bandit_experience([0] * 8, [float(member < right) for member in range(8)], torch.zeros(2))
    return probes.credited(recipe(), data).column("advantage").abs().sum()


def weights(*right: int) -> Tensor:
    """Returns the weights of groups of eight with these numbers of right answers."""
    rewards = [float(member < num) for num in right for member in range(8)]
    data = probes.bandit_experience([0] * len(rewards), rewards, torch.zeros(2), members=8)
    return HarderMore()(data.reward, data).view(len(right), 8)[:, 0]


METHOD = Method(
    paper="arXiv:2601.20614",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    departures=(
        "the rewritten questions (three for each, same answer) are a matter of data: put them into the training file",
        "difficulty is the mean of the whole reward, not of the first reward function",
    ),
    claims=(
        Exact("its gradient is the formula's", lambda: probes.formula_gap(
              recipe(), probes.verified(), loss_by_hand), at_most=1e-9),
        Exact("one right of eight has the same total weight as four", lambda: total_weight(1) - total_weight(4),
              equals=0.0, tolerance=1e-3),
        Exact("weights of 1, 4 and 7 right of eight", lambda: (weights(1, 4, 7) - torch.tensor(
              [1.192218, 0.988383, 0.819399])).abs().max(), at_most=1e-5),
        Exact("a group without signal changes no weight", lambda: (
              weights(1, 4, 8, 0)[:2] - weights(1, 4)).abs().max(), at_most=1e-9),
        Measured("where most prompts are easy the hard level is solved more often than by grpo", "levels:easy=0.9",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), Final("pass_rate/2-hard"), seeds=10, minutes=6.0, steps=100,
                 looks=2),
    ),
    mutants=(
        Edit("easier more", HarderMore.__call__, "(-groups.mean(outcome_B", "(groups.mean(outcome_B"),
        Edit("all groups in the softmax", HarderMore.__call__, "torch.where(has_signal, by_group.share, 0.0)",
             "by_group.share"),
        Edit("groups without signal count in the mean", WithoutIdle.apply, "experience.mask & teaches",
             "experience.mask"),
    ),
)  # fmt: skip
