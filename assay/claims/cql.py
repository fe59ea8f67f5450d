"""CQL's losses by hand, for discrete and continuous actions. Axes: B sequences, T decisions."""

import math
from functools import partial

import torch

from assay.claims import COPIED, About, Claims, Edit, Measured, cartpole, follows_schedule, probes, reads_dataset
from assay.claims import same_gradient, steps
from assay.method import CONTINUOUS, CONTROL, cql, recipes
from assay.methods.cql import HeldGap, cql_lagrange
from assay.parts import Conservative, Log
from assay.recipes.conservative import conservative_sac


def discrete_by_hand(seen: probes.Seen) -> torch.Tensor:
    """Returns double DQN's loss and the penalty by a plain sum over actions."""
    step, (q, squares) = steps.step_of(seen), steps.double_q(seen, 0.99)
    return step.mean(squares + q.exp().sum(-1).log() - q[torch.arange(len(q)), step.action])


def continuous_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    """Returns the losses of critics, actor and temperature; with a multiplier if the recipe has one."""
    step, (squares, penalty) = steps.step_of(seen), steps.conservative(seen, 0.99, 10)
    critic = step.mean(squares + penalty)
    if "multiplier" in seen.models:  # weight 1 becomes a number m > 0 that climbs m * (mean gap - 5)
        weight, constant = seen.models["multiplier"].log_value.exp(), math.log(30.0)
        mean_gap = step.mean(penalty.mean(0) - constant).detach()
        critic = step.mean(squares + weight.detach() * penalty) - weight * (mean_gap - 5.0)
    return {"critic": critic, "actor": steps.sac_actor(seen)}


NARROW = Log(20, noise=0.1)


TENTHS = Log(reward_scale=0.1)


CLAIMS = Claims(
    mutants=(
        Edit("lagrange: the multiplier falls where the gap is large", HeldGap.__call__, "- multiplier * (gap",
             "+ multiplier * (gap"),
        Edit("lagrange: no threshold", HeldGap.__call__, "gap - self.threshold * count", "gap"),
        Edit("lagrange: the penalty keeps weight 1", HeldGap.__call__, "multiplier.detach() * found.sum", "found.sum"),
        Edit("continuous: the penalty's sign turned", Conservative.bounded, "top - q(", "-top + q("),
        Edit("continuous: values not over their density", Conservative.bounded, " - log_density", ""),
        Edit("continuous: no penalty", Conservative.bounded, "self.weight * gap.sum()", "0.0 * gap.sum()"),
        Edit("continuous: proposals of the next state valued there", Conservative.bounded, "repeated(now.context",
             "repeated(batch.after.context"),
        Edit("continuous: all proposals with uniform density", Conservative.proposals, "here[1], later[1], density",
             "density, density, density"),
        Edit("continuous: another weight", conservative_sac, "Conservative(weight)", "Conservative(5.0 * weight)"),
    ),
    claims=(
        same_gradient("with discrete actions its gradient is that of the formula",
                      partial(cql, CONTROL), discrete_by_hand,
                      partial(probes.transitions, probes.CHOICE_SPEC, num=64), probes.CHOICE_SPEC),
        same_gradient("with continuous actions its gradients are those of the formulas", partial(cql, CONTINUOUS),
                      continuous_by_hand, partial(probes.transitions, num=32), probes.BOX_SPEC, 1e-6),
        same_gradient("the gradients of its lagrange variant are those of the formulas",
                      cql_lagrange, continuous_by_hand, partial(probes.transitions, num=32), probes.BOX_SPEC, 1e-6),
        follows_schedule("with discrete actions the target network is a copy made every 128 updates",
                         partial(cql, CONTROL), {"actor": 1}, COPIED, spec=probes.CHOICE_SPEC, num=130, of="control"),
        follows_schedule("with continuous actions target critics follow at rate 0.005", partial(cql, CONTINUOUS),
                         of="continuous-control"),
        reads_dataset(lambda: cql(CONTROL, Log(20)), cartpole, of=""),
        Measured("on an expert's log it works where double DQN does not", "cartpole", cql(CONTROL, NARROW),
                 cql(CONTROL, NARROW, weight=0.0), seeds=5, minutes=2.0, steps=150, about=About.HEADLINE),
        Measured("where no episode has all good pieces it scores 0.2 above cloning: it stitches",
                 "logged-tree:stitching=4,coverage=1", cql(CONTROL, TENTHS), recipes.bc(), margin=0.2, seeds=5, looks=3,
                 steps=40, about=About.HEADLINE),
    ),
)
