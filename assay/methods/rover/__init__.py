"""rover: fits the log-ratio to the values of the uniform policy, without policy improvement.

    Q(s, a) = temperature * log(pi / pi_old)(a|s)
    loss = mean_t (Q(s_t, a_t) - A - mean over all tokens a of Q(s_(t+1), a))^2 / 2,   no gradient in the mean

He et al. 2025. In a deterministic tree with outcomes 0 or 1, acting greedily on the uniform policy's values is
optimal (shown below): evaluating it is enough, and sampling from their softmax keeps all paths to a correct answer.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Average, Exact, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.rover.objectives import UniformValue
from assay.parts.regularizers.divergence import EntropyBonus
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.defaults import CONTROL, LANGUAGE, TABLE, Defaults

EPISODES = probes.token_episodes(lambda tokens: float(tokens[0] == 1), num_tokens=2, horizon=2)
LOGITS_SA = torch.linspace(-1.0, 1.0, 6).view(3, 2)


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    base = recipes.grpo(world)
    stages = (replace(base.stages[0], objective=(UniformValue(),)),)
    return replace(base, name="rover", stages=stages, source=FreshSequences(minibatches=2))


def watched(one: Recipe) -> Recipe:
    """Returns the recipe with its entropy among the metrics."""
    return replace(one, stages=(replace(one.stages[0], regularizers=(EntropyBonus(0.0),)),))


def greedy_outcome(reward_L: torch.Tensor, branches: int) -> float:
    """Returns the greedy outcome on the uniform policy's values in a full tree with these leaves; child a of s is s b
    + 1 + a.
    """
    inner = (len(reward_L) - 1) // (branches - 1)
    child_SA = torch.arange(inner).unsqueeze(1) * branches + 1 + torch.arange(branches)
    moves = torch.zeros(inner + len(reward_L), branches, inner + len(reward_L))
    moves[:inner] = torch.nn.functional.one_hot(child_SA, len(moves))
    reward_SA = moves @ torch.cat([torch.zeros(inner), reward_L])
    uniform, ends = torch.full_like(reward_SA, 1 / branches), torch.arange(len(moves)) >= inner
    value = probes.evaluate_table(moves, reward_SA, uniform, 1.0, ends)
    state, earned = 0, 0.0
    while state < inner:
        action = int((reward_SA[state] + value[child_SA[state]]).argmax())
        earned, state = float(reward_SA[state, action]), int(child_SA[state, action])
    return earned


def worst_of_random_trees(num: int = 50, branches: int = 3, depth: int = 4) -> float:
    generator = torch.Generator().manual_seed(0)
    leaves = (torch.rand(num, branches**depth, generator=generator) < 0.05).float()
    leaves[leaves.sum(1) == 0, 0] = 1.0
    return min(greedy_outcome(one, branches) for one in leaves)


def distance_from_reinforce_on_policy() -> torch.Tensor:
    reinforce = replace(recipes.group_reinforce(), credit=recipes.grpo().credit)
    both = (probes.expected_table_gradient(one, EPISODES, LOGITS_SA, members=2) for one in (recipe(), reinforce))
    return torch.sub(*both).norm()


METHOD = Method(
    paper="arXiv:2509.24981",
    recipe=recipe,
    worlds=(LANGUAGE, CONTROL, TABLE),
    default_task="countdown",
    family="policy gradient",
    base=recipes.grpo,
    departures=("half the squared error", "rewards are divided by the group's deviation, as in the released script"),
    claims=(
        Exact("greed on the uniform policy's values is right in every tree", worst_of_random_trees, equals=1.0),
        Exact("not where outcomes are graded", lambda: greedy_outcome(torch.tensor([0.6, 0.6, 1, 0]), 2), equals=0.6),
        Exact("on-policy its gradient is reinforce's", distance_from_reinforce_on_policy, equals=0.0),
        Measured("scores higher than grpo", "sorting-5", recipe(), recipes.grpo(), seeds=5, steps=100, warmup=60),
        Measured("keeps more entropy than grpo", "sorting-5", watched(recipe()), watched(recipes.grpo()),
                 Average("entropy", 0.2), seeds=5, steps=100, warmup=60),
    ),
)  # fmt: skip
