"""The exact solution of an iteration of mdpo. Axes: B sequences, T decisions."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from assay.claims import About, Average, Claims, Edit, Exact, Measured, by_hand, probes, steps
from assay.method import Progress, recipes
from assay.methods.mdpo import MirrorDescent, off_policy, recipe
from assay.parts import FreshSequences


def gaussian(model: Any, seen: Tensor) -> Normal:
    """Returns the distribution before the squashing."""
    mean, log_std = steps.output(model, seen).chunk(2, -1)
    return Normal(mean, log_std.clamp(-20.0, 2.0).exp())


def off_policy_losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns twin critics' squared errors, and KL(pi || pi_old) - min_i Q_i at the policy's own actions."""
    step, models, out = steps.step_of(seen), seen.models, steps.output
    later, _ = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    error = out(models["q"], step.now, step.action) - step.target(
        0.99, out(models["q_target"], step.after, later).amin(0)
    )
    action, _ = steps.squashed(models["actor"], step.now, seen.uniform(1, 2, tag=1)[:, 0])
    kl = kl_divergence(gaussian(models["actor"], step.now), gaussian(models["old"], step.now)).sum(-1)
    return {
        "critic": step.mean(error.square()) / 2,
        "actor": step.mean(kl - torch.minimum(*out(models["q"], step.now, action))),
    }


def gradient_gap() -> float:
    """Returns the largest gap of its gradients to the formulas."""
    return probes.formula_gap(off_policy(), probes.transitions(num=64), off_policy_losses_by_hand, probes.BOX_SPEC)


def schedule_gap() -> float:
    """Returns how far copies are from: critics at rate 0.005, the old policy every 2 updates (100 in the recipe)."""
    targets = {"q_target": ("q", 0.005, 1), "old": ("actor", 1.0, 2)}
    data = probes.transitions(dtype=torch.float32)
    gap = probes.schedule_gap(off_policy(every=2), data, probes.BOX_SPEC, {"actor": 1, "q": 1}, targets)
    return gap + abs(off_policy().copies["old"].every - 100)


def losses_by_hand(seen: probes.Seen, step_size: float = 1.0) -> dict[str, torch.Tensor]:
    value = seen.value()
    return by_hand.ppo(seen.experience, seen.logp(), torch.zeros_like(value), value, 0.98, 0.9,
                       lambda ratio, ahead: ratio * ahead - (ratio * ratio.log() - ratio) / step_size)  # fmt: skip


def gap_after(share: float) -> float:
    """Returns the distance from the formula after this share of the run: the step size falls to 0."""
    now = recipe().at(Progress(step=round(100 * share), num_steps=100))
    return probes.formula_gap(now, probes.fragments(), partial(losses_by_hand, step_size=1.0 - share))


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradients are the formula's", lambda: gap_after(0.0), at_most=1e-9),
        Exact("with a smaller step, late in a run, its gradients are the formula's",
              lambda: gap_after(0.75), at_most=1e-9),
        Exact("a step is three epochs of four minibatches",
              lambda: probes.source_gap(recipe(), probes.fragments(), batches=12, epochs=3), equals=0.0),
        Exact("the gradients of mdpo:off-policy are the formulas'", gradient_gap, at_most=1e-5, of="off-policy"),
        Exact("mdpo:off-policy copies the old policy every 100 updates", schedule_gap, at_most=1e-6,
              of="off-policy"),
        Measured("several steps an iteration score higher than one", "cartpole", recipe(),
                 replace(recipe(), source=FreshSequences()), seeds=5, minutes=3.0, about=About.COMPONENT),
        Measured("on a random MDP its area is no lower than ppo's, by 0.02", "random-mdp", recipe().set("steps", 15),
                 recipes.ppo().set("steps", 15), metric=Average("evaluation"), margin=-0.02, seeds=5, looks=3,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("one update a step", recipe, "base, name", "base, source=preset.on_policy_source, name"),
        Edit("a constant step size", recipe, "MirrorDescent(step_size)", "MirrorDescent(1.0)"),
        Edit("ppo's entropy bonus stays", recipe, "regularizers=()", "regularizers=base.stages[0].regularizers"),
        Edit("the other KL", MirrorDescent.__call__, "ratio * bounded - ratio + 1.0", "ratio - 1.0 - bounded"),
        Edit("advantages are not weighted", MirrorDescent.__call__, "-advantage * ratio", "-advantage * log_ratio"),
    ),
)
