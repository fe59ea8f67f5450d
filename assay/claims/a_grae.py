"""Claims of a-grae: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Claims, Edit, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, recipes
from assay.methods.a_grae import EPSILON, BreakSymmetry, halved, recipe


def advantages(*right: int, size: int = 8) -> list[Tensor]:
    """Returns the advantages [right, wrong] of groups of `size` answers with these numbers of right ones."""
    data = probes.groups_with_right(*right, size=size)
    return [group[[0, size - 1]] for group in probes.advantages(recipe(), data).view(len(right), size)]


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    assert data.group is not None
    there, outcome = data.mask.any(1), by_hand.outcome(data)
    rates = {int(one): outcome[(data.group == one) & there].mean() for one in data.group.unique()}
    overall = torch.stack(list(rates.values())).mean()
    root = torch.stack([rates[int(one)] for one in data.group]).sqrt()
    weight = 0.5 * (1 - overall) / (1 - root + EPSILON) + 0.5 * overall / (root + EPSILON)
    advantage = by_hand.standardised(data)
    return by_hand.grpo_loss(seen, weight * advantage * torch.where(advantage > 0, overall, 1.0))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.UNIT_OUTCOME),
        Measured("at an equal pass rate it has more entropy over right answers than grpo", "many-ways", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), AtEqual("right_entropy"), seeds=10, minutes=6.0, steps=100, looks=2,
                 about=About.MECHANISM),
        Measured("at an equal pass rate it has more entropy over right answers than with right ones halved throughout",
                 "many-ways", recipe(BIGRAMS), halved(BIGRAMS), AtEqual("right_entropy"), seeds=10, minutes=6.0,
                 steps=100, looks=2, about=About.COMPONENT),
        Measured("at an equal pass rate it is right within 64 tries more often than grpo", "many-ways", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), AtEqual("pass@64"), seeds=10, minutes=6.0, steps=100, looks=2,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("from hard to easy", BreakSymmetry.__call__, "((1.0 - overall) / (1.0 - root_B",
             "((1.0 - overall) / (root_B"),
        Edit("wrong answers are damped", BreakSymmetry.__call__, "advantage_BT > 0", "advantage_BT < 0"),
        Edit("the mean over answers", BreakSymmetry.__call__, "(rate_B * once_B).sum() / once_B.sum()",
             "(rate_B * share_B).sum() / share_B.sum()"),
    ),
)
