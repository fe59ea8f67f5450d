"""prefixrl: on-policy learning from starts inside a stored solution, whose prefix is context and never a target.

    J = mean_x V(x) + mean_(x, h) V(x, y_x[:h]),   loss = grpo's on the decisions after the prefix

Setlur et al. 2026. Hard problems give no reward, hence no gradient; after a part of a correct solution they do. A
group is one (problem, prefix). Starts without a prefix stay in the mix, and only they are in the held-out score. For
control the prefix is the state that a demonstration's first actions lead to.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import probes
from assay.claims.claim import Exact, Gain, Measured, Method
from assay.core.recipe import Recipe
from assay.methods.prefixrl.rollout import FromPrefixes
from assay.recipes.defaults import EVERY, LANGUAGE, Defaults

EPISODES = probes.token_episodes(lambda tokens: tokens[0] * tokens[1] + 0.5 * tokens[2], num_tokens=2, horizon=3)
LOGITS_SA = torch.linspace(-1.0, 1.5, EPISODES.num_states * 2, dtype=torch.float64).view(-1, 2).sin()


def recipe(world: Defaults = LANGUAGE, plain: float = 0.25) -> Recipe:
    """Returns GRPO from prefixes; `plain` is the share of starts without one."""
    base = recipes.grpo(world)
    assert base.rollout is not None
    return replace(base, name="prefixrl", rollout=FromPrefixes(base.rollout.num_starts, plain=plain))


def after_first_token(token: int = 1) -> probes.AllEpisodes:
    """Returns the episodes that continue from one given token."""
    rows = EPISODES.action[0, :, 0] == token
    mask = EPISODES.mask[:, rows].clone()
    mask[:, :, 0] = False
    state, action, reward = (each[:, rows] for each in (EPISODES.state, EPISODES.action, EPISODES.reward))
    return replace(EPISODES, state=state, action=action, reward=reward, mask=mask)


def distance_from_gradient_after_prefix() -> torch.Tensor:
    return probes.compare(recipes.rloo(), after_first_token(), LOGITS_SA, members=2).bias.norm()


def pull_inside_the_prefix() -> torch.Tensor:
    return probes.expected_table_gradient(recipe(), after_first_token(), LOGITS_SA, members=2)[0].abs().max()


METHOD = Method(
    paper="arXiv:2601.18795",
    recipe=recipe,
    worlds=EVERY,
    default_task="countdown",
    family="guidance",
    base=recipes.grpo,
    departures=(
        "solutions are the task's demonstrations (as from another model), not rejection samples of the base policy",
        "each problem is used once, with one prefix or none, instead of several copies of a fixed set of problems",
        "prefixes of 40 to 80 % and a quarter of plain starts are from memory of the paper; grpo stands for its loss",
    ),
    claims=(
        Exact("with rloo's loss the expected gradient is that of the value after the prefix",
              distance_from_gradient_after_prefix, equals=0.0),
        Exact("what was decided inside the prefix gets no gradient", pull_inside_the_prefix, equals=0.0),
        Measured(
            "scores higher without a prefix than grpo where right answers are rare",
            "sorting-10", recipe(), recipes.grpo(), seeds=5, minutes=5.0, steps=60, warmup=60,
        ),
        Measured(
            "trained from prefixes alone, the score without a prefix rises",
            "sorting-5", recipe(plain=0.0), 0.0, metric=Gain(), seeds=5, minutes=4.0, steps=100, warmup=60,
        ),
    ),
)  # fmt: skip
