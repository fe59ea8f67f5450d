"""dump: a bandit over data sources, rewarded by the size of the advantages that a source gives.

    P(d) = softmax(U_d / 0.1),   U_d = mean |A| of d's last 300 answers + sqrt(2 ln(N + 1) / (n_d + 1));   rest: grpo

Wang et al. 2025. If all answers are correct or all are wrong, |A| is 0 and nothing can be learned; it is largest if
half of them are correct. So the curriculum moves from mastered sources to those that have just become learnable.
"""

from dataclasses import replace
from math import sqrt

import numpy as np
import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.core.record import State
from assay.core.slots import ALONE
from assay.methods.dump.curriculum import SourceBandit
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults


def recipe(world: Defaults = LANGUAGE, num_sources: int = 6) -> Recipe:
    return replace(recipes.grpo(world), name="dump", curriculum=SourceBandit(num_sources))


def state_of(payoff: list[float], count: list[int]) -> State:
    return {"next": count, "recent": [[value] for value in payoff], "count": count}


def payoff_error() -> float:
    """Returns mean |A| of grpo's groups of 8 with k correct answers minus 2 sqrt(p (1 - p) 7/8), p = k/8."""
    errors = []
    for right in range(9):
        rewards = [1.0] * right + [0.0] * (8 - right)
        group = probes.credited(recipe(), probes.bandit_experience([0] * 8, rewards, torch.zeros(2)))
        size, p = group.column("advantage").abs().mean(), right / 8
        errors.append(abs(float(size) - 2.0 * sqrt(p * (1.0 - p) * 7 / 8)))
    return max(errors)


def distance_from_softmax() -> float:
    """Returns the distance from P = softmax(mean |A| / temperature); with equal counts the bonus cancels."""
    payoff = [0.0, 0.2, 0.9, 0.5]
    ours = SourceBandit(4).probabilities(state_of(payoff, [50] * 4))
    weight = np.exp(np.array(payoff) / 0.1)
    return float(np.abs(ours - weight / weight.sum()).max())


def share_of_neglected() -> float:
    """Returns the share of the less visited of two equally good sources."""
    return float(SourceBandit(2).probabilities(state_of([0.5, 0.5], [400, 40]))[1])


def distance_from_uniform_at_first() -> float:
    bandit = SourceBandit(5)
    return float(np.abs(bandit.probabilities(bandit.init(ALONE)) - 0.2).max())


METHOD = Method(
    paper="arXiv:2504.09710",
    recipe=recipe,
    worlds=EVERY,
    default_task="sorting-3-to-8",
    family="curriculum",
    base=recipes.grpo,
    departures=(
        "items of a source come in order, each once, instead of at random with replacement",
        "held-out evaluations do not enter the bandit, as they do in the authors' code",
        "counts are of answers, as in the authors' code; no KL to a reference",
        "a start's source is its ordinal modulo `num_sources`, as tasks.mixture numbers them; set it to the task's",
    ),
    claims=(
        Exact("a source pays 2 sqrt(p (1 - p) (G - 1) / G): most at p = 1/2", payoff_error, equals=0.0, tolerance=1e-3),
        Exact("at first all sources have the same share", distance_from_uniform_at_first, equals=0.0),
        Exact("at equal counts shares are softmax(mean |A| / temperature)", distance_from_softmax, equals=0.0),
        Exact("of two equal sources the neglected one is preferred", share_of_neglected, at_least=0.5),
        Measured("mean held-out score over the run is higher than with equal shares", "sorting-3-to-8", recipe(),
                 recipes.grpo(), metric=Average("evaluation"), seeds=5, minutes=5.0, steps=100, warmup=60),
    ),
)  # fmt: skip
