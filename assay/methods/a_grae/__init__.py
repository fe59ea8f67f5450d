"""a-grae: weighs groups by how many of their answers are right, from easy to hard, and damps right answers early.

    A <- ((1 - P) / (1 - sqrt p) + P / sqrt p) A / 2,   then A <- min(1, P / alpha) A where A > 0

p: share of right answers in the group, P: mean of p over the batch. arXiv:2602.05548. Group-relative advantages sum to
zero, so a step leaves the sum over unsampled answers where it was, and the weight of a group does not change as the
policy improves. Damped positives move probability to answers that were not sampled. Degenerate: at p = 1/4 both
weights are 1 for every P.
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Edit, Exact, Final, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.core.slots import CreditWeight
from assay.methods.a_grae.credit import EPSILON, BreakSymmetry
from assay.parts.credit.reweigh import BySign, Reweigh
from assay.recipes.defaults import BIGRAMS, LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE, rule: CreditWeight = BreakSymmetry()) -> Recipe:
    base = recipes.grpo(world)
    return replace(base, name="a-grae", credit=(*base.credit, Reweigh(rule)))


def halved(world: Defaults = LANGUAGE) -> Recipe:
    """Right answers count half, whatever the batch."""
    return recipe(world, BySign(0.5, 1.0))


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


METHOD = Method(
    paper="arXiv:2602.05548",
    recipe=recipe,
    family="policy gradient",
    base=recipes.grpo,
    variants={"halved": halved},
    departures=(
        "the released code is the definition (square roots, constants 1e-6); alpha is 1 as for mathematics there",
        "a mean over each sequence as in grpo, not over all tokens; no entropy bonus",
        "outcomes are taken as rates: below 0 and above 1 are cut",
        "it learns more slowly: pass rate 0.40 against grpo's 0.68 on many-ways after 100 steps (5 pilot seeds)",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, probes.verified),
        Exact("half right in a batch half right: the advantage of a right answer", lambda: advantages(4, 4)[0][0],
              equals=0.56457, tolerance=2e-4),
        Exact("and of a wrong one", lambda: advantages(4, 4)[0][1], equals=-1.12914, tolerance=4e-4),
        Exact("a quarter right: the weight is 1", lambda: advantages(2, 6)[0][1], equals=-0.54006, tolerance=2e-4),
        Measured("keeps more entropy over right answers than grpo at equal steps", "many-ways", recipe(BIGRAMS),
                 recipes.grpo(BIGRAMS), Final("right_entropy"), seeds=10, minutes=6.0, steps=100, looks=2),
    ),
    mutants=(
        Edit("from hard to easy", BreakSymmetry.__call__, "((1.0 - overall) / (1.0 - root_B",
             "((1.0 - overall) / (root_B"),
        Edit("wrong answers are damped", BreakSymmetry.__call__, "advantage_BT > 0", "advantage_BT < 0"),
        Edit("the mean over answers", BreakSymmetry.__call__, "(rate_B * once_B).sum() / once_B.sum()",
             "(rate_B * share_B).sum() / share_B.sum()"),
    ),
)  # fmt: skip
