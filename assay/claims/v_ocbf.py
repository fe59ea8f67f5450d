"""The losses of v-ocbf and its filter by hand; the viability kernel of tables; collisions with and without the filter.

Axes: B transitions, F numbers of an observation, A actions, S states.
"""

from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Exact, Expect, Final, Measured, built, pendulum, probes, refuses, steps
from assay.claims.fisor import with_costs
from assay.method import Recipe
from assay.methods.v_ocbf import AffineMoves, Filtered, PredictChange, recipe as v_ocbf


def fields(model: Any, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Returns f [..., F] and G [..., F, A] of observations of F numbers and two actions."""
    out, size = steps.output(model, seen), seen.shape[-1]
    return out[..., :size], out[..., size:].reshape(*seen.shape, 2)


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    step, data, models, out = steps.step_of(seen), seen.experience, seen.models, steps.output
    decided = steps.bounded(models["actor"], step.now)
    excess = out(models["harm_q"], step.now, step.action).amax(0).detach() - out(models["harm"], step.now)
    assert data.cost is not None
    h = torch.where(data.cost[:, 0].sum(-1) > 0, 5.0, -1.0).double()
    later = 0.1 * h + 0.9 * torch.maximum(h, out(models["harm"], step.after))
    target = torch.where(data.terminal[:, 0], h, later).detach()
    drift, push = fields(models["dynamics"], step.now)
    guess = drift + torch.einsum("bfa,ba->bf", push, (step.action - steps.CENTRE) / steps.HALF)
    return {
        "actor": step.mean(((step.action - decided) / steps.HALF).square().sum(-1)) / 2,
        "harm": step.mean(steps.expectile(excess, 0.1)),
        "harm q": step.mean((out(models["harm_q"], step.now, step.action) - target).square()) / 2,
        "dynamics": step.mean((guess - (step.after - step.now)).square().sum(-1)) / 2,
    }


def filtered(recipe: Recipe, strength: float | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the actor's decisions, those of the wrapper, and those of the formula, in random states."""
    models: Any = built(recipe, probes.BOX_SPEC).models
    part = recipe.wrapper if strength is None else replace(cast(Any, recipe.wrapper), strength=strength)
    seen = probes.transitions(num=64).context["observation"][:, 0]
    uniform = torch.rand(64, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    with torch.no_grad():
        plain = models["actor"].act({"observation": seen}, uniform)[0]
    drift, push = fields(models["dynamics"], seen)
    wish = (plain - steps.CENTRE) / steps.HALF
    ahead = (seen + drift + torch.einsum("bfa,ba->bf", push, wish)).detach().requires_grad_()
    value = -steps.output(models["harm"], ahead)
    lever = torch.einsum("bf,bfa->ba", torch.autograd.grad(value.sum(), ahead)[0], push)
    short = (-0.5 * steps.output(models["harm"], seen) - value).clamp(min=0)
    moved = (wish + (short / (lever.square().sum(-1) + 1e-6)).unsqueeze(-1) * lever).clamp(-1, 1)
    formula = torch.where((short > 0).unsqueeze(-1), steps.CENTRE + steps.HALF * moved, plain)
    return plain, cast(Any, part).around(models).act({"observation": seen}, uniform)[0], formula.detach()


def filter_gap() -> float:
    """Returns the gap to the formula; infinite unless some decisions are moved and some are not."""
    plain, mine, formula = filtered(v_ocbf())
    share = float((plain != mine).any(1).double().mean())
    return probes.worst(float((mine - formula).abs().max())) if 0.1 < share < 0.9 else float("inf")


def unfiltered_gap() -> float:
    plain, mine, _ = filtered(v_ocbf(), strength=0.0)
    return float((plain != mine).sum())


# ---------------------------------------------------------------------------------------------------- tables
def unlike_kernel(level: float, num: int = 40) -> float:
    """Returns how many states of random tables (8 states, 2 actions) the sign of B tells otherwise than their
    viability kernel, where V_h is the expectile of the backed-up harm of both actions.
    """
    recipe, draw, wrong = v_ocbf(level=level), np.random.default_rng(0), 0
    (fit,), (back,) = recipe.stages[1].critic, recipe.stages[2].critic
    weight = cast(Any, fit).fit.level
    for _ in range(num):
        after, bad = torch.from_numpy(draw.integers(0, 8, (8, 2))), torch.from_numpy(draw.random(8) < 0.4)
        safe = torch.ones(8, dtype=torch.bool)
        for _ in range(8):
            safe = (safe & ~bad)[after].any(1)
        now = replace(probes.transitions(num=8), cost=bad[after].double().unsqueeze(-1), reward=torch.zeros(8, 2),
                      terminal=torch.zeros(8, 2, dtype=torch.bool))
        harm = torch.zeros(8, dtype=torch.float64)
        for _ in range(200):
            low, high = cast(Any, back).target.backed_up(now, harm[after]).double().sort(1).values.unbind(1)
            harm = weight * high + (1 - weight) * low  # the expectile of two numbers
        wrong += int(((harm <= 0) != safe).sum())
    return float(wrong)


def clone(cautious: bool = False) -> Recipe:
    """Returns the clone by itself, of all data or of the cautious half."""
    ours = replace(v_ocbf(), name="clone", wrapper=None, critics={}, stages=v_ocbf().stages[:1])
    source: Any = ours.source
    return replace(ours, source=replace(source, logs=source.logs[:1])) if cautious else ours


CLAIMS = Claims(
    mutants=(
        Edit("the barrier of the present state must not fall at all", Filtered.act, "(1.0 - self.part.rate)", "1.0"),
        Edit("towards harm", Filtered.barrier, "-self.harm", "self.harm"),
        Edit("every decision is moved onto the border", Filtered.act, ".clamp(min=0.0) / ", " / "),
        Edit("a step of unit length in place of the projection", Filtered.act, "lever.square().sum(-1)",
             "lever.square().sum(-1).sqrt()"),
        Edit("the model's drift is left out", Filtered.act, "seen + drift +", "seen +"),
        Edit("actions in the task's units", AffineMoves.forward, "self.units(action)", "action"),
        Edit("the model predicts the next observation", PredictChange.__call__,
             " - features(batch.now.context)", ""),
    ),
    claims=(
        Exact("its gradients are those of the formulas", lambda: probes.formula_gap(
              v_ocbf(), with_costs(), losses_by_hand, probes.BOX_SPEC), at_most=1e-5),
        Exact("the filter is the projection onto the half-space in which B falls to no less than half", filter_gap,
              at_most=1e-5),
        Exact("at strength 0 it is the clone to the bit", unfiltered_gap, equals=0.0),
        Exact("on tables the sign of B at level 1 is the viability kernel", partial(unlike_kernel, 1.0 - 1e-9),
              equals=0.0),
        Exact("the mean over actions is not", partial(unlike_kernel, 0.5), at_least=20.0, illustrates=True),
        refuses("data without costs are refused", v_ocbf, pendulum, of=""),
        Measured("its episodes cost less than those of its clone by more than 0.5", "steered-hazards", v_ocbf(),
                 clone(), metric=Final("evaluation_cost"), expect=Expect.BELOW, margin=0.5, seeds=5, minutes=4.0,
                 about=About.HEADLINE),
        Measured("its return is that of its clone within 10 %, 1.2", "steered-hazards", v_ocbf(), clone(),
                 expect=Expect.WITHIN, margin=1.2, seeds=5, minutes=4.0, about=About.HEADLINE),
        Measured("its episodes cost less than those of a clone of the cautious half of the data", "steered-hazards",
                 v_ocbf(), clone(cautious=True), metric=Final("evaluation_cost"), expect=Expect.BELOW, seeds=5,
                 minutes=4.0, about=About.COMPONENT),
    ),
)
