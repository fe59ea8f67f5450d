"""The losses of fisor and its choice of an action by hand; how well a harm critic identifies safe states.

Axes: B transitions, C candidates, A actions, K = 5 denoising steps.
"""

from dataclasses import replace
from functools import partial
from math import exp
from typing import Any, cast

import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Final, Measured, built, follows_schedule, refuses
from assay.claims import pendulum, probes, steps
from assay.method import Experience, Recipe
from assay.methods.fisor import Feasible, cloned_diffusion, least_harm, recipe
from assay.parts import BestOf, Log, WorstToCome
from assay.tasks.control.steered import avoidable, steered_hazards

def overlap(mine: Tensor, other: Tensor) -> float:
    """Returns intersection over union; 1 if both are empty."""
    union = int((mine | other).sum())
    return int((mine & other).sum()) / union if union else 1.0


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
    """Returns eps(s, k, x)."""
    found: Tensor = actor.noise.net(torch.cat((seen, steps.times(k.float().unsqueeze(-1) / 5), point), -1))
    return found


@torch.no_grad()
def shift(model: Any, by: Tensor) -> None:
    """Moves what a network says everywhere, by its last bias: random networks say little that is near a threshold."""
    *_, bias = model.parameters()
    bias += by


def weights_by_hand(models: Any, step: steps.Step) -> Tensor:
    worst = steps.output(models["harm_q_target"], step.now, step.action).amax(0)
    gain = steps.output(models["q_target"], step.now, step.action).amin(0) - steps.output(models["value"], step.now)
    harm = steps.output(models["harm"], step.now)
    safe = (3 * gain).exp().clamp(max=100) * (worst <= 0)
    return torch.where(harm > 0, (5 * (harm - worst)).exp().clamp(max=150), safe).detach()


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, data, models, out = steps.step_of(seen), seen.experience, seen.models, steps.output
    shift(models["harm_q_target"], -out(models["harm_q_target"], step.now, step.action).amax(0).median())
    better = out(models["q_target"], step.now, step.action).amin(0) - out(models["value"], step.now)
    shift(models["value"], better.mean())
    uniform = seen.uniform(2, 3, tag=3)[:, 0]
    k = 5 - (5 * uniform[:, 0]).long()
    noise, total = steps.normal(uniform[:, 1:]), TOTALS[k - 1].unsqueeze(-1)
    point = total.sqrt() * (step.action - steps.CENTRE) / steps.HALF + (1 - total).sqrt() * noise
    misfit = (noise_of(models["actor"], step.now, k, point) - noise).square().sum(-1)
    excess = out(models["harm_q_target"], step.now, step.action).amax(0).detach() - out(models["harm"], step.now)
    assert data.cost is not None
    h = torch.where(data.cost[:, 0].sum(-1) > 0, 5.0, -1.0).double()
    later = 0.1 * h + 0.9 * torch.maximum(h, out(models["harm"], step.after))
    target = torch.where(data.terminal[:, 0], h, later).detach()
    return {
        "actor": step.mean(weights_by_hand(models, step) * misfit),
        **steps.iql(seen, 0.95, 0.9),
        "harm": step.mean(steps.expectile(excess, 0.02)),
        "harm q": step.mean((out(models["harm_q"], step.now, step.action) - target).square()) / 2,
    }


# ---------------------------------------------------------------------------------------------------- acting
def denoised(actor: Any, seen: Tensor, k: int, point: Tensor) -> Tensor:
    """Returns the mean of the point after step k."""
    alpha, guess = ALPHAS[k - 1], noise_of(actor, seen, torch.full(seen.shape[:-1], k), point)
    return ((point - (1 - alpha) / (1 - TOTALS[k - 1]).sqrt() * guess) / alpha**0.5).clamp(-1.0, 1.0)


def steps_in(actor: Any, seen: Tensor) -> steps.Chain:
    """Returns the steps with noise, all but the last, in these states."""
    return lambda k, x: torch.distributions.Normal(denoised(actor, seen, 5 - k, x), (1 - ALPHAS[4 - k]) ** 0.5)


@torch.no_grad()
def choice_gap(recipe: Recipe) -> Tensor:
    """Returns the largest gap of the chosen action to that of the safest of 16 candidates, the first of those with harm
    below -0.9, and of the score of a path to its density; without random numbers equal rows must act equally.
    """
    models: Any = built(recipe, probes.BOX_SPEC).models
    data, actor, chooser = probes.transitions(num=64), models["average"], recipe.policy(models)
    seen, draw = data.context["observation"][:, 0], torch.Generator().manual_seed(5)
    uniform = torch.rand(64, 16 * 10, generator=draw, dtype=torch.float64)
    spread, noise = seen.repeat_interleave(16, 0), steps.normal(uniform).view(64 * 16, 5, 2)
    last = steps.path_of(noise, steps_in(actor, spread))[:, -1]
    action = steps.CENTRE + steps.HALF * denoised(actor, spread, 1, last)
    harm = steps.output(models["harm_q_target"], spread, action).amax(0).view(64, 16)
    shift(models["harm_q_target"], -1.0 - harm.median())
    harm = harm - 1.0 - harm.median()
    best = [next(c for c in range(16) if row[c] <= max(float(row.min()), -0.9)) for row in harm]
    found, wanted = chooser.act({"observation": seen}, uniform)[0], action.view(64, 16, 2)[torch.arange(64), best]
    one, other = (chooser.act({"observation": rows}, None)[0] for rows in (seen, seen.flip(0)))
    path = torch.randn(64, 2, 5, 2, generator=draw, dtype=torch.float64)
    logp = steps.path_logp(path, steps_in(actor, data.context["observation"])) * data.mask
    gaps = [found - wanted, one - other.flip(0), actor.score(data.add({"path": path}), frozenset()).logp - logp]
    return torch.stack([gap.abs().max() for gap in gaps]).max() + ((one[1:] == one[:-1]).all()).double()


