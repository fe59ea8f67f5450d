"""zero-shot-rl: learns successor measures for all tasks at once, without rewards; a mean solves any reward.

    F(s, a, z) . B(s+) = density of the discounted states after (s, a) under pi_z(s) = argmax_a F(s, a, z) . z
    loss = sum_k mean_{i != j} (F_k . B(s'_j) - discount T)^2 / 2 - mean_i F_k . B(s'_i);  E[B B^T] -> 1
    VC-FB: + weight * (log sum_a exp F . z - F(s, a_data, z) . z);   at test z = E_data[r(s) B(s)], for a goal B(g)

Jeen et al. 2024 (and Jeen's thesis) on Touati & Ollivier 2021: small or homogeneous data lack actions, which FB then
overvalues for some z; CQL's penalty for all z at once lowers them. MC-FB applies it to F . B.
"""

from functools import partial

import torch

from assay.claims import Edit, Exact, Measured, Method, probes
from assay.claims.probes import GOAL_BOX, GOAL_CHOICE
from assay.core.recipe import Recipe
from assay.core.slots import CriticLoss
from assay.methods.zero_shot_rl import losses
from assay.methods.zero_shot_rl.claims import LENGTH_TERM, acting_errors, gradient_gap
from assay.methods.zero_shot_rl.losses import ConservativeMeasures, ConservativeValues, forward_backward
from assay.methods.zero_shot_rl.models import ForwardBackward
from assay.parts.sources.relabelled import Play
from assay.recipes.defaults import CONTINUOUS, CONTROL, Defaults

CAREFUL, ON_MEASURES = (ConservativeValues(1.0),), (ConservativeMeasures(1.0),)
POOR, FULL = Play(episodes=10, noise=0.0), Play(episodes=50, noise=0.5)
"""An expert without exploration, and five times as many episodes of half-random exploration."""


def vc_fb(world: Defaults = CONTROL) -> Recipe:
    """Returns FB with conservative values."""
    return forward_backward(world, CAREFUL)


def more_goals(name: str, conservative: tuple[CriticLoss, ...], data: Play, margin: float = 0.0) -> Measured:
    """Returns the claim that FB with this penalty reaches more held-out goals than without, from these data."""
    ours, theirs = (forward_backward(CONTROL, terms, data) for terms in (conservative, ()))
    return Measured(name, "small-rooms", ours, theirs, margin=margin, seeds=5, minutes=2.5, steps=80)


METHOD = Method(
    paper="arXiv:2309.15178",
    recipe=vc_fb,
    worlds=(CONTROL, CONTINUOUS),
    default_task="small-rooms",
    family="goal-conditioned",
    base=forward_backward,
    aliases=("vc-fb",),
    variants={"fb": forward_backward, "mc-fb": partial(forward_backward, conservative=ON_MEASURES)},
    equivalent=dict.fromkeys(LENGTH_TERM, "B has a fixed length, so the gradient of this term is 0 but for rounding"),
    mutants=(
        Edit("the diagonal is in the square", losses.Rows.others, " - torch.diag(self.weight)", ""),
        Edit("the target policy chooses", losses.MeasureLoss.__call__, "rows.model.decide", "target.decide"),
        Edit("targets are the minimum of the heads", losses.MeasureLoss.__call__, ".T).mean(0)", ".T).amin(0)"),
        Edit("the penalty raises", ConservativeValues.__call__, "Loss(self.weight", "Loss(-self.weight"),
        Edit("tasks are goals alone", ForwardBackward.tasks, "< 0.5", "< 2.0"),
        Edit("the first head alone acts", ForwardBackward.values, ".amin(0)", "[0]"),
    ),
    departures=(
        "of the thesis, FB and its value- and measure-conservative kinds; no memory and no data-free control (PEARL)",
        "the penalty has a fixed weight; the authors' dual variable has a target (50) that fits their D and discount",
        "for continuous actions the penalty takes 8 uniform samples, the policy's and the recorded one, all at s",
        "B reads positions, the space of goals; claims are about goals of held-out mazes, not ExORL's rewards",
        "targets are the mean of two heads; under their minimum the mass of M fell to a fifth in a thousand updates",
        "D 32, discount 0.9, one learning rate, 64 units, inputs as waves, norm instead of element clipping",
    ),
    claims=(
        Exact("its gradient is the formula's, pair by pair", lambda: gradient_gap(vc_fb(), GOAL_CHOICE), at_most=1e-5),
        Exact("also for continuous actions, and the policy's",
              lambda: gradient_gap(vc_fb(CONTINUOUS), GOAL_BOX), at_most=1e-5),
        Exact("MC-FB's is the formula's", lambda: gradient_gap(
              forward_backward(CONTROL, ON_MEASURES), GOAL_CHOICE, on_measures=True), at_most=1e-5),
        Exact("acts for z = B(goal), or for the z = E[r B] of a reward", lambda: acting_errors(vc_fb(), GOAL_CHOICE)
              + acting_errors(vc_fb(CONTINUOUS), GOAL_BOX), at_most=1e-5),
        Exact("the target follows at rate 0.05", lambda: probes.schedule_gap(
              vc_fb(), probes.goal_transitions(dtype=torch.float32), GOAL_CHOICE, {"actor": 1},
              {"target": ("actor", 0.05, 1)}), at_most=1e-7),
        more_goals("from poor data, VC-FB reaches more held-out goals than FB", CAREFUL, POOR),
        more_goals("and so does MC-FB", ON_MEASURES, POOR),
        more_goals("from diverse data, VC-FB reaches not fewer", CAREFUL, FULL, margin=-0.05),
    ),
)  # fmt: skip
