"""Claims of awac: its losses by hand, exact and measured claims, mutants. Axes: B sequences, T decisions."""

import math
from dataclasses import replace
from functools import partial

from torch import Tensor

from assay.claims import About, Claims, Edit, Measured, follows_schedule, probes, reads_dataset, same_gradient, steps
from assay.method import CONTINUOUS, logged, recipes
from assay.methods.awac import OverOwnAction, recipe
from assay.parts import Log, ReturnRange


def losses_by_hand(seen: probes.Seen, temperature: float = 1.0) -> dict[str, Tensor]:
    step, models, q = steps.step_of(seen), seen.models, steps.output
    onward, _ = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    error = q(models["q"], step.now, step.action) - step.target(0.99, q(models["q_target"], step.after, onward).amin(0))
    own, _ = steps.squashed(models["actor"], step.now, seen.uniform(1, 2, tag=1)[:, 0])
    gain = q(models["q"], step.now, step.action).amin(0) - q(models["q"], step.now, own).amin(0)
    weight = (gain / temperature).exp().clamp(max=100.0).detach()
    # log pi(a) = log N(x; mean, std) - log (1 - tanh(x)^2), x = artanh of a in half-ranges
    found, a = steps.output(models["actor"], step.now), steps.in_half_ranges(step.action)
    log_std = found[..., 2:].clamp(-20.0, 2.0)
    squares = ((a.atanh() - found[..., :2]) / log_std.exp()).square()
    logp = (-squares / 2 - log_std - math.log(2.0 * math.pi) / 2 - (1.0 - a.square()).log()).sum(-1)
    return {"critic": step.mean(error.square()) / 2, "actor": -step.mean(weight * logp)}


CLONING = replace(recipes.bc(CONTINUOUS), source=logged(CONTINUOUS), actor=recipe().actor, steps=200)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, probes.far_transitions,
                      probes.BOX_SPEC, 1e-6),
        same_gradient("another temperature divides the advantage", partial(recipe, temperature=0.25),
                      partial(losses_by_hand, temperature=0.25), probes.far_transitions, probes.BOX_SPEC, 1e-6),
        follows_schedule("target critics follow at rate 0.005", recipe, {"actor": 1, "q": 1}),
        reads_dataset(lambda: recipe(log=Log(3)), scale=ReturnRange(),
                      name="a step's batches are rows of the dataset, rewards in units of the range of returns"),
        Measured("on data with half of the actions random it scores higher than cloning them", "pendulum", recipe(),
                 CLONING, seeds=5, minutes=4, looks=2, steps=200, about=About.HEADLINE),
    ),
    mutants=(
        Edit("one critic in the advantage", OverOwnAction.__call__, "view.sampled[0]).amin(0)", "view.sampled[0])[0]"),
        Edit("unbounded weights", OverOwnAction.__call__, "self.limit)\n", "1e9)\n"),
        Edit("no baseline", OverOwnAction.__call__, ".amin(0) - own", ".amin(0) - 0 * own"),
        Edit("the temperature multiplies", OverOwnAction.__call__, "1.0 / self.temperature", "self.temperature"),
    ),
)
