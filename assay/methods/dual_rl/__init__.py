"""dual-rl: one convex conjugate gives offline RL (XQL, f-DVL) and imitation from any data (ReCOIL).

    max over visits d of <d, r> - w D_f(d | data) = min over V of (1 - g) <start, V> + w E_data[f*((r + g V' - V) / w)]
    f-DVL:  V-loss = level * F(Q - V) - (1 - level) * (Q - V);   Q-loss = (r + g V' - Q)^2 / 2;  cloning by exp(b (Q-V))
    ReCOIL: Q-loss = -share * E_expert[Q] + E_mix[(g V' - Q)^2] / 4, no reward

Sikchi et al. 2024. XQL is F = exp, whose pull on V is unbounded; chi-square and total variation bound its order.
"""

from functools import partial

import torch

from assay import recipes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.methods.dual_rl.base import XQL, cloned, f_dvl, recoil
from assay.methods.dual_rl.claims import Process, minimised, policies_of_two_states
from assay.methods.dual_rl.conjugates import ChiSquare, ReverseKl
from assay.methods.dual_rl.fits import ImplicitMaximum
from assay.recipes.defaults import CONTINUOUS, CONTROL, TABLE

P = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]], dtype=torch.float64)
PROCESS = Process(P, torch.tensor([[0.0, 1.0], [0.3, -0.5]]).double(), torch.tensor([0.7, 0.3]).double(), 0.9)
DATA = PROCESS.visits(torch.tensor([[0.6, 0.4], [0.3, 0.7]]).double())
EXPERT = PROCESS.visits(torch.tensor([[0.1, 0.9], [0.8, 0.2]]).double())
POLICIES = policies_of_two_states(401)


def duality_gap(f: ChiSquare | ReverseKl) -> torch.Tensor:
    """The dual's minimum minus the best of all policies on a grid."""
    best = PROCESS.primal(PROCESS.visits(POLICIES), DATA, f, 0.3).max()
    return minimised(lambda value: PROCESS.dual(value, DATA, f, 0.3), torch.zeros(2).double()) - best


def mixture_gap() -> torch.Tensor:
    """min over Q of ReCOIL's loss plus the chi-square distance of the mixtures, for a policy that is not the expert."""
    policy = torch.tensor([[0.5, 0.5], [0.4, 0.6]]).double()
    mine, mix = 0.5 * PROCESS.visits(policy) + 0.5 * DATA, 0.5 * EXPERT + 0.5 * DATA

    def loss(q: torch.Tensor) -> torch.Tensor:
        y = 0.9 * PROCESS.P @ (policy * q).sum(1) - q
        start = 0.5 * 0.1 * (PROCESS.initial.unsqueeze(1) * policy * q).sum()
        return start + (mix * (y + 0.25 * y.square())).sum() - 0.5 * (DATA * y).sum()

    return minimised(loss, torch.zeros(2, 2).double()) + ((mine - mix).square() / mix).sum()


METHOD = Method(
    paper="arXiv:2302.08560",
    recipe=f_dvl,
    worlds=(CONTROL, CONTINUOUS, TABLE),
    default_task="gridworld",
    family="offline",
    base=recipes.iql,
    aliases=("f-dvl",),
    variants={"recoil": recoil, "xql": partial(f_dvl, maximum=XQL)},
    departures=(
        "chi-square's surrogate is 0 below 0; the authors' code lets it rise again below -4, which loses the maximum",
        "XQL has its authors' clip but not their rescaling by the batch's largest exponent; squared, not Huber, errors",
        "ReCOIL is the paper's loss with V for Q(s, pi), on both halves; the authors' code regresses to fixed targets",
        "data are made of scripted experts under noise, not D4RL",
    ),
    claims=(
        Exact("the dual is the best policy's value, chi-square", lambda: duality_gap(ChiSquare()), 0.0, tolerance=1e-5),
        Exact("the dual is the best policy's value, reverse KL", lambda: duality_gap(ReverseKl()), 0.0, tolerance=1e-5),
        Exact("ReCOIL's critic measures the distance of mixtures", mixture_gap, equals=0.0),
        Measured(
            "with large rewards f-DVL learns sooner than XQL",
            "gridworld", f_dvl(TABLE, ImplicitMaximum(), 100.0), f_dvl(TABLE, XQL, 100.0),
            metric=Average("evaluation"), seeds=5, minutes=1.0, steps=60,
        ),
        Measured(
            "one expert episode and random ones: ReCOIL does better than cloning the expert's",
            "cartpole", recoil(), cloned(), seeds=5, minutes=4.0, steps=100,
        ),
    ),
)  # fmt: skip
