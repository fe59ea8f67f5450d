"""Claims of v-gps: the losses of critic and clone and the choice by hand, its limits. Axes: B rows, C candidates."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.claims import About, Claims, Computed, Edit, Exact, Measured, built, follows_schedule, pendulum, probes
from assay.claims import reads_dataset, same_gradient, steps
from assay.engine import evaluation
from assay.method import Context, Recipe
from assay.methods.v_gps import diffusion, recipe as v_gps
from assay.parts import BestOf, Log, ReturnRange
from assay.parts.wrappers.choosing import Choosing, drawn


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns IQL's losses of the critics at discount 0.98, and least squares of a Gaussian with one deviation."""
    step, actor = steps.step_of(seen), seen.models["actor"]
    error = (steps.in_half_ranges(step.action) - steps.output(actor, step.now)) / actor.log_std.exp()
    return {**steps.iql(seen, 0.98, 0.7), "actor": step.mean((error.square() / 2 + actor.log_std).sum(-1))}


def proposals(recipe: Recipe) -> tuple[Any, Context, Tensor, Tensor, Tensor]:
    """Returns the chooser, 64 contexts, uniform numbers, the actor's candidates [B, C, A] and their values [B, C]."""
    models: Any = built(recipe, probes.BOX_SPEC).models
    seen, chooser, num = probes.transitions(num=64).context["observation"][:, 0], recipe.policy(models), 10
    draw = torch.Generator().manual_seed(5)
    uniform = torch.rand(64, chooser.num_draws, generator=draw, dtype=torch.float64)
    noise = steps.normal(uniform[:, : 2 * num]).view(64, num, 2)
    mean, deviation = steps.output(models["actor"], seen), models["actor"].log_std.exp()
    action = steps.CENTRE + steps.HALF * (mean.unsqueeze(1) + deviation * noise)
    value = steps.output(models["q_target"], seen.repeat_interleave(num, 0), action.flatten(0, 1)).amin(0)
    return chooser, {"observation": seen}, uniform, action.detach(), value.view(64, num).detach()


def choice_gap(temperature: float) -> float:
    """Returns the gap of decisions to the best of ten, or to the first whose sum of softmax(Q / beta) is above a
    uniform number; infinite unless both the first candidate and others are taken.
    """
    chooser, context, uniform, action, value = proposals(v_gps(temperature=temperature))
    places = value.argmax(1)
    if temperature:
        weight = (value / temperature).exp()
        below = weight.cumsum(1) / weight.sum(1, keepdim=True) < uniform[:, -1:]
        places = below.sum(1)
    gap = (chooser.act(context, uniform)[0] - action[torch.arange(64), places]).abs().max()
    return probes.worst(float(gap.detach())) if len(places.unique()) > 1 else float("inf")


def policy_gap() -> float:
    """Returns how many decisions of one candidate are not the clone's, with a temperature and without."""
    wrong = 0
    for temperature in (0.0, 0.3):
        recipe = v_gps(num=1, temperature=temperature)
        models: Any = built(recipe, probes.BOX_SPEC).models
        seen = {"observation": probes.transitions(num=64).context["observation"][:, 0]}
        uniform = torch.rand(64, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        chooser = recipe.policy(models)
        ours, own = chooser.act(seen, uniform[:, : chooser.num_draws])[0], models["actor"].act(seen, uniform[:, :2])[0]
        wrong += int((ours != own).sum())
    return float(wrong)


def one_critic() -> float:
    """Returns how far the critics of both clones are apart after five updates on the same batches."""
    data = probes.transitions(dtype=torch.float32)
    ours, other = (probes.history(one, data, probes.BOX_SPEC, 5)[-1] for one in (v_gps(), diffusion()))
    return max(probes.distance(ours[name], other[name]) for name in ("q", "q_target", "value"))


@torch.no_grad()
def gain(seed: int, make: Callable[[], Recipe] = v_gps, steps: int = 200) -> float:
    """Returns the score of the best of ten minus the higher of two of the same clone: of its proposals, and of its
    most probable action.
    """
    task = pendulum()
    with torch.enable_grad():
        models = probes.trained(make(), task, seed, steps).engine.models
    ten, one = (BestOf(num).around(models) for num in (10, 1))
    best, drawn_one, mode = (float(evaluation.scores(who, task).mean()) for who in (ten, one, models["actor"]))
    return best - max(drawn_one, mode)


@torch.no_grad()
def decided(seed: int, make: Callable[[], Recipe]) -> float:
    """Returns the sum of the decisions in 16 states after three steps."""
    with torch.enable_grad():
        models = probes.trained(make(), pendulum(), seed, 3).engine.models
    seen = torch.randn(16, 3, generator=torch.Generator().manual_seed(1))
    return float(BestOf(10).around(models).act({"observation": seen}, None)[0].sum())


def gained(make: Callable[[], Recipe]) -> Computed:
    """Returns the side of `gain` with this clone."""
    return Computed(partial(gain, make=make), small=partial(decided, make=make))


CLAIMS = Claims(
    mutants=(
        Edit("the largest of the critics' values", BestOf.cost, "(sign * value_N).amax(0)", "(sign * value_N).amin(0)"),
        Edit("the worst candidate", BestOf.cost, "1.0 if self.lowest else -1.0", "1.0"),
        Edit("the trained critics choose", BestOf.around, "models[self.critic]", 'models["q"]'),
        Edit("softmax of Q times beta", Choosing.act, "-cost / self.part.temperature",
             "-cost * self.part.temperature"),
        Edit("softmax towards low values", Choosing.act, "(-cost / self", "(cost / self"),
        Edit("the next candidate", drawn, "< uniform_N.unsqueeze(1)", "< 1.5 * uniform_N.unsqueeze(1)"),
    ),
    claims=(
        same_gradient("its gradients are those of the formulas", v_gps, losses_by_hand,
                      partial(probes.transitions, num=64), probes.BOX_SPEC),
        Exact("the best of ten proposals by the lower target critic acts", partial(choice_gap, 0.0), at_most=1e-9),
        Exact("with a temperature one of them is drawn by the softmax of values over it", partial(choice_gap, 0.02),
              at_most=1e-9),
        Exact("with one candidate it is the clone to the bit", policy_gap, equals=0.0, tolerance=0.0,
              illustrates=True),
        Exact("the critics know nothing of the policy: a Gaussian and a diffusion clone have the same to the bit",
              one_critic, equals=0.0, tolerance=0.0, illustrates=True),
        follows_schedule("target critics follow at rate 0.005", v_gps, dict.fromkeys(("actor", "value", "q"), 1),
                         of="target networks"),
        reads_dataset(lambda: v_gps(log=Log(3)), scale=ReturnRange(),
                      name="a step's batches are rows of the dataset, with rewards in units of the range of returns"),
        Measured("the best of ten of a Gaussian clone scores 100 above the clone, by its proposals and its mode", "",
                 gained(v_gps), 0.0, margin=100.0, seeds=5, minutes=4.0, about=About.HEADLINE),
        Measured("the best of ten of a diffusion clone scores 100 above the clone, by its proposals and its mode", "",
                 gained(diffusion), 0.0, margin=100.0, seeds=5, minutes=6.0, about=About.HEADLINE),
    ),
)
