"""v-gps: a frozen policy proposes actions at decision time, and a critic learned from offline data chooses among them.

    a_1, ..., a_K ~ pi(.|s),   P(a_k) = softmax over k of (min_i Q_i(s, a_k) / beta);   beta = 0: the largest
    V <- expectile of min_i Q_i in the data,   Q <- r + discount * V(s');   the policy: maximum likelihood

Nakamoto et al. 2024. The critic is of the data and knows nothing of the policy: one critic steers several clones,
without a gradient in any of them. With K = 1 the policy acts; for large K its density is pi(a|s) exp(Q / beta).

Axes: B sequences, T decisions.
"""

from __future__ import annotations

from dataclasses import replace

from assay.method import CONTINUOUS, Method, Preset, Recipe, recipes
from assay.models import Diffusion, Perceptron, Policy
from assay.parts import BestOf, Denoising, Log, LogLikelihood, NextValue, Td


def recipe(preset: Preset = CONTINUOUS, log: Log | None = None, num: int = 10, temperature: float = 0.0) -> Recipe:
    """V-GPS (arXiv:2410.13816): IQL's critics at discount 0.98, a clone, and the best of the clone's candidates."""
    base = recipes.iql(preset, log)
    value, actor, q = base.stages
    stages = (
        value,
        replace(actor, objective=(LogLikelihood(),)),
        replace(q, critic=(Td(NextValue(0.98)),)),
    )
    return replace(base, name="v-gps", stages=stages, wrapper=BestOf(num, temperature=temperature))


def diffusion(preset: Preset = CONTINUOUS, log: Log | None = None, num: int = 10, temperature: float = 0.0) -> Recipe:
    """The same critics around a diffusion policy."""
    base = recipe(preset, log, num, temperature)
    value, actor, q = base.stages
    denoising = replace(actor, objective=(Denoising(),))
    return replace(base, actor=Policy(Perceptron((128, 128)), Diffusion()), stages=(value, denoising, q))


METHOD = Method(
    paper="arXiv:2410.13816",
    recipe=recipe,
    presets=(CONTINUOUS,),
    default_task="pendulum",
    family="offline",
    base=recipes.iql,
    variants={"diffusion": diffusion},
    departures=(
        "IQL's critics, which the paper has as a second choice; its Cal-QL critics need rewards of -1 a step and 0 at "
        "success, and returns of each row",
        "the largest value is taken (theirs draws by softmax(Q / beta), beta 1; `temperature` does)",
        "expectile 0.7 and targets at rate 0.005, IQL's (theirs at 0.002); discount 0.98 as in the authors' settings",
        "clones of one task's scripted, noisy data, 2000 updates; theirs are generalist policies that see images and "
        "read instructions, with critics of 500,000 updates",
        "a Gaussian clone may propose actions outside the bounds, which the task clips",
    ),
    pilots=(
        "pendulum, seed 1000, 2000 updates, best of 1, 2, 4, 10, 50: -666, -229, -168, -185, -269 (mode -390); "
        "diffusion -858, -422, -183, -174, -316 (mode -887): too many candidates find the critic's errors",
        "the same after 600 updates: -777, -786, -1169, -1518, -1688: a critic that is not trained steers wrongly",
    ),
)
