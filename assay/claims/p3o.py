"""Claims of p3o: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Area, Claims, Edit, Exact, Measured, by_hand, probes, same_gradient
from assay.method import PLACES, recipes
from assay.methods.p3o import JOINT, PairGradient, pairs_of, recipe

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
    return -torch.stack(gains).sum() / 2 / len(pairs)


def pushes(rewards: Sequence[float], ratios: Sequence[float], *, joint: bool = False) -> list[float]:
    """Returns the coefficient of grad log pi of each answer of one decision, in one group, at these ratios."""
    data = probes.outcomes(*rewards)
    moved = data.logp + torch.tensor(ratios, dtype=torch.float64).log().unsqueeze(1)
    return probes.decision_weights(replace(recipe(joint=joint), credit=()), data, moved).flatten().tolist()


def gap(rewards: Sequence[float], ratios: Sequence[float], apart: Sequence[float], joint: Sequence[float]) -> float:
    """Returns the distance of both clips' coefficients from those given."""
    found = [*pushes(rewards, ratios), *pushes(rewards, ratios, joint=True)]
    return probes.distance(found, [*apart, *joint])




def gap_to_rloo(members: int) -> float:
    """Returns the distance of the coefficients from rloo's in groups of `members` answers at ratio 1."""
    data = probes.outcomes(1.0, 0.0, 0.25, 1.0, 0.0, 0.5, 0.7, 0.2, members=members)
    ours, theirs = (
        probes.decision_weights(one, data, data.logp) for one in (replace(recipe(), credit=()), recipes.rloo())
    )
    return float((ours - theirs).abs().max())


def clipped_share(*, joint: bool) -> float:
    data = probes.outcomes(1.0, 0.2)
    moved = data.logp + torch.tensor([[1.3], [0.9]]).double().log()
    share, num = probes.loss(replace(recipe(joint=joint), credit=()), data, moved).metrics["clipped"]
    return float(share / num)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is the formula's", recipe, loss_by_hand, PAIRS),
        same_gradient("the gradient of the joint clip is its formula's",
                      JOINT, partial(loss_by_hand, joint=True), PAIRS),
        Exact("at a difference of 0.8 the coefficients are 0.4 and -0.4 on its own samples, 0.418 and -0.418 at "
              "ratios 1.1 and 0.95",
              lambda: max(gap((1.0, 0.2), (1.0, 1.0), (0.4, -0.4), (0.4, -0.4)),
                          gap((1.0, 0.2), (1.1, 0.95), (0.418, -0.418), (0.418, -0.418))), at_most=1e-6,
              illustrates=True),
        Exact("ratios 1.3 and 0.9 leave 0 of the first answer and -0.468 of the second, nothing with the joint clip; "
              "with the rewards exchanged -0.468 and 0.468 are left",
              lambda: max(gap((1.0, 0.2), (1.3, 0.9), (0.0, -0.468), (0.0, 0.0)),
                          gap((0.2, 1.0), (1.3, 0.9), (-0.468, 0.468), (-0.468, 0.468))), at_most=1e-6,
              illustrates=True),
        Exact("on its own samples its gradient is rloo's, in groups of two, four and eight",
              lambda: max(map(gap_to_rloo, (2, 4, 8))), at_most=1e-9),
        Exact("the share of clipped answers is logged: one of two apart, both with the joint clip",
              lambda: clipped_share(joint=False) + clipped_share(joint=True), equals=1.5),
        Measured("where rewards have an offset of the prompt it learns faster than reinforce: mean true score", "judge",
                 recipe(PLACES, beta=0.0), recipes.reinforce(PLACES).set("group_size", 2), Area("true_score"),
                 seeds=10, minutes=6.0, steps=60, looks=2, about=About.MECHANISM),
        Measured("with four passes over a batch it learns faster than rloo with two answers and as many passes: mean "
                 "true score", "judge", recipe(PLACES, beta=0.0).set("source.epochs", 4),
                 recipes.rloo(PLACES).set("group_size", 2).set("source.epochs", 4), Area("true_score"), seeds=10,
                 minutes=12.0, steps=60, looks=2, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the mean over answers", PairGradient.count, " // 2", ""),
        Edit("groups of two alone", pairs_of, "return pairs.fill_diagonal_(False)",
             "pairs = pairs.fill_diagonal_(False); return pairs & (pairs.sum(1) == 1)"),
        Edit("rewards of its own", PairGradient.__call__, "outcome_B.unsqueeze(1) - outcome_B",
             "outcome_B.unsqueeze(1)"),
    ),
)
