"""policy-cliff: rewards that differ a little have optimal policies that differ wholly; a KL term bounds the distance.

    TV(pi_1, pi_2) <= |R_1 - R_2| / (2 alpha (1 - gamma)),   pi = pi_ref exp(Q / alpha) / Z

2025 (arXiv:2507.20150). Where actions tie, the smallest change of the reward moves the best policy from one to the
other; within the gap between the best action and the next it moves nothing. The recipe is rloo with the KL to its start
in the reward, whose only optimum is the soft policy; `stability` solves tables for both and measures the move.
"""

import torch

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.policy_cliff import claims
from assay.methods.policy_cliff.stability import Decisions, bandit, moved, moved_by, over_bound
from assay.recipes.defaults import LANGUAGE, TABLE, Defaults
from assay.recipes.group import with_kl_in_reward


def recipe(world: Defaults = LANGUAGE, alpha: float = 0.1) -> Recipe:
    return with_kl_in_reward(recipes.rloo(world), "policy-cliff", alpha)


def fixed_point() -> torch.Tensor:
    """Returns the recipe's expected step at pi_ref exp(R / alpha) / Z, of which the soft policy is the uniform case."""
    episodes, reference = probes.bandit_episodes(torch.tensor([1.0, 1.0, 0.0])), torch.tensor([[0.4, -0.3, 0.1]])
    target = probes.posterior(episodes, reference, 0.1).table
    return probes.compare(recipe(), episodes, target, 3, reference_SA=reference).expected.norm()


METHOD = Method(
    paper="arXiv:2507.20150",
    recipe=recipe,
    default_task="bandit",
    family="robust",
    base=recipes.rloo,
    departures=(
        "the paper is theory and has no algorithm: rloo with the KL in its reward is our choice of estimator",
        "transitions of `stability` are certain; the paper's bound holds for random ones too",
        "measured in one design: three arms, two of them tied, rewards apart by 0.04",
    ),
    claims=(
        same_gradient("its gradient is that of rloo with the KL in its reward", recipe, claims.loss_by_hand),
        Exact("the soft policy is a fixed point of the recipe", fixed_point, at_most=1e-9),
        Exact("a tie of two: the smallest change moves half of the policy",
              lambda: moved_by((1, 1), (0, 1e-6), 0.0), equals=0.5),
        Exact("of three: two thirds", lambda: moved_by((1, 1, 1), (0, 0, 1e-6), 0.0), equals=2 / 3),
        Exact("a tie that is broken the other way: all of it",
              lambda: moved_by((1.0 + 1e-6, 1.0), (-1e-6, 1e-6), 0.0), equals=1.0),
        Exact("the soft policy moves by sigmoid(2 eps / alpha) - 1/2: 0.01 at 0.1",
              lambda: moved_by((1, 1), (0.01, -0.01), 0.1), equals=0.0498340, tolerance=1e-7),
        Exact("0.1 at 0.1", lambda: moved_by((1, 1), (0.1, -0.1), 0.1), equals=0.3807971, tolerance=1e-7),
        Exact("the bound is reached as eps vanishes", lambda: claims.ratio(1e-4, 1.0), equals=1.0, tolerance=1e-6),
        Exact("with discount 0.9 too", lambda: claims.ratio(1e-4, 1.0, 0.9), equals=1.0, tolerance=1e-6),
        Exact("no random table exceeds it", claims.largest_ratio, at_most=1.0),
        Exact("within half of the gap nothing moves", lambda: moved_by((1, 0.9), (-0.049, 0.049), 0.0),
              equals=0.0),
        Exact("the gap is the distance of the next action", lambda: bandit(1, 1, 0.9, 0).gap(), equals=0.1),
        Exact("a second reward wins from a quarter on", claims.second_reward, equals=1.0),
        Measured("policies trained on rewards 0.04 apart end nearer each other than without the KL", "",
                 lambda seed: claims.apart(recipe(TABLE, 0.5), seed),
                 lambda seed: claims.apart(recipes.rloo(TABLE), seed), expect=Expect.BELOW, seeds=10, minutes=1.0),
    ),
    mutants=(
        Edit("the first of tied actions", Decisions.policy, "found.amax(1, keepdim=True) - TIE",
             "found.amax(1, keepdim=True) + TIE"),
        Edit("a bound without the discount", over_bound, "(2.0 * alpha * (1.0 - problem.discount))", "(2.0 * alpha)"),
        Edit("a bound twice as large", over_bound, "2.0 * alpha", "alpha"),
        Edit("values of the hard policy", Decisions.values, " if alpha else found.amax(1)",
             " if False else found.amax(1)"),
        Edit("the distance of tied actions", Decisions.gap, "behind > TIE", "behind >= 0"),
        Edit("no factor one half", moved, ".max() / 2", ".max()"),
    ),
)  # fmt: skip
