"""Claims of cdsa: its losses and its steps by hand, its limits, measured claims. Axes: N rows, K = 10 levels, A."""

from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Measured, built, probes, reads_dataset
from assay.claims import same_gradient, same_weights, steps
from assay.method import CONTINUOUS, Box, Context, Draw, td3_bc
from assay.methods.cdsa import ActionDenoiser, Corrected, DensityCorrection, recipe
from assay.models import ActionUnits
from assay.parts import Log
from assay.recipes import bc
from assay.tasks.control.steered import steered_hazards
from assay.tasks.control.stepping import Scripted

SIGMA = torch.tensor([0.5 * 0.1 ** (k / 9) for k in range(10)])
"""Sizes of the noise, in float32 as the network has them."""


def clean(net: Any, seen: Tensor, level: Tensor, point: Tensor) -> Tensor:
    """Returns the network's clean action at levels [N] counted from 0."""
    times = steps.times((level.double() + 1).unsqueeze(-1) / 10)
    found: Tensor = net.net.net(torch.cat((seen, times, point), -1))
    return found


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, uniform = steps.step_of(seen), seen.uniform(2, 3, tag=3)[:, 0]
    goal, level = steps.in_half_ranges(step.action), (10 * uniform[:, 0]).long()
    noisy = goal + SIGMA[level].unsqueeze(1) * steps.normal(uniform[:, 1:])
    missed = (clean(seen.models["density"], step.now, level, noisy) - goal).square().sum(-1)
    return {**steps.td3_bc(seen), "density": step.mean(missed)}


