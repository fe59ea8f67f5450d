"""zero-shot-rl: learns successor measures for all tasks at once, without rewards; a mean solves any reward.

    F(s, a, z) . B(s+) = density of the discounted states after (s, a) under pi_z(s) = argmax_a F(s, a, z) . z
    loss = sum_k mean_{i != j} (F_k . B(s'_j) - discount T)^2 / 2 - mean_i F_k . B(s'_i);  E[B B^T] -> 1
    VC-FB: + weight * (log sum_a exp F . z - F(s, a_data, z) . z);   at test z = E_data[r(s) B(s)], for a goal B(g)

Jeen et al. 2024 (and Jeen's thesis) on Touati & Ollivier 2021: small or homogeneous data lack actions, which FB then
overvalues for some z; CQL's penalty for all z at once lowers them. MC-FB applies it to F . B.
"""

from functools import partial

from assay.method import CONTINUOUS, CONTROL, Preset, Method, Recipe
from assay.methods.zero_shot_rl.losses import ConservativeMeasures, ConservativeValues, forward_backward

CAREFUL, ON_MEASURES = (ConservativeValues(1.0),), (ConservativeMeasures(1.0),)


def vc_fb(preset: Preset = CONTROL) -> Recipe:
    """Returns FB with conservative values."""
    return forward_backward(preset, CAREFUL)


METHOD = Method(
    paper="arXiv:2309.15178",
    recipe=vc_fb,
    presets=(CONTROL, CONTINUOUS),
    default_task="small-rooms",
    family="goal-conditioned",
    base=forward_backward,
    aliases=("vc-fb",),
    variants={"fb": forward_backward, "mc-fb": partial(forward_backward, conservative=ON_MEASURES)},
    departures=(
        "of the thesis, FB and its value- and measure-conservative kinds; no memory and no data-free control (PEARL)",
        "the penalty has a fixed weight; the authors' dual variable has a target (50) that fits their D and discount",
        "for continuous actions the penalty takes 8 uniform samples, the policy's and the recorded one, all at s",
        "B reads positions, the space of goals; claims are about goals of held-out mazes, not ExORL's rewards",
        "targets are the mean of two heads; under their minimum the mass of M fell to a fifth in a thousand updates",
        "D 32, discount 0.9, one learning rate, 64 units, inputs as waves, norm instead of element clipping",
    ),
)
