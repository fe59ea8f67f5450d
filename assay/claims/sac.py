"""Claims of sac: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from functools import partial

import torch

from assay.claims import About, Claims, Edit, Exact, Measured, probes, same_gradient, steps
from assay.method import recipes
from assay.parts import SoftTwin


def losses_by_hand(seen: probes.Seen) -> dict[str, torch.Tensor]:
    step, models, q = steps.step_of(seen), seen.models, steps.output
    next_action, logp = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    soft = q(models["q_target"], step.after, next_action).amin(0) - models["temperature"].log_value.exp() * logp
    error = q(models["q"], step.now, step.action) - step.target(0.99, soft)
    actor = steps.sac_actor(seen, lambda now, action: q(models["q"], now, action).amin(0))
    return {"critic": step.mean(error.square()) / 2, "actor": actor}


def schedule_gap() -> float:
    data, trained = probes.transitions(dtype=torch.float32), {"actor": 1, "q": 1, "temperature": 1}
    return probes.schedule_gap(recipes.sac(), data, probes.BOX_SPEC, trained, {"q_target": ("q", 0.005, 1)})


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
        Exact("target critics follow at rate 0.005", schedule_gap, at_most=1e-7),
        Measured("it swings the pendulum up: its return is above -300",
                 "pendulum", recipes.sac(), -300.0, seeds=5, minutes=8, about=About.HEADLINE),
    ),
)