@torch.no_grad()
def decided(strength: float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the actor's decisions, those of the wrapper, and those of the formula, in 64 random states."""
    models: Any = built(recipe(), probes.BOX_SPEC).models
    seen = probes.transitions(num=64).context["observation"][:, 0]
    plain = models["actor"].act({"observation": seen}, None)[0]
    point = steps.in_half_ranges(plain)
    for k in range(10):
        ahead = clean(models["density"], seen, torch.full((64,), k), point)
        point = (point + strength * (ahead - point)).clamp(-1.0, 1.0)
    mine = replace(cast(Any, recipe().wrapper), strength=strength).around(models).act({"observation": seen}, None)[0]
    return plain, mine, steps.CENTRE + steps.HALF * point


def steps_gap() -> float:
    return probes.worst(*(float((mine - formula).abs().max()) for _, mine, formula in map(decided, (0.1, 1.5))))


def moved_at_zero() -> float:
    plain, mine, _ = decided(0.0)
    return float((plain != mine).sum())


class Bell:
    """The score where recorded actions are N(0.2, 0.3^2), at noise 0.1: (0.2 - x) / (0.3^2 + 0.1^2)."""

    def __init__(self, levels: int) -> None:
        self.sigma, self.units = torch.full((levels,), 0.1), ActionUnits(Box((-1.0,), (1.0,)))

    def score(self, context: Context, which: int, point: Tensor) -> Tensor:
        """Returns the score."""
        return (0.2 - point) / (0.3**2 + 0.1**2)


def climbed(strength: float, levels: int) -> float:
    """Returns where steps of `strength` * 0.1^2 along that score lead from 0.8."""
    actor = Scripted(lambda context: torch.full((1, 1), 0.8))
    return float(Corrected(DensityCorrection(strength), actor, Bell(levels)).act({}, None)[0])


# ---------------------------------------------------------------------------------------------------- measured
LOG = Log(20, noise=0.1)
"""A narrow log: the expert's episodes, with a random action in ten."""
careless = partial(recipe, log=LOG, base=partial(td3_bc, weight=40.0))
"""A policy with too little pull: sixteen times the weight of the value in td3-bc."""


@torch.no_grad()
def judged(models: Any, strength: float, episodes: int = 20) -> tuple[float, float]:
    """Returns the mean return of held-out episodes, and the share of their decisions that are further from the log
    than 95 % of its own are from the rest of it; states in standard deviations, actions in half-ranges.
    """
    task, columns = steered_hazards(), LOG.columns(steered_hazards())
    who, starts = DensityCorrection(strength).around(models), np.arange(episodes)
    played = task.play(who, starts, np.zeros_like(starts), Draw(0), split=1, greedy=True)
    seen = columns["context.observation"][:, 0]
    unit = seen.std(0, correction=0)
    log = torch.cat((seen / unit, columns["action"][:, 0]), 1)
    own = torch.cdist(log, log).fill_diagonal_(torch.inf).amin(1)
    taken = torch.cat((played.context["observation"][played.mask] / unit, played.action[played.mask]), 1)
    far = torch.cdist(taken, log).amin(1) > own.quantile(0.95)
    return float(task.judge(played, 1).column("score").mean()), float(far.double().mean())


def gained(seed: int, strength: float, place: int, steps: int | None = None) -> float:
    """Returns by how much a correction raises the return (place 0), or the share of decisions far from the log (1)."""
    given = careless()
    models = probes.trained(given, steered_hazards(), seed, steps or given.steps).engine.models
    after, before = judged(models, strength), judged(models, 0.0)
    return after[place] - before[place]


def unlike_clone(seed: int, steps: int | None = None) -> float:
    """Returns the return of a policy that is corrected at full strength minus that of a clone of the same log."""
    given = careless()
    clone = replace(bc(), source=given.source, steps=given.steps)
    ours, theirs = (probes.trained(one, steered_hazards(), seed, steps or one.steps).engine.models
                    for one in (given, clone))
    return judged(ours, 1.0)[0] - judged(theirs, 0.0)[0]


def side(function: Any) -> Computed:
    """Returns the side, with its version of two steps."""
    return Computed(function, small=partial(function, steps=2))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand,
                      partial(probes.transitions, num=1024), probes.BOX_SPEC, 1e-6),
        Exact("a decision is ten steps towards the clean action, from the widest noise to the narrowest, all inside "
              "the bounds", steps_gap, at_most=1e-6),
        same_weights("policy and critics are td3-bc's to the bit: the score is no part of learning", recipe,
                     partial(td3_bc, CONTINUOUS)),
        Exact("at strength 0 it is the policy to the bit", moved_at_zero, equals=0.0, tolerance=0.0, illustrates=True),
        Exact("where data are N(0.2, 0.3^2) three steps of 5 at noise 0.1 lead from 0.8 to 0.275, and one of 10 to the "
              "mode", lambda: abs(climbed(5.0, 3) - 0.275) + abs(climbed(10.0, 1) - 0.2), at_most=1e-6,
              illustrates=True),
        reads_dataset(partial(recipe, log=Log(3)), steered_hazards),
        Measured("where td3-bc has too little pull, correction at strength 0.3 raises its return by more than 1", "",
                 side(partial(gained, strength=0.3, place=0)), 0.0, margin=1.0, seeds=5, minutes=6.0,
                 about=About.HEADLINE),
        Measured("where td3-bc has too little pull, correction at strength 0.3 takes fewer decisions far from the log",
                 "", side(partial(gained, strength=0.3, place=1)), 0.0, expect=Expect.BELOW, seeds=5, minutes=6.0,
                 about=About.MECHANISM),
        Measured("at full strength its return is that of a clone within 10 %, 1.2", "", side(unlike_clone), 0.0,
                 expect=Expect.WITHIN, margin=1.2, seeds=5, minutes=8.0, about=About.COMPONENT),
    ),
    mutants=(
        Edit("the clean action is added to noise of one size", ActionDenoiser.misfit,
             "self.sigma[which].unsqueeze(-1) * normal", "normal"),
        Edit("the noise is regressed", ActionDenoiser.misfit, "point) - goal)", "point) - (point - goal))"),
        Edit("away from the data", ActionDenoiser.score, "(self.denoised(context, which, point) - point)",
             "(point - self.denoised(context, which, point))"),
        Edit("steps of one length at all levels", Corrected.act, "sigma.square()", "density.sigma[0].square()"),
        Edit("clipped once, at the end", Corrected.act, "(point + step).clamp(-1.0, 1.0)", "point + step"),
        Edit("actions in the task's units", Corrected.act, "density.units(action)", "action"),
        Edit("from the narrowest noise", Corrected.act, "enumerate(density.sigma)",
             "reversed(list(enumerate(density.sigma)))"),
    ),
)
