"""Claims of p3o: its loss by hand, exact and measured claims, mutants."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Measured, by_hand, probes, same_gradient
from assay.method import PLACES, recipes
from assay.methods.p3o import JOINT, PairGradient, recipe

PAIRS = partial(probes.sequences, group_size=2)


def loss_by_hand(seen: probes.Seen, *, joint: bool = False) -> Tensor:
    reward, moved = by_hand.outcome(by_hand.with_kl(seen, 0.05).experience), by_hand.moved(seen)
    pairs = [rows for rows in by_hand.rows_of_groups(seen.experience) if len(rows) == 2]
    gains = []
    for one, other in (*pairs, *(rows[::-1] for rows in pairs)):
        ahead, odds = reward[one] - reward[other], moved[one] - moved[other]
        scale = ahead * (moved[one] + moved[other]).exp().detach()
        held = odds.detach() if scale * odds > 0 and odds.abs() > 0.2 else odds
        apart = by_hand.clipped(moved[one].exp(), ahead * moved[other].exp().detach(), 0.2, 0.2)
        gains.append(scale * held / 2 if joint else apart)
    return -torch.stack(gains).mean() / 2


def slopes(*rewards: float) -> Tensor:
    data = probes.outcomes(*rewards, members=2)
    return probes.slopes(replace(recipe(), credit=()), data, 0.9 * data.logp)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, PAIRS),
        same_gradient("the gradient of the joint clip is its formula's",
                      JOINT, partial(loss_by_hand, joint=True), PAIRS),
        Measured("where rewards have an offset of the prompt it learns faster than reinforce: mean true score", "judge",
                 recipe(PLACES, beta=0.0), recipes.reinforce(PLACES).set("group_size", 2), Area("true_score"),
                 seeds=10, minutes=6.0, steps=60, looks=2, about=About.MECHANISM),
    ),
    mutants=(
        Edit("rewards of its own", PairGradient.__call__, "outcome - outcome[partner]", "outcome"),
    ),
)