def extra_cost(recipe: Recipe) -> Tensor:
    """Returns the mean cost of a decision in the second dataset minus that in the first, of ten episodes each."""
    source: Any = recipe.source
    first, second = (replace(log, episodes=10).columns(steered_hazards())["cost"][:, 0].mean() for log in source.logs)
    return second - first


# ---------------------------------------------------------------------------------------------------- measured
def feasible_overlap(recipe: Recipe, seed: int) -> float:
    """Returns the intersection over union of {V_h <= 0} and the states from which test manoeuvres stay clear, after
    training the recipe's stages on its own data; of recorded states near discs, in episodes unused by any recipe.
    """
    task = steered_hazards()
    loop = probes.trained(recipe, task, seed, recipe.steps)
    logs = [Log(100, noise=0.4, first=5_000, reckless=which) for which in (False, True)]
    seen = torch.cat([log.columns(task)["context.observation"][:, 0] for log in logs])
    seen = seen[seen[:, 4:].amin(1) < 0.2]  # farther from a disc's edge every state is safe
    state = torch.cat((seen[:, :2], 0.1 * seen[:, 2:4]), 1).double().numpy().T
    critic: Any = loop.engine.models["harm"]
    with torch.no_grad():
        return overlap(critic({"observation": seen}) <= 0, torch.from_numpy(avoidable(state)))


def known_safe(seed: int, level: float = 0.98, steps: int = 150) -> float:
    """Returns the overlap with the states that can be kept safe, of harm critics whose V_h has this level."""
    *_, value, q = recipe().stages
    stages = replace(value, critic=(least_harm(level),)), q
    return feasible_overlap(replace(recipe(), stages=stages, steps=steps), seed)


def knowing(level: float) -> Computed:
    """Returns the side of `known_safe` with this level."""
    return Computed(partial(known_safe, level=level), small=partial(known_safe, level=level, steps=4))


def cautious_clone() -> Recipe:
    """Returns the clone of the episodes of the cautious expert alone: cloning of safe data."""
    clone, logs = cloned_diffusion(), cast(Any, recipe().source).logs
    return replace(clone, source=replace(cast(Any, clone.source), logs=logs[:1]))


CLAIMS = Claims(
    mutants=(
        Edit("the two weights change places", Feasible.__call__, "least_worst <= 0, safe, least",
             "least_worst <= 0, least, safe"),
        Edit("unsafe decisions keep their weight", Feasible.__call__, " * (worst <= 0)", ""),
        Edit("the trained critics weigh", Feasible.__call__, "(self.gain, self.harm)",
             '(("q", "value"), ("harm_q", "harm"))'),
        Edit("a sum of costs", WorstToCome.backed_up, "torch.maximum(harm, value_next)", "(harm + value_next)"),
        Edit("harm by a high expectile", least_harm, "Expectile(1.0 - level)", "Expectile(level)"),
        Edit("the actor itself acts", BestOf.around, "models[self.actor]", 'models["actor"]'),
        Edit("all harm counts", BestOf.cost, "cost if self.enough is None else", "cost if True else"),
    ),
    claims=(
        Exact("its gradients are those of the formulas", lambda: probes.formula_gap(
              recipe(), with_costs(), losses_by_hand, probes.BOX_SPEC), at_most=1e-5),
        Exact("the safest of 16 denoised candidates of the average actor acts; harm below -0.9 is equal",
              lambda: choice_gap(recipe()), at_most=1e-5),
        follows_schedule("targets follow at rate 0.02, the average at 0.01", recipe,
                         dict.fromkeys(("actor", "value", "q", "harm", "harm_q"), 1),
                         {"q_target": ("q", 0.02, 1), "harm_q_target": ("harm_q", 0.02, 1),
                          "average": ("actor", 0.01, 1)}, data=partial(with_costs, torch.float32),
                         of="target networks"),
        Exact("half of the data ignore costs", lambda: extra_cost(recipe()), at_least=0.01),
        refuses("data without costs are refused", recipe, pendulum, of=""),
        Measured("its episodes cost less than those of a clone of the same log",
                 "steered-hazards", recipe(), cloned_diffusion(),
                 metric=Final("evaluation_cost"), expect=Expect.BELOW, margin=1.0, seeds=5, minutes=3.0,
                 about=About.HEADLINE),
        Measured("its episodes cost less than those of a clone of the cautious half of the log",
                 "steered-hazards", recipe(), cautious_clone(), metric=Final("evaluation_cost"),
                 expect=Expect.BELOW, seeds=5, minutes=3.0, about=About.COMPONENT),
        Measured("it goes to the goal: its return is above 5, idling gives -3", "steered-hazards", recipe(), 5.0,
                 seeds=5, minutes=2.5, about=About.HEADLINE),
        Measured("it knows the safe states better than by the behaviour's mean harm", "",
                 knowing(0.98), knowing(0.5), seeds=5, minutes=1.5, about=About.MECHANISM),
    ),
)
