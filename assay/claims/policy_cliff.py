"""How far a policy moves when the reward does, by tables solved exactly and by training. Axes: S states, A actions."""

from functools import partial

import torch

from assay.claims import About, Claims, Computed, Edit, Exact, Expect, Measured, by_hand, probes, same_gradient
from assay.method import TABLE, Recipe, recipes
from assay.methods.policy_cliff import recipe
from assay.statistics import largest_shift, policy_shift
from assay.statistics.sensitivity import state_values


def smallest_move(discount: float) -> float:
    """Returns a small move over its bound, for two actions that lead to states of their own, each with one action
    worth having; the reward of one side rises, that of the other falls.
    """
    reward, change = [[1.0, 1.0], [1.0, -1e3], [1.0, -1e3]], [[1e-4, -1e-4], [1e-4, 1e-4], [-1e-4, -1e-4]]
    return policy_shift(reward, change, 1.0, [[1, 2], [1, 1], [2, 2]], discount) * (1 - discount) / 0.5e-4


def largest_move() -> float:
    """Returns the largest move over its bound in 8 random tables of four states and three actions."""
    draw, found = torch.Generator().manual_seed(0), []
    for _ in range(8):
        reward, change = (torch.randn(4, 3, generator=draw).double() for _ in range(2))
        distance = policy_shift(reward, 0.1 * change, 0.2, torch.randint(0, 4, (4, 3), generator=draw), 0.5)
        found.append(distance * 2 * 0.2 * (1 - 0.5) / float(0.1 * change.abs().max()))
    return max(found)


def apart(learner: Recipe, seed: int, steps: int = 200) -> float:
    """Returns the total variation of two policies trained on (1, 1, 0) with 0.02 added to one and taken from the other
    of the tied arms, and the reverse; the random numbers are the same.
    """
    start, policies = torch.zeros(1, 3).double(), []
    for eps in (0.02, -0.02):
        episodes = probes.bandit_episodes(torch.tensor([1.0 + eps, 1.0 - eps, 0.0]))
        table = probes.trained_table(learner, episodes, start, steps=steps, members=8, seed=seed)
        policies.append(table.softmax(1))
    return float((policies[0] - policies[1]).abs().sum() / 2)


ARMS, REFERENCE = probes.bandit_episodes(torch.tensor([1.0, 1.0, 0.0])), torch.tensor([[0.4, -0.3, 0.1]])


def distances(learner: Recipe) -> Computed:
    """Returns the side of `apart`."""
    return Computed(partial(apart, learner), small=partial(apart, learner, steps=10))


CLAIMS = Claims(
    claims=(
        same_gradient("its gradient is that of rloo with the KL in its reward", recipe,
                      lambda seen: by_hand.rloo_loss(by_hand.with_kl(seen, 0.1))),
        Exact("pi_ref exp(R / alpha) / Z, of which the soft policy is the uniform case, is a fixed point of the recipe",
              lambda: probes.at_posterior(recipe(), ARMS, REFERENCE, 0.1, 3).expected.norm(), at_most=1e-9,
              of="theory"),
        Exact("in a tie of two the smallest change moves half of the policy",
              lambda: policy_shift((1, 1), (0, 1e-6)), equals=0.5),
        Exact("the soft policy moves by sigmoid(2 eps / alpha) - 1/2 with eps and alpha 0.1",
              lambda: policy_shift((1, 1), (0.1, -0.1), 0.1), equals=0.3807971, tolerance=1e-7, of="theory"),
        Exact("with discount 0.9 the bound of a move is reached as eps vanishes",
              lambda: smallest_move(0.9), equals=1.0, tolerance=1e-6, of="theory"),
        Exact("no random table exceeds the bound of a move", largest_move, at_most=1.0, of="theory"),
        Exact("a change beyond half of the gap moves all of the policy",
              lambda: policy_shift((1, 0.9), (-0.051, 0.051)), equals=1.0, of="theory"),
        Exact("(1, 1, 0) + w (0, 1, 5) has another best action for w from a quarter on",
              lambda: policy_shift((1.0, 1.249, 1.245), (0.0, 0.002, 0.01)), equals=1.0, illustrates=True),
        Exact("an error of 0.06 in any one reward moves all of (1, 0.9, 0)", lambda: largest_shift((1, 0.9, 0), 0.06),
              equals=1.0, illustrates=True),
        Measured("policies trained on rewards 0.04 apart end nearer each other than without the KL", "",
                 distances(recipe(TABLE, 0.5)),
                 distances(recipes.rloo(TABLE)), expect=Expect.BELOW, seeds=10, minutes=1.0,
                 about=About.HEADLINE),
    ),
    mutants=(
        Edit("values of the hard policy", state_values, "if not alpha", "if True"),
        Edit("no factor one half", policy_shift, ".max() / 2", ".max()"),
    ),
)
