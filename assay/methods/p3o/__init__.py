"""p3o: pairs of answers are compared by the difference of their rewards; ratios are clipped for each answer.

    maximise 1/2 sum_i min(c_i rho_i, c_i clip(rho_i, 0.8, 1.2)),   c_i = (R_i - R_other) stop_gradient(rho_other)
    R = r - beta log(pi_old(y) / pi_ref(y)),   rho = pi(y) / pi_old(y) of the whole answer

Wu et al. 2023. Rewards of a preference model are defined up to a constant of the prompt; differences are invariant to
it. `joint` clips the log-odds of the pair instead (the paper's V2).
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Area, Edit, Exact, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.p3o.objectives import PairGradient
from assay.recipes.defaults import LANGUAGE, PLACES, Defaults
from assay.recipes.group import with_kl_in_reward, with_policy


def recipe(world: Defaults = LANGUAGE, beta: float = 0.05, *, joint: bool = False) -> Recipe:
    pairs = replace(recipes.rloo(world), credit=(), source=world.reuse).set("group_size", 2)
    return with_policy(with_kl_in_reward(pairs, "p3o", beta), "p3o", PairGradient(joint=joint))


JOINT, PAIRS = partial(recipe, joint=True), partial(probes.sequences, group_size=2)


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


METHOD = Method(
    paper="arXiv:2310.00212",
    recipe=recipe,
    family="preference",
    base=recipes.rloo,
    variants={"p3o-joint": JOINT},
    departures=(
        "the clip of `joint` is written from knowledge of the paper; inside its range the gradient is the other one's",
        "the KL coefficient is 0.05; the paper sweeps it",
    ),
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, PAIRS),
        same_gradient("that of the joint clip is its formula's", JOINT, partial(loss_by_hand, joint=True), PAIRS),
        Exact("a constant of the prompt changes nothing",
              lambda: probes.distance(slopes(1.0, 0.25, 0.5, 0.75), slopes(4.0, 3.25, -0.5, -0.25)), at_most=1e-9),
        Measured("where rewards have an offset of the prompt it learns faster than reinforce: mean true score", "judge",
                 recipe(PLACES, beta=0.0), recipes.reinforce(PLACES).set("group_size", 2), Area("true_score"),
                 seeds=10, minutes=6.0, steps=60, looks=2),
    ),
    mutants=(
        Edit("rewards of its own", PairGradient.__call__, "outcome - outcome[partner]", "outcome"),
    ),
)  # fmt: skip
