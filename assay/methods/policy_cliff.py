"""policy-cliff: rewards that differ a little have optimal policies that differ wholly; a KL term bounds the distance.

    TV(pi_1, pi_2) <= |R_1 - R_2| / (2 alpha (1 - gamma)),   pi = pi_ref exp(Q / alpha) / Z

2025 (arXiv:2507.20150). Where actions tie, the smallest change of the reward moves the best policy from one to the
other; within the gap between the best action and the next it moves nothing. The recipe is rloo with the KL to its start
in the reward, whose only optimum is the soft policy. `assay.statistics.policy_shift` computes the move on tables,
`largest_shift` the largest one under an error of a given size; claims hold both.
"""

from assay.method import LANGUAGE, Method, Preset, Recipe, recipes, with_kl_in_reward


def recipe(preset: Preset = LANGUAGE, alpha: float = 0.1) -> Recipe:
    """Returns rloo with the KL in its reward."""
    return with_kl_in_reward(recipes.rloo(preset), "policy-cliff", alpha)


METHOD = Method(
    paper="arXiv:2507.20150",
    recipe=recipe,
    default_task="bandit",
    family="robust",
    base=recipes.rloo,
    departures=(
        "the paper is theory and has no algorithm: rloo with the KL in its reward is our choice of estimator",
        "transitions of the tables are certain; the paper's bound holds for random ones too",
    ),
    pilots=(
        "measured in one design: three arms, two of them tied, rewards apart by 0.04",
    ),
)
