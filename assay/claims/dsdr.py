"""Dsdr's loss by hand, and its credit on four answers. Axes: B rows, T decisions."""

import torch
from torch import Tensor

from assay.claims import About, AtEqual, Average, Claims, Edit, Expect, Final, Measured, by_hand, probes, same_gradient
from assay.method import BIGRAMS, Experience, recipes
from assay.methods.dsdr import Distinct, distinctness, recipe


def distinct_by_hand(data: Experience, row: int, rows: list[int]) -> float:
    """Returns d of one row among those of its group, pair by pair."""
    said = {one: data.action[one][data.mask[one]].tolist() for one in rows}
    counts = {one: torch.bincount(torch.tensor(said[one]), minlength=4).double() for one in rows}
    others = [one for one in rows if one != row]
    apart = sum(1 - float(counts[row] @ counts[one] / counts[row].norm() / counts[one].norm()) for one in others)
    return (apart / len(others) + float(all(said[one] != said[row] for one in others))) / 2


def loss_by_hand(seen: probes.Seen) -> Tensor:
    data = seen.experience
    right, local = by_hand.outcome(data) > 0.5, torch.zeros(())
    d, estimate = torch.zeros(len(data)).double(), -by_hand.ratio(seen) * seen.logp()
    for rows in by_hand.rows_of_groups(data):
        d[rows] = torch.tensor([distinct_by_hand(data, row, rows) for row in rows], dtype=torch.float64)
        good = [row for row in rows if right[row]]
        weight = (5 * d[good]).softmax(0)
        local = local + len(rows) * sum(w * estimate[i][data.mask[i]].mean() for w, i in zip(weight, good, strict=True))
    paid = by_hand.outcome(data) + 0.001 * d * right
    advantage = by_hand.in_groups(paid, data, lambda one: (one - one.mean()) / (one.std() + 1e-6))
    return by_hand.grpo_loss(seen, advantage, 0.2, 0.28) - 0.001 * local / data.mask.any(1).sum()


def four(*rewards: float) -> Experience:
    """Returns the answers 0, 0, 1 and 2, whose d is 1/3, 1/3, 1 and 1."""
    return probes.bandit_experience([0, 0, 1, 2], rewards, torch.zeros(3))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.UNIT_OUTCOME),
        Measured("fewer groups are without advantage than in grpo, mean over the run", "many-ways", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), Average("zero_advantage_groups"), Expect.BELOW, minutes=6.0, steps=80, looks=2,
                 about=About.COMPONENT),
        Measured("it is right more often than grpo after as many steps", "many-ways", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), Final("pass_rate"), minutes=6.0, steps=80, looks=2, about=About.HEADLINE),
        Measured("at an equal pass rate it is right within 64 tries more often than grpo", "many-ways", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), AtEqual("pass@64"), minutes=6.0, steps=80, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("tau divides", Distinct.apply, "self.tau * distinct", "distinct / self.tau"),
        Edit("weights of all answers", Distinct.apply, "right & there", "there"),
        Edit("repeated answers count", distinctness, "texts.count(one) == 1", "texts.count(one) >= 1"),
        Edit("the deviation of grpo", recipe, '.set("scale.epsilon", 1e-6)', ""),
    ),
)
