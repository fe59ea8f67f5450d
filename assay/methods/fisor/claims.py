"""The losses of fisor and its choice of an action by hand; how well a harm critic identifies safe states.

Axes: B transitions, C candidates, A actions, K = 5 denoising steps.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, pi
from typing import Any

import torch
from torch import Tensor

from assay.claims import probes
from assay.claims.probes import steps
from assay.claims.probes.formulas import built
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.record import Draw, Experience, Need
from assay.core.slots import Scene
from assay.engine.engine import Engine
from assay.engine.placement import Placement
from assay.methods.fisor.reach import overlap
from assay.parts.sources.logged import Log
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.steered import avoidable, steered_hazards

NEAR = 0.2
"""Distance from a disc's edge within which states are tested; farther away every state is safe."""
ALPHAS = [exp(-0.1 / 5 - 9.9 * (2 * k - 1) / 50) for k in range(1, 6)]
TOTALS = torch.tensor(ALPHAS).double().cumprod(0)


def with_costs(dtype: torch.dtype = torch.float64) -> Experience:
    """Returns transitions of which a third cost something, in one of two ways."""
    data = probes.transitions(num=64, dtype=dtype)
    cost = torch.zeros(64, 2, 2, dtype=dtype)
    cost[::3, 0, 0], cost[::6, 0, 1] = 0.5, 2.0
    cost[::6, 0, 0] = 0.0
    return replace(data, cost=cost)


def noise_of(actor: Any, seen: Tensor, k: Tensor, point: Tensor) -> Tensor:
    """Returns eps(s, k, x); time features are single precision."""
    t = k.float().unsqueeze(-1) / 5
    features = torch.cat((2 * t - 1, (pi * t).sin(), (2 * (pi * t)).sin(), (2 * (pi * t)).cos()), -1).double()
    found: Tensor = actor.noise.net(torch.cat((seen, features, point), -1))
    return found


@torch.no_grad()
def shift(model: Any, by: Tensor) -> None:
    """Moves what a network says everywhere, by its last bias: random networks say little that is near a threshold."""
    *_, bias = model.parameters()
    bias += by


def weights_by_hand(models: Any, step: steps.Step) -> Tensor:
    worst = steps.output(models["harm_q_target"], step.now, step.action).amax(0)
    gain = steps.output(models["q_target"], step.now, step.action).amin(0) - steps.output(models["value"], step.now)
    harm, found = steps.output(models["harm"], step.now), []
    for row in range(len(gain)):
        if harm[row] > 0:
            found.append((5 * (harm[row] - worst[row])).exp().clamp(max=150))
        else:
            found.append((10 * gain[row]).exp().clamp(max=100) * (1.0 if worst[row] <= 0 else 0.0))
    return torch.stack(found).detach()


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    data, models, out = seen.experience, seen.models, steps.output
    step = steps.step_of(seen)
    shift(models["harm_q_target"], -out(models["harm_q_target"], step.now, step.action).amax(0).median())
    better = out(models["q_target"], step.now, step.action).amin(0) - out(models["value"], step.now)
    shift(models["value"], better.mean())
    uniform = seen.uniform(2, 3, tag=3)[:, 0]
    k = 5 - (5 * uniform[:, 0]).long()
    noise, total = steps.normal(uniform[:, 1:]), TOTALS[k - 1].unsqueeze(-1)
    point = total.sqrt() * (step.action - steps.CENTRE) / steps.HALF + (1 - total).sqrt() * noise
    misfit = (noise_of(models["actor"], step.now, k, point) - noise).square().sum(-1)
    gain = out(models["q_target"], step.now, step.action).amin(0).detach() - out(models["value"], step.now)
    excess = out(models["harm_q_target"], step.now, step.action).amax(0).detach() - out(models["harm"], step.now)
    assert data.cost is not None
    h = torch.where(data.cost[:, 0].sum(-1) > 0, 5.0, -1.0).double()
    later = 0.1 * h + 0.9 * torch.maximum(h, out(models["harm"], step.after))
    target = torch.where(data.terminal[:, 0], h, later).detach()
    error = out(models["q"], step.now, step.action) - step.target(0.95, out(models["value"], step.after))
    return {
        "actor": step.mean(weights_by_hand(models, step) * misfit),
        "value": step.mean((0.1 + 0.8 * (gain >= 0).double()) * gain.square()),
        "q": step.mean(error.square()) / 2,
        "harm": step.mean((0.98 - 0.96 * (excess >= 0).double()) * excess.square()),
        "harm q": step.mean((out(models["harm_q"], step.now, step.action) - target).square()) / 2,
    }


