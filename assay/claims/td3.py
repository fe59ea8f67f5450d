"""Claims of td3: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from functools import partial

import torch

from assay.claims import DELAYED, About, Claims, Edit, Measured, follows_schedule, probes, same_gradient, steps
from assay.method import recipes
from assay.parts import SmoothedTwin


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    step, models, q = steps.step_of(seen), seen.models, steps.output
    onward = q(models["q_target"], step.after, steps.smoothed(seen)).amin(0)
    error = q(models["q"], step.now, step.action) - step.target(0.99, onward)
    climbed = q(models["q"], step.now, steps.bounded(models["actor"], step.now))[0]
    return {"critic": step.mean(error.square()) / 2, "actor": -step.mean(climbed)}


CLAIMS = Claims(
    mutants=(
        Edit("the trained actor in the target", SmoothedTwin.__call__, "view, self.actor,", 'view, "actor",'),
        Edit("the trained critics in the target", SmoothedTwin.__call__, "model(self.q)", 'model("q")'),
        Edit("the actor moves at every update", recipes.td3, "optimizer=step, every=2", "optimizer=step"),
        Edit("the target actor follows at every update", recipes.td3, 'of="actor", rate=0.005, every=2',
             'of="actor", rate=0.005'),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", recipes.td3, losses_by_hand,
                      partial(probes.transitions, num=256), probes.BOX_SPEC, at_most=1e-6),
        follows_schedule("actor and target networks move every second update", recipes.td3, {"actor": 2, "q": 1},
                         DELAYED),
        Measured("it swings the pendulum up: its return is above -300",
                 "pendulum", recipes.td3(), -300.0, seeds=5, minutes=5, about=About.HEADLINE),
    ),
)
