"""fisor: learns from offline data which states can be kept safe; clones by weight; takes the safest candidate.

    harm:   Q_h <- (1 - g) h + g max(h, V_h(s')),   V_h <- low expectile of Q_h in the data;   feasible: V_h <= 0
    reward: Q <- r + g V(s'),                       V <- high expectile of Q
    actor:  loss = w |eps(s, k, a_k) - noise|^2,   w = [Q_h <= 0] exp(b (Q - V)) if V_h <= 0, else exp(c (V_h - Q_h))

Zheng et al. 2024. A worst case is learned instead of a sum, so cost is not traded against reward and no multiplier is
needed; weighted denoising generates behaviour(a|s) * w(s, a). The three losses are independent of each other.

Axes: B sequences, T columns, N critics or rows, C candidates, K denoising steps, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from assay.method import CONTINUOUS, Copy, Experience, Method, Metric, Preset, Recipe, Stage, View, model_name, recipes
from assay.models import ActionValue, Critic, Diffusion, Perceptron, Policy
from assay.parts import CLIPPED_WEIGHTS, LOST_WEIGHTS, NEGLIGIBLE, Alike, BestOf, Denoising, Expectile, Log, Logged
from assay.parts import NextValue, OfAction, OfState, RecordedAction, ReturnRange, Td, Weight, WithCosts, WorstToCome
from assay.parts import exponential_weight


@dataclass(frozen=True)
class Feasible(Weight):
    """Weights by reward among safe decisions, and by least harm where no decision is safe.

        V_h(s) <= 0:  [Q_h(s, a) <= 0] * min(exp(beta * (Q(s, a) - V(s))), limit),  beta = inverse_temperature
        else:         min(exp(caution * (V_h(s) - Q_h(s, a))), harm_limit)

    FISOR (arXiv:2401.10700). Q = min_i, Q_h = max_i; `gain` and `harm` name the critics (Q, V) and (Q_h, V_h).
    Degenerate: a safe state without a safe recorded decision has weight 0. Half of all weights at a limit, or nine
    tenths of them none, raise an alarm.
    """

    inverse_temperature: float = 3.0
    caution: float = 5.0
    limit: float = 100.0
    harm_limit: float = 150.0
    gain: tuple[str, str] = model_name(("q_target", "value"))
    harm: tuple[str, str] = model_name(("harm_q_target", "harm"))
    watches: ClassVar[tuple[Metric, ...]] = (CLIPPED_WEIGHTS, LOST_WEIGHTS)

    def __call__(self, batch: Experience, view: View) -> Tensor:
        context, action = batch.context, batch.action
        (q, value), (harm_q, harm) = ([view.model(name) for name in pair] for pair in (self.gain, self.harm))
        worst, least_worst = harm_q(context, action).amax(0), harm(context)
        gain = q(context, action).amin(0) - value(context)
        safe = exponential_weight(gain, self.inverse_temperature, self.limit) * (worst <= 0)
        least = exponential_weight(least_worst - worst, self.caution, self.harm_limit)
        return torch.where(least_worst <= 0, safe, least)

    def shares(self, weight: Tensor) -> dict[str, Tensor]:
        return {"clipped_weights": weight >= min(self.limit, self.harm_limit), "lost_weights": weight < NEGLIGIBLE}


LOGS = (Log(150, noise=0.4), Log(150, noise=0.4, first=1_000, reckless=True))
"""Half cautious, half cost-ignoring expert episodes, both with action noise."""
LEAST_WIDTH = 128
"""Units of each layer, at least."""


def least_harm(level: float = 0.98) -> Td:
    """V_h as a low expectile of the recorded actions' harm: level 1/2 is the mean, level -> 1 the minimum."""
    return Td(RecordedAction("harm_q_target", largest=True), Expectile(1.0 - level), OfState("harm"))


def recipe(preset: Preset = CONTINUOUS, num: int = 16) -> Recipe:
    """FISOR (arXiv:2401.10700): three independent losses, no multiplier; takes the safest of `num` candidates.

    Rewards are scaled by the range of returns; the horizon of harm is half of that of rewards.
    """
    settings, discount = preset.offline, preset.gae.discount
    widths = settings.body.hidden if isinstance(settings.body, Perceptron) else (LEAST_WIDTH, LEAST_WIDTH)
    body, step = Perceptron(tuple(max(LEAST_WIDTH, width) for width in widths)), settings.optimizer
    value, q = Critic(body), Critic(body, ActionValue())
    harm_q = Td(WorstToCome(1.0 - 2.0 * (1.0 - discount), harm=5.0), of=OfAction("harm_q"))
    return Recipe(
        name="fisor",
        actor=Policy(body, Diffusion()),
        critics={"value": value, "q": q, "harm": value, "harm_q": q},
        copies={
            "q_target": Copy(of="q", rate=0.02),
            "harm_q_target": Copy(of="harm_q", rate=0.02),
            "average": Copy(of="actor", rate=0.01),
        },
        source=Logged(LOGS, settings.batch, settings.updates, WithCosts(), ReturnRange(settings.decisions)),
        stages=(
            Stage("actor", trains=("actor",), objective=(Denoising(Feasible()),), optimizer=step),
            Stage("value", ("value",), critic=(Td(RecordedAction(), Expectile(0.9), OfState()),), optimizer=step),
            Stage("q", trains=("q",), critic=(Td(NextValue(discount)),), optimizer=step),
            Stage("harm", trains=("harm",), critic=(least_harm(),), optimizer=step),
            Stage("harm q", trains=("harm_q",), critic=(harm_q,), optimizer=step),
        ),
        wrapper=BestOf(num, "average", "harm_q_target", lowest=True, enough=-0.9),
        steps=settings.steps,
    )


def cloned_diffusion(preset: Preset = CONTINUOUS) -> Recipe:
    """Returns unweighted cloning of the same data by the same actor, one candidate."""
    base = recipe(preset)
    actor = replace(base.stages[0], objective=(Denoising(Alike()),))
    copies = {"average": base.copies["average"]}
    return replace(base, name="cloned", critics={}, copies=copies, stages=(actor,), wrapper=None)


METHOD = Method(
    paper="arXiv:2401.10700",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="steered-hazards",
    family="safe",
    base=recipes.iql,
    variants={"diffusion-bc": cloned_diffusion},
    departures=(
        "a truncated episode bootstraps; the authors treat time limits as ends, which makes doomed states look safe",
        "expectile 0.98 for harm, as the paper says (near 1); the authors' code has 0.9, too far from the minimum here",
        "harm 5 and discount 0.9: violations are seen 17 decisions ahead (0.98 and 89 in mujoco and d4rl); the "
        "authors' 25 and 0.99 see 324",
        "rewards are scaled by the longest episode over the range of returns (theirs as recorded), and the discount of "
        "rewards is the preset's: 0.95, or 0.99",
        "plain perceptrons; a native point, scripted data, not DSRL",
        "candidates of harm below -0.9 (-1 is no harm) count as equal: the authors' minimum picks the critic's noise",
        "means of denoising steps are clipped, not the points; without random numbers candidates hash the observation",
    ),
)