# ---------------------------------------------------------------------------------------------------- acting
def denoised(actor: Any, seen: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns action, path and log-density of denoising steps with these normal numbers [..., 5, A]."""
    point, path, logp = noise[..., 0, :], [noise[..., 0, :]], (-noise[..., 0, :].square() / 2 - log(2 * pi) / 2).sum(-1)
    for place, k in enumerate(range(5, 0, -1)):
        alpha, total = ALPHAS[k - 1], TOTALS[k - 1]
        guess = noise_of(actor, seen, torch.full(seen.shape[:-1], k), point)
        mean = ((point - (1 - alpha) / (1 - total).sqrt() * guess) / alpha**0.5).clamp(-1.0, 1.0)
        if k == 1:
            return steps.CENTRE + steps.HALF * mean, torch.stack(path, -2), logp
        normal = torch.distributions.Normal(mean, (1 - alpha) ** 0.5)
        point = mean + (1 - alpha) ** 0.5 * noise[..., place + 1, :]
        logp = logp + normal.log_prob(point).sum(-1)
        path.append(point)
    raise AssertionError


@torch.no_grad()
def choice_gap(recipe: Recipe) -> Tensor:
    """Returns the largest gap of the chosen action to that of the safest of 16 candidates, the first of those with harm
    below -0.9, and of the score of a path to its density; without random numbers equal rows must act equally.
    """
    models: Any = built(recipe, probes.BOX_SPEC).models
    seen = probes.transitions(num=64).context["observation"][:, 0]
    uniform = torch.rand(64, 16 * 10, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    spread, chooser = seen.repeat_interleave(16, 0), recipe.policy(models)
    noise = steps.normal(uniform).view(64 * 16, 5, 2)
    action, path, logp = denoised(models["average"], spread, noise)
    harm = steps.output(models["harm_q_target"], spread, action).amax(0).view(64, 16)
    shift(models["harm_q_target"], -1.0 - harm.median())
    harm = harm - 1.0 - harm.median()
    best = [next(c for c in range(16) if row[c] <= max(float(row.min()), -0.9)) for row in harm]
    found, wanted = chooser.act({"observation": seen}, uniform)[0], action.view(64, 16, 2)[torch.arange(64), best]
    one, other = (chooser.act({"observation": rows}, None)[0] for rows in (seen, seen.flip(0)))
    yes = torch.ones(len(spread), 1, dtype=torch.bool)
    zero = torch.zeros(len(spread), 1, dtype=torch.float64)
    context = {"observation": spread.unsqueeze(1)}
    rows = Experience(context, action.unsqueeze(1), yes, zero, zero, yes, ~yes, extra={"path": path.unsqueeze(1)})
    scored = models["average"].score(rows, frozenset({Need.LOGP})).logp[:, 0]
    gaps = [found - wanted, one - other.flip(0), (scored - logp).unsqueeze(1)]
    return torch.stack([gap.abs().max() for gap in gaps]).max() + ((one[1:] == one[:-1]).all()).double()


def extra_cost(recipe: Recipe) -> Tensor:
    """Returns the mean cost of a decision in the second dataset minus that in the first, of ten episodes each."""
    source: Any = recipe.source
    first, second = (replace(log, episodes=10).columns(steered_hazards())["cost"][:, 0].mean() for log in source.logs)
    return second - first


def is_refused(recipe: Recipe) -> bool:
    """Returns whether data without costs are an error before training."""
    source: Any = recipe.source
    short = replace(source, logs=tuple(replace(log, episodes=1) for log in source.logs))
    try:
        short.init(Scene(pendulum()))
    except AssayError:
        return True
    return False


# ---------------------------------------------------------------------------------------------------- measured
def seen_near_discs() -> tuple[dict[str, Tensor], Tensor]:
    """Returns contexts of recorded decisions near discs, of episodes unused by any recipe, and whether each is safe."""
    task = steered_hazards()
    logs = [Log(100, noise=0.4, first=5_000, reckless=which) for which in (False, True)]
    seen = torch.cat([log.columns(task)["context.observation"][:, 0] for log in logs])
    seen = seen[seen[:, 4:].amin(1) < NEAR]
    state = torch.cat((seen[:, :2], 0.1 * seen[:, 2:4]), 1).double().numpy().T
    return {"observation": seen}, torch.from_numpy(avoidable(state))


def feasible_overlap(recipe: Recipe, seed: int) -> float:
    """Returns the intersection over union of {V_h <= 0} and the states from which test manoeuvres stay clear, after
    training the recipe's stages on its own data.
    """
    task, source = steered_hazards(), recipe.source
    engine, state = Engine(recipe, task.spec, seed, Placement()), source.init(Scene(task))
    for step in range(recipe.steps):
        for batch in source(Scene(task, draw=Draw(seed, (step,))), state):
            batch = engine.annotate(batch, recipe.needs)
            for stage in recipe.stages:
                engine.update(stage, batch)
            engine.follow(recipe.copies)
    context, safe = seen_near_discs()
    critic: Any = engine.models["harm"]
    with torch.no_grad():
        return overlap(critic(context) <= 0, safe)
