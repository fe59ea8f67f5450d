"""Claims of mathforge: its loss by hand, exact and measured claims, mutants."""

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Final, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.mathforge import HarderMore, recipe
from assay.parts import WithoutIdle


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    outcome = by_hand.outcome(data)
    centred, advantage = by_hand.centred(data), torch.zeros_like(outcome)
    signal = [rows for rows in by_hand.rows_of_groups(data) if centred[rows].any()]
    score = torch.stack([(-outcome[rows].mean() / 2).exp() for rows in signal])
    for rows, weight in zip(signal, len(signal) * score / score.sum(), strict=True):
        advantage[rows] = weight * len(rows) * centred[rows] / (centred[rows].abs().sum() + 1e-4)
    return by_hand.token_loss(seen, advantage, kept=advantage != 0)


def weights(*right: int) -> Tensor:
    """Returns the weights of groups of eight with these numbers of right answers."""
    data = probes.groups_with_right(*right)
    return HarderMore()(data.reward, data).view(len(right), 8)[:, 0]


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.verified),
        Measured("where most prompts are easy the hard level is solved more often than by grpo", "levels:easy=0.9",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), Final("pass_rate/2-hard"), minutes=6.0, steps=100, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("all groups in the softmax", HarderMore.__call__, "torch.where(has_signal, by_group.share, 0.0)",
             "by_group.share"),
        Edit("groups without signal count in the mean", WithoutIdle.apply, "experience.mask & teaches",
             "experience.mask"),
    ),
)
