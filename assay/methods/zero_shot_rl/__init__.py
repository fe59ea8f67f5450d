"""zero-shot-rl: learns successor measures for all tasks at once, without rewards; a mean solves any reward.

    F(s, a, z) . B(s+) = density of the discounted states after (s, a) under pi_z(s) = argmax_a F(s, a, z) . z
    loss = sum_k mean_{i != j} (F_k . B(s'_j) - discount T)^2 / 2 - mean_i F_k . B(s'_i);  E[B B^T] -> 1
    VC-FB: + weight * (log sum_a exp F . z - F(s, a_data, z) . z);   at test z = E_data[r(s) B(s)], for a goal B(g)

Jeen et al. 2024 (and Jeen's thesis) on Touati & Ollivier 2021: small or homogeneous data lack actions, which FB then
overvalues for some z; CQL's penalty for all z at once lowers them. MC-FB, `ConservativeMeasures`, applies it to F .
B.
"""

from functools import partial

import torch

from assay.claims.claim import Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.zero_shot_rl.base import forward_backward
from assay.methods.zero_shot_rl.claims import KnownProcess, expected_slopes
from assay.methods.zero_shot_rl.losses import ConservativeMeasures, ConservativeValues, MeasureLoss
from assay.parts.sources.relabelled import Play
from assay.recipes.defaults import CONTINUOUS, CONTROL, Defaults

CAREFUL, ON_MEASURES = (ConservativeValues(1.0),), (ConservativeMeasures(1.0),)
POOR, FULL = Play(episodes=10, noise=0.0), Play(episodes=50, noise=0.5)
"""An expert without exploration, and five times as many episodes of half-random exploration."""
PROCESS = KnownProcess(torch.tensor([[[1, 2], [3, 0]], [[2, 2], [0, 3]], [[3, 1], [1, 0]], [[0, 1], [2, 3]]]), 0.9)
REWARD = torch.tensor([0.3, -1.0, 0.5, 1.2]).double()


def vc_fb(world: Defaults = CONTROL) -> Recipe:
    """Returns FB with conservative values."""
    return forward_backward(world, CAREFUL)


def slope_at_the_measure() -> torch.Tensor:
    """Returns the largest slope of the expected loss, in F and in B, where F . B is the successor measure."""
    return torch.cat([slope.flatten() for slope in expected_slopes(PROCESS, MeasureLoss(0.9), REWARD)]).abs().max()


def value_gap() -> torch.Tensor:
    """Compares F . z with value iteration, for a reward that was not trained on."""
    forward, z = PROCESS.solved(REWARD)
    return (forward @ z - PROCESS.best_values(REWARD)).abs().max()


METHOD = Method(
    paper="arXiv:2309.15178",
    recipe=vc_fb,
    worlds=(CONTROL, CONTINUOUS),
    default_task="small-rooms",
    family="goal-conditioned",
    base=forward_backward,
    aliases=("vc-fb",),
    variants={"fb": forward_backward, "mc-fb": partial(forward_backward, conservative=ON_MEASURES)},
    departures=(
        "of the thesis, FB and its value- and measure-conservative kinds; no memory and no data-free control (PEARL)",
        "the penalty has a fixed weight; the authors' dual variable has a target (50) that fits their D and discount",
        "for continuous actions the penalty takes 8 uniform samples, the policy's and the recorded one, all at s",
        "B reads positions, the space of goals; tasks are goals of held-out mazes, not ExORL's rewards",
        "targets are the mean of two heads; under their minimum the mass of M fell to a fifth in a thousand updates",
        "D 32, discount 0.9, one learning rate, 64 units, inputs as waves, norm instead of element clipping",
    ),
    claims=(
        Exact("the successor measure is where the expected loss is flat", slope_at_the_measure, 0.0, tolerance=1e-9),
        Exact("with full rank, F . E[r B] is the best policy's value for any reward", value_gap, 0.0, tolerance=1e-9),
        Measured(
            "from poor data, VC-FB reaches more held-out goals than FB",
            "small-rooms", forward_backward(CONTROL, CAREFUL, POOR), forward_backward(CONTROL, (), POOR),
            seeds=5, minutes=2.5, steps=80,
        ),
        Measured(
            "and so does MC-FB",
            "small-rooms", forward_backward(CONTROL, ON_MEASURES, POOR), forward_backward(CONTROL, (), POOR),
            seeds=5, minutes=2.5, steps=80,
        ),
        Measured(
            "from diverse data, VC-FB reaches not fewer",
            "small-rooms", forward_backward(CONTROL, CAREFUL, FULL), forward_backward(CONTROL, (), FULL),
            margin=-0.05, seeds=5, minutes=2.5, steps=80,
        ),
    ),
)  # fmt: skip
