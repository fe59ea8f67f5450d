"""Claims of riql: its losses by hand, its limit, exact and measured claims, mutants. Axes: B sequences, T decisions."""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from assay.claims import About, Claims, Edit, Measured, cartpole, probes, reads_dataset, same_gradient, same_weights
from assay.claims import steps
from assay.method import Experience, iql
from assay.methods.riql import QuantileOfCritics, RegressionByGain, recipe
from assay.parts import Huber, Log

SPEC, TENTHS = probes.CHOICE_SPEC, Log(reward_scale=0.1)


def transitions() -> Experience:
    """Returns transitions with observations far from 0: some weights exceed 100, errors are on both sides of 1."""
    data = probes.transitions(SPEC, num=64)
    return data.with_columns(context={"observation": 6.0 * data.context["observation"]})


def losses_by_hand(seen: probes.Seen, place: float = 1.0, limit: float = 1.0) -> dict[str, Tensor]:
    """Returns the losses with the critic at a place of the sorted ones, and errors squared up to the limit."""
    step, models, out = steps.step_of(seen), seen.models, steps.output
    critics = out(models["q_target"], step.now, step.action).sort(0).values.detach()
    below, above = critics[int(place)], critics[int(place) + 1]
    gain = below + (place - int(place)) * (above - below) - out(models["value"], step.now)
    logp = out(models["actor"], step.now).log_softmax(-1)[torch.arange(len(step.reward)), step.action]
    cloned = -step.mean((3.0 * gain).exp().clamp(max=100.0).detach() * logp)
    size = (out(models["q"], step.now, step.action) - step.target(0.99, out(models["value"], step.after))).abs()
    huber = step.mean(torch.where(size >= limit, size - limit / 2, size.square() / (2 * limit)))
    return {"value": step.mean(steps.expectile(gain, 0.7)), "actor": cloned, "q": huber}


def small_rewards() -> Experience:
    """Returns transitions whose errors are below 1 throughout."""
    data = probes.transitions(SPEC, dtype=torch.float32)
    return data.with_columns(reward=0.1 * data.reward)


CLAIMS = Claims(
    claims=(
        same_gradient("its gradients are those of the formulas", recipe, losses_by_hand, transitions, SPEC),
        same_gradient("other quantiles lie between critics, and errors are squared up to 1 / sigma^2",
                      lambda: recipe(level=0.1, sigma=0.5), partial(losses_by_hand, place=0.4, limit=4.0), transitions,
                      SPEC),
        same_weights("with two critics, their minimum and small errors it is iql to the bit",
                     lambda: recipe(critics=2, level=0.0), iql, data=small_rewards, spec=SPEC),
        reads_dataset(lambda: recipe(log=Log(20)), cartpole, of="",
                      name="a step's batches are rows of the dataset, with rewards as they were recorded"),
        Measured("where three in ten rewards of the data are wrong it scores higher than iql",
                 "logged-tree:corruption=0.3", recipe(log=TENTHS), replace(iql(), source=recipe(log=TENTHS).source),
                 seeds=5, looks=3, steps=40, about=About.HEADLINE),
    ),
    mutants=(
        Edit("the nearest critic", QuantileOfCritics.__call__, "dim=0", 'dim=0, interpolation="lower"'),
        Edit("sigma is the limit", Huber.__call__, "1.0 / self.sigma**2", "self.sigma"),
        Edit("unbounded weights", RegressionByGain.__call__, "100.0", "1e9"),
        Edit("always five critics", recipe, "ActionValue(critics)", "ActionValue(5)"),
    ),
)
