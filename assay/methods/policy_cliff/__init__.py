"""policy-cliff: rewards that differ a little have optimal policies that differ wholly; a KL term bounds the distance.

    TV(pi_1, pi_2) <= |R_1 - R_2| / (2 alpha (1 - gamma)),   pi = pi_ref exp(Q / alpha) / Z

2025 (arXiv:2507.20150). Where actions tie, the smallest change of the reward moves the best policy from one to the
other; within the gap between the best action and the next it moves nothing. The recipe is rloo with the KL to its start
in the reward, whose only optimum is the soft policy; the claims solve tables for both and measure the move.
"""

import torch

from assay import recipes
from assay.claims import Edit, Exact, Expect, Measured, Method, by_hand, probes, same_gradient
from assay.core.recipe import Recipe
from assay.methods.policy_cliff.claims import apart, largest_move, moved, smallest_move, soft_policy
from assay.recipes.defaults import LANGUAGE, TABLE, Defaults
from assay.recipes.group import with_kl_in_reward


def recipe(world: Defaults = LANGUAGE, alpha: float = 0.1) -> Recipe:
    return with_kl_in_reward(recipes.rloo(world), "policy-cliff", alpha)


ARMS, REFERENCE = probes.bandit_episodes(torch.tensor([1.0, 1.0, 0.0])), torch.tensor([[0.4, -0.3, 0.1]])

METHOD = Method(
    paper="arXiv:2507.20150",
    recipe=recipe,
    default_task="bandit",
    family="robust",
    base=recipes.rloo,
    departures=(
        "the paper is theory and has no algorithm: rloo with the KL in its reward is our choice of estimator",
        "transitions of the tables are certain; the paper's bound holds for random ones too",
        "measured in one design: three arms, two of them tied, rewards apart by 0.04",
    ),
    claims=(
        same_gradient("its gradient is that of rloo with the KL in its reward", recipe,
                      lambda seen: by_hand.rloo_loss(by_hand.with_kl(seen, 0.1))),
        Exact("pi_ref exp(R / alpha) / Z, of which the soft policy is the uniform case, is a fixed point of the recipe",
              lambda: probes.at_posterior(recipe(), ARMS, REFERENCE, 0.1, 3).expected.norm(), at_most=1e-9),
        Exact("a tie of two: the smallest change moves half of it", lambda: moved((1, 1), (0, 1e-6)), equals=0.5),
        Exact("of three: two thirds", lambda: moved((1, 1, 1), (0, 0, 1e-6)), equals=2 / 3),
        Exact("a tie broken the other way: all of it", lambda: moved((1 + 1e-6, 1), (-1e-6, 1e-6)), equals=1.0),
        Exact("the soft policy moves by sigmoid(2 eps / alpha) - 1/2: eps and alpha 0.1",
              lambda: moved((1, 1), (0.1, -0.1), 0.1), equals=0.3807971, tolerance=1e-7),
        Exact("eps 0.01", lambda: moved((1, 1), (0.01, -0.01), 0.1), equals=0.0498340, tolerance=1e-7),
        Exact("the bound is reached as eps vanishes", lambda: smallest_move(0.0), equals=1.0, tolerance=1e-6),
        Exact("with discount 0.9 too", lambda: smallest_move(0.9), equals=1.0, tolerance=1e-6),
        Exact("no random table exceeds it", largest_move, at_most=1.0),
        Exact("within half of the gap nothing moves", lambda: moved((1, 0.9), (-0.049, 0.049)), equals=0.0),
        Exact("beyond it all does", lambda: moved((1, 0.9), (-0.051, 0.051)), equals=1.0),
        Exact("(1, 1, 0) + w (0, 1, 5) has one best action for w from 1e-6 to 0.249",
              lambda: moved((1.0, 1.000001, 0.000005), (0.0, 0.248999, 1.244995)), equals=0.0),
        Exact("and another from a quarter on", lambda: moved((1.0, 1.249, 1.245), (0.0, 0.002, 0.01)), equals=1.0),
        Measured("policies trained on rewards 0.04 apart end nearer each other than without the KL", "",
                 lambda seed: apart(recipe(TABLE, 0.5), seed),
                 lambda seed: apart(recipes.rloo(TABLE), seed), expect=Expect.BELOW, seeds=10, minutes=1.0),
    ),
    mutants=(
        Edit("values of the hard policy", soft_policy, "alpha * (found / alpha).logsumexp(1)", "found.amax(1)"),
        Edit("no factor one half", moved, ".max() / 2", ".max()"),
    ),
)  # fmt: skip
