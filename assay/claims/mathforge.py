"""Claims of mathforge: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Final, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.mathforge import HarderMore, WithSignal, recipe


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    outcome = by_hand.outcome(data)
    valid = [rows for rows in by_hand.rows_of_groups(data) if outcome[rows].min() < outcome[rows].max()]
    score = torch.stack([(-outcome[rows].mean() / 2).exp() for rows in valid])
    gains: list[Tensor] = []
    for rows, weight in zip(valid, len(valid) * score / score.sum(), strict=True):
        away = outcome[rows] - outcome[rows].sum() / len(rows)
        spread = (away.abs().sum() + 1e-4) / len(rows)
        for row, own in zip(rows, weight * away / spread, strict=True):
            gains.append(by_hand.clipped(by_hand.ratio(seen), own, 0.2, 0.2)[row][data.mask[row]])
    return -torch.cat(gains).mean()  # over every token of the valid groups, one at its group's mean included


def weights(*right: int) -> Tensor:
    """Returns the weights of groups of eight with these numbers of right answers."""
    data = probes.groups_with_right(*right)
    return HarderMore()(data.reward, data).view(len(right), 8)[:, 0]


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.UNIT_OUTCOME),
        Measured("where most prompts are easy the hard level is solved more often than by grpo", "levels:easy=0.9",
                 recipe(BIGRAMS), recipes.grpo(BIGRAMS), Final("pass_rate/2-hard"), minutes=6.0, steps=100, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("all groups in the softmax", HarderMore.__call__, "torch.where(has_signal, by_group.share, 0.0)",
             "by_group.share"),
        Edit("groups without signal count in the mean", WithSignal.apply, "experience.mask & differs.unsqueeze(1)",
             "experience.mask"),
        Edit("an answer at its group's mean leaves the mean over tokens", WithSignal.apply, "differs.unsqueeze(1)",
             "(experience.column('advantage') != 0)"),
    ),
)
