"""Claims of rover: its loss by hand, exact and measured claims, mutants. Axes: B sequences, T decisions, A actions."""

from dataclasses import replace

import torch

from assay.claims import About, AtEqual, Claims, Exact, Final, Measured, by_hand, probes
from assay.method import BIGRAMS, Experience, recipes
from assay.methods.rover import recipe
from assay.parts import FreshSequences

EPISODES = probes.token_episodes(lambda tokens: float(tokens[0] == 1), num_tokens=2, horizon=2)


LOGITS_SA = torch.linspace(-1.0, 1.0, 6).view(3, 2)


GRPO = replace(recipes.grpo(BIGRAMS), source=FreshSequences(minibatches=4))
"""The rival of the measured claims, with the same four updates a step."""


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


CLAIMS = Claims(
    claims=(
        Exact("off-policy its gradient is the formula's",
              lambda: probes.formula_gap(recipe(), data_of_another_policy(), loss_by_hand), at_most=1e-9),
        Exact("on-policy its gradient is reinforce's", distance_from_reinforce_on_policy, equals=0.0),
        Measured("with as many updates it is right more often than grpo", "many-ways", recipe(BIGRAMS), GRPO,
                 Final("pass_rate"), seeds=5, minutes=10.0, steps=100, looks=2, about=About.HEADLINE),
        Measured("at an equal pass rate it is right within 64 tries more often than grpo",
                 "many-ways", recipe(BIGRAMS), GRPO, AtEqual("pass@64"), seeds=5, minutes=10.0, steps=100, looks=2,
                 about=About.HEADLINE),
        Measured("at an equal pass rate its right answers are more evenly spread over their classes than grpo's",
                 "many-ways:rare=0",
                 recipe(BIGRAMS), GRPO, AtEqual("right_entropy"), seeds=5, minutes=10.0, steps=100, looks=2,
                 about=About.MECHANISM),
    ),
)
