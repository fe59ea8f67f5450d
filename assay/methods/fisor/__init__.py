"""fisor: learns from offline data which states can be kept safe; clones by weight; takes the safest candidate.

    harm:   Q_h <- (1 - g) h + g max(h, V_h(s')),   V_h <- low expectile of Q_h in the data;   feasible: V_h <= 0
    reward: Q <- r + g V(s'),                       V <- high expectile of Q
    actor:  loss = w |eps(s, k, a_k) - noise|^2,   w = [Q_h <= 0] exp(b (Q - V)) if V_h <= 0, else exp(c (V_h - Q_h))

Zheng et al. 2024. A worst case is learned instead of a sum, so cost is not traded against reward and no multiplier is
needed; weighted denoising generates behaviour(a|s) * w(s, a). The three losses are independent of each other.
"""

import math
from dataclasses import replace

import torch

from assay import recipes
from assay.claims.claim import Exact, Expect, Final, Measured, Method
from assay.methods.fisor.base import cloned_diffusion, fisor, least_harm
from assay.methods.fisor.claims import feasible_overlap
from assay.methods.fisor.reach import overlap, random_process, safe_set, worst_values
from assay.methods.fisor.targets import WorstToCome
from assay.recipes.defaults import CONTINUOUS


def least_overlap() -> float:
    """Returns the smallest overlap of learned and enumerated safe sets over 30 random processes of 12 states."""
    part, drawn = WorstToCome(0.9, harm=5.0), [random_process(seed) for seed in range(30)]
    return min(overlap(worst_values(part.backed_up, *process) <= 0, safe_set(*process)) for process in drawn)


def horizon_error() -> torch.Tensor:
    """Returns the error of V k forced decisions before a violation against g^k (harm + 1) - 1, in a chain to a bad
    loop.
    """
    num, part = 90, WorstToCome(0.95, harm=25.0)
    successor = (torch.arange(num) + 1).clamp(max=num - 1).unsqueeze(1)
    value = worst_values(part.backed_up, successor, successor == num - 1)
    ahead = (num - 2 - torch.arange(num)).clamp(min=0).double()
    seen = int((value > 0).sum()) - (1 + math.ceil(math.log(26.0) / -math.log(0.95)))
    return (value - (0.95**ahead * 26.0 - 1.0)).abs().max() + abs(seen)


def harm_without_costs() -> torch.Tensor:
    """Returns the largest distance of a value from -1 without costs: all states feasible, and the weights are IQL's."""
    return (worst_values(WorstToCome(0.9).backed_up, random_process(0)[0], torch.zeros(12, 2) > 0) + 1.0).abs().max()


def known_safe(seed: int, level: float = 0.98) -> float:
    """Returns the overlap with the states that can be kept safe, of harm critics whose V_h has this level."""
    *_, value, q = fisor().stages
    stages = replace(value, critic=(least_harm(level),)), q
    return feasible_overlap(replace(fisor(), stages=stages, steps=150), seed)


def known_by_mean(seed: int) -> float:
    return known_safe(seed, 0.5)


METHOD = Method(
    paper="arXiv:2401.10700",
    recipe=fisor,
    worlds=(CONTINUOUS,),
    default_task="steered-hazards",
    family="safe",
    base=recipes.iql,
    variants={"diffusion-bc": cloned_diffusion},
    departures=(
        "a truncated episode bootstraps; the authors treat time limits as ends, which makes doomed states look safe",
        "expectile 0.98 for harm, as the paper says (near 1); the authors' code has 0.9, too far from the minimum here",
        "harm 5 and discount 0.9: violations are seen 17 decisions ahead; the authors' 25 and 0.99 see 324",
        "inverse temperature 10 on unscaled rewards, not 3; plain perceptrons; a native point, scripted data, not DSRL",
        "candidates of harm below -0.9 (-1 is no harm) count as equal: the authors' minimum picks the critic's noise",
        "means of denoising steps are clipped, not the points; without random numbers candidates hash the observation",
    ),
    claims=(
        Exact("the safe set is the enumerated one, in 30 random processes", least_overlap, equals=1.0),
        Exact("a forced violation is seen ln(harm + 1) / -ln(g) ahead", horizon_error, at_most=1e-9),
        Exact("where nothing costs every state is safe", harm_without_costs, at_most=1e-9),
        Measured("an episode costs less than a clone's of the same log", "steered-hazards", fisor(), cloned_diffusion(),
                 metric=Final("evaluation_cost"), expect=Expect.BELOW, margin=1.0, seeds=5, minutes=3.0),
        Measured("and it goes to the goal: its return is above 5, idling gives -3", "steered-hazards", fisor(), 5.0,
                 seeds=5, minutes=2.5),
        Measured("knows the safe states better than by the behaviour's mean harm", "", known_safe, known_by_mean,
                 seeds=5, minutes=1.5),
    ),
)  # fmt: skip
