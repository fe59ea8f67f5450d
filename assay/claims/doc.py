"""Claims of doc: its losses by hand, which latent acts, limits, a gamble, mutants. Axes: B windows, T, K latents."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from assay.claims import About, Claims, Edit, Exact, Measured, cartpole, probes, same_gradient, trajectories
from assay.method import Recipe, recipes
from assay.methods.doc import Dichotomy, Energies, LatentPolicy, Summary, Telling, recipe, window_start
from assay.models import Categorical, Policy
from assay.parts import Log

LOG, DATA = Log(3, noise=0.5), partial(trajectories.windows, probes.CHOICE_SPEC)


def small(num: int = 3, beta: float = 0.7) -> Recipe:
    """Returns the recipe with small stacks and a known unit of returns."""
    whole = recipe(log=LOG, length=5, num=num, beta=beta).set("future.body.scale", 2.0)
    return whole.set("actor.body.stack.width", 8).set("future.body.stack.width", 8)


def outputs(body: Any, context: trajectories.Weights, scale: float) -> Tensor:
    """Returns a transformer's outputs by hand, [B, T, O]."""
    done = trajectories.vectors_of(context["previous_action"], probes.CHOICE_SPEC)
    return trajectories.outputs(trajectories.weights_of(body), body.settings.stack, context, done, scale)


def places_of(data: Any) -> list[tuple[int, int]]:
    """Returns row and column of each decision."""
    return [(row, t) for row, end in enumerate(data.mask.sum(1).tolist()) for t in range(end)]


def told_by_hand(seen: probes.Seen, chance: Tensor) -> Tensor:
    """Returns the mean of sum over z of q(z) i(z), energy by energy."""
    data, energy, here, there = seen.experience, seen.models["energy"], {}, {}
    for row, t in places_of(data):
        now, after = data.context["observation"][row, t], data.context["observation"][row, t + 1]
        done = functional.one_hot(data.action[row, t], probes.CHOICE_SPEC.action.n).double()  # type: ignore[union-attr]
        here[row, t] = energy.here(torch.cat((now, done))).view(chance.shape[1], -1)
        there[row, t] = energy.there(torch.cat((data.reward[row, t : t + 1], after)))
    found = []
    for place, features in here.items():
        each = torch.stack([(features * other).sum(1) for other in there.values()])
        found.append(chance[place[0]] @ ((features * there[place]).sum(1) - each.exp().mean(0).log()))
    return torch.stack(found).mean()


def losses_by_hand(seen: probes.Seen) -> dict[str, Tensor]:
    """Returns the losses, window by window and decision by decision."""
    data, models, context = seen.experience, seen.models, seen.experience.context
    future = outputs(models["future"].body, context, 2.0).softmax(2)
    chance = torch.stack([future[row, end] for row, end in enumerate(data.mask.sum(1).tolist())])
    ways = outputs(models["actor"].body, context, math.inf).unflatten(2, (3, -1)).log_softmax(3)
    likely = torch.stack([chance[row] @ ways[row, t, :, data.action[row, t]] for row, t in places_of(data)])
    prior, value = models["actor"].outlook({"observation": context["observation"][:, 0]}).unbind(1)
    error = value - context["return_to_go"][:, :1] / 2.0
    expected = (chance.detach() * (error.square() / 2 - prior.log_softmax(1))).sum(1).mean()
    cloned = -likely.mean() + 0.7 * told_by_hand(seen, chance) + expected
    return {"likelihood": cloned, "energy": -told_by_hand(seen, chance.detach())}


def choice_gap() -> float:
    """Returns on how many of 200 states the latent is another than the best of those that are likely."""
    engine: Any = probes.formulas.built(small(), probes.CHOICE_SPEC)
    actor, wrong = engine.models["actor"], 0
    states = 2.0 * torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).double()
    actor.least, cases = 0.3, set()
    for state in states:
        prior, value = actor.outlook({"observation": state})
        likely = [z for z in range(3) if prior.softmax(0)[z] >= 0.3]
        best = max(likely, key=lambda z: float(value[z].detach()))
        cases.add((len(likely), best == int(value.argmax())))
        wrong += best != int(actor.chosen({"observation": state[None]})[1])
    return float(wrong + (len(cases) < 3))


def distance_from_cloning() -> float:
    """Returns how far five updates with one latent and beta 0 end from those of the likelihood of a blind stack."""
    ours = small(num=1, beta=0.0)
    theirs = replace(recipes.decision_transformer(log=LOG, length=5), actor=Policy(ours.actor.body, Categorical()))  # type: ignore[attr-defined]
    free = [one.set("likelihood.optimizer.clip_norm", 0.0) for one in (ours, theirs)]
    data = DATA().map(lambda one: one.float() if one.dtype == torch.float64 else one)
    mine, base = (probes.history(each, data, probes.CHOICE_SPEC, 5)[-1]["actor"] for each in free)
    return float((mine[: len(base)] - base).abs().max())


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the losses by hand", small, losses_by_hand, DATA, probes.CHOICE_SPEC,
                      at_most=1e-6),
        Exact("it acts by the latent with the best return of those that are likely", choice_gap, equals=0.0),
        Exact("acting it chooses the latent, and decides, as training scored the logged episode",
              lambda: trajectories.acting_gap(small(), cartpole(), function=trajectories.logits_of), at_most=1e-5),
        Exact("with one latent and beta 0 it clones to the bit", distance_from_cloning, equals=0.0, tolerance=0.0),
        # What would refute it: that cloning given the return does as well where it copies luck by half.
        Measured("where wins are mostly luck it scores higher than cloning given the return", "gamble",
                 recipe(length=2), recipes.decision_transformer(length=2), seeds=5, minutes=6, steps=20,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("latents gain from telling", Dichotomy.__call__, "+ self.beta * sums", "- self.beta * sums"),
        Edit("the energy is lowered", Telling.__call__, "Loss(-told", "Loss(told"),
        Edit("the energy does not see the action", Energies.sides, "torch.cat((state, done), -1)",
             "torch.cat((state, 0 * done), -1)"),
        Edit("the marginal holds padding", Energies.information, ".masked_fill(~now.mask.flatten(), NEVER)", ""),
        Edit("the worst latent", LatentPolicy.chosen, "value.masked_fill(~likely, -torch.inf).max(-1)",
             "value.masked_fill(~likely, torch.inf).min(-1)"),
        Edit("any latent", LatentPolicy.chosen, "value.masked_fill(~likely, -torch.inf)", "value"),
        Edit("the latent of the present state", window_start, '"past" not in context', "True"),
        Edit("the window without its end", Summary.of_window, "clamp(max=batch.num_columns - 1)", "sub(1)"),
    ),
)
