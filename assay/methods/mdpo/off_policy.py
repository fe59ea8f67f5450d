"""Off-policy mdpo: SAC's replay and critics, with a KL to an older policy in the place of the entropy."""

from __future__ import annotations

from dataclasses import replace
from math import log, pi

import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.claims.probes import steps
from assay.core.recipe import Copy, Recipe
from assay.methods.mdpo.objectives import MirrorDescentQ
from assay.parts.critics.td import Td
from assay.parts.targets.one_step import OwnAction
from assay.recipes.defaults import CONTINUOUS, Defaults


def off_policy(world: Defaults = CONTINUOUS, step_size: float = 1.0, every: int = 100) -> Recipe:
    """Returns off-policy MDPO: `every` updates towards pi_old exp(step_size Q) / Z, then pi_old is the policy.

    Targets have no entropy: r + discount * min_i Q'_i(s', a'), a' of the policy. For continuous actions.
    """
    base = recipes.sac(world)
    critic = replace(base.stages[0], critic=(Td(OwnAction(0.99)),))
    actor = replace(base.stages[1], trains=("actor",), objective=(MirrorDescentQ(step_size),))
    copies = {**base.copies, "old": Copy("actor", rate=1.0, every=every)}
    return replace(base, name="mdpo", critics={"q": base.critics["q"]}, copies=copies, stages=(critic, actor))


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns twin critics' squared errors, and KL(pi || pi_old) - min_i Q_i at the policy's own actions."""
    step, models, out = steps.step_of(seen), seen.models, steps.output
    later, _ = steps.squashed(models["actor"], step.after, seen.uniform(1, 2, tag=2)[:, 0])
    error = out(models["q"], step.now, step.action) - step.target(
        0.99, out(models["q_target"], step.after, later).amin(0)
    )
    action, logp = steps.squashed(models["actor"], step.now, seen.uniform(1, 2, tag=1)[:, 0])
    mean, log_std = out(models["old"], step.now).chunk(2, -1)
    latent = ((action - steps.CENTRE) / steps.HALF).clamp(-1 + 1e-6, 1 - 1e-6).atanh()
    log_std = log_std.clamp(-20.0, 2.0)
    density = -((latent - mean) / log_std.exp()).square() / 2 - log_std - log(2 * pi) / 2
    slope = (steps.HALF * (1 - latent.tanh().square())).log()
    kl = logp - (density - slope).sum(-1)
    return {
        "critic": step.mean(error.square()) / 2,
        "actor": step.mean(kl - torch.minimum(*out(models["q"], step.now, action))),
    }


def gradient_gap() -> float:
    """Returns the largest gap of its gradients to the formulas."""
    return probes.formula_gap(off_policy(), probes.transitions(num=64), losses_by_hand, probes.BOX_SPEC)


def schedule_gap() -> float:
    """Returns how far copies are from: critics at rate 0.005, the old policy every 2 updates (100 in the recipe)."""
    targets = {"q_target": ("q", 0.005, 1), "old": ("actor", 1.0, 2)}
    data = probes.transitions(dtype=torch.float32)
    gap = probes.schedule_gap(off_policy(every=2), data, probes.BOX_SPEC, {"actor": 1, "q": 1}, targets)
    return gap + abs(off_policy().copies["old"].every - 100)
