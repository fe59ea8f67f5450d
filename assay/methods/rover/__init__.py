"""rover: fits the log-ratio to the values of the uniform policy, without policy improvement.

    Q(s, a) = temperature * log(pi / pi_old)(a|s)
    loss = mean_t (Q(s_t, a_t) - A - mean over all tokens a of Q(s_(t+1), a))^2 / 2,   no gradient in the mean

He et al. 2025. In a deterministic tree with outcomes 0 or 1, acting greedily on the uniform policy's values is
optimal: evaluating it is enough, and sampling from their softmax keeps all paths to a correct answer. With graded
outcomes it is not: of leaves (.6, .6 | 1, 0) it takes the first pair.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import Exact, Final, Measured, Method, by_hand, probes
from assay.core.recipe import Recipe
from assay.core.record import Experience
from assay.methods.rover.objectives import UniformValue
from assay.parts.sources.fresh import FreshSequences
from assay.recipes.defaults import BIGRAMS, CONTROL, LANGUAGE, TABLE, Defaults
from assay.recipes.group import with_policy

EPISODES = probes.token_episodes(lambda tokens: float(tokens[0] == 1), num_tokens=2, horizon=2)
LOGITS_SA = torch.linspace(-1.0, 1.0, 6).view(3, 2)


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    base = replace(recipes.grpo(world), source=FreshSequences(minibatches=2))
    return with_policy(base, "rover", UniformValue())


GRPO = replace(recipes.grpo(BIGRAMS), source=FreshSequences(minibatches=2))
"""The rival of the measured claims, with the same two updates a step."""


def data_of_another_policy() -> Experience:
    """Returns episodes that end inside rows, in groups, with the mean log-probabilities of another policy."""
    data = probes.fragments()
    old = torch.randn(data.mask.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return replace(data, group=torch.arange(len(data)) // 4).add({"uniform_logp_old": old})


def loss_by_hand(seen: probes.Seen) -> torch.Tensor:
    data, advantage_B = seen.experience, by_hand.standardised(seen.experience)
    moved = seen.logp() - data.logp
    logp_BTA = seen.models["actor"].body.table[data.context["state"]].log_softmax(-1)
    errors = []
    for row, column in data.mask.nonzero().tolist():
        over = data.terminal[row, column] or data.truncated[row, column]
        goes_on = column + 1 < data.num_columns and data.mask[row, column + 1] and not over
        after = logp_BTA[row, column + 1].mean() - data.column("uniform_logp_old")[row, column + 1] if goes_on else 0.0
        errors.append(moved[row, column] - (advantage_B[row] + torch.as_tensor(after).detach()))
    return torch.stack(errors).square().mean() / 2


def distance_from_reinforce_on_policy() -> torch.Tensor:
    reinforce = replace(recipes.group_reinforce(), credit=recipes.grpo().credit)
    both = (probes.expected_table_gradient(one, EPISODES, LOGITS_SA, members=2) for one in (recipe(), reinforce))
    return torch.sub(*both).norm()


METHOD = Method(
    paper="arXiv:2509.24981",
    recipe=recipe,
    worlds=(LANGUAGE, CONTROL, TABLE),
    family="policy gradient",
    base=recipes.grpo,
    departures=("half the squared error", "rewards are divided by the group's deviation, as in the released script"),
    claims=(
        Exact("off-policy its gradient is the formula's",
              lambda: probes.formula_gap(recipe(), data_of_another_policy(), loss_by_hand), at_most=1e-9),
        Exact("on-policy its gradient is reinforce's", distance_from_reinforce_on_policy, equals=0.0),
        Measured("with as many updates it is right more often than grpo", "many-ways", recipe(BIGRAMS), GRPO,
                 Final("pass_rate"), seeds=5, minutes=10.0, steps=100, looks=2),
        Measured("and within 64 tries", "many-ways", recipe(BIGRAMS), GRPO, Final("pass@64"), seeds=5, minutes=10.0,
                 steps=100, looks=2),
        Measured("its right answers are more evenly spread over their classes than grpo's", "many-ways:rare=0",
                 recipe(BIGRAMS), GRPO, Final("right_entropy"), seeds=5, minutes=10.0, steps=100, looks=2),
    ),
)  # fmt: skip
