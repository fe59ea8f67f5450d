"""Claims of sac: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from functools import partial

import torch

from assay.claims import About, Claims, Edit, Measured, follows_schedule, probes, same_gradient, steps
from assay.method import recipes
from assay.parts import SoftTwin


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    step = steps.step_of(seen)
    error = steps.output(seen.models["q"], step.now, step.action) - steps.soft_target(seen)
    return {"critic": step.mean(error.square()) / 2, "actor": steps.sac_actor(seen)}


CLAIMS = Claims(
    mutants=(
        Edit("the trained critics in the target", SoftTwin.__call__, "model(self.q)", 'model("q")'),
        Edit("one critic in the target", SoftTwin.__call__, ".amin(0)", "[0]"),
        Edit("the mean of the critics for the actor", recipes.sac, "MaximizeSoftQ()", "MaximizeSoftQ(averaged=True)"),
        Edit("target entropy of the other sign", recipes.sac, "MatchEntropy(-1.0)", "MatchEntropy(1.0)"),
        Edit("target critics are copies", recipes.sac, "rate=0.005", "rate=1.0"),
        Edit("the temperature stays as it was", recipes.sac, ', "temperature")', ",)"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipes.sac, losses_by_hand,
                      partial(probes.transitions, num=64), probes.BOX_SPEC, at_most=1e-6),
        follows_schedule("target critics follow at rate 0.005", recipes.sac),
        Measured("it swings the pendulum up: its return is above -300",
                 "pendulum", recipes.sac(), -300.0, seeds=5, minutes=8, about=About.HEADLINE),
    ),
)
