"""archer: a critic of whole turns, trained off-policy from replay, gives each utterance one advantage.

    Q(s_k, u_k) <- R_k + discount * V'(s_k+1);   V(s_k) <- E_pi min_i Q'_i(s_k, u)
    loss = -mean (min_i Q_i(s_k, u) - V(s_k)) * log pi(u | s_k) at replayed states s_k, u ~ pi new in both

Zhou et al. 2024. Two levels: between turns an off-policy temporal-difference critic, within a turn a plain policy
gradient over its tokens, which costs no turn of the environment. If each decision is a turn (control) it is
actor-critic with Q - V.
"""

from dataclasses import replace

import torch

from assay import recipes
from assay.claims import DecisionsTo, Exact, Expect, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.methods.archer.base import turn_critic
from assay.methods.archer.claims import distance_of_mean_worth, in_turns, losses_by_hand, wrong_utterances
from assay.methods.archer.objectives import turn_advantage
from assay.recipes.defaults import LANGUAGE, TABLE, Defaults

EPISODES = probes.token_episodes(lambda tokens: float(sum(tokens) >= 2) + 0.3 * tokens[0], num_tokens=2, horizon=4)
LOGITS_SA = torch.linspace(-1.0, 1.0, EPISODES.num_states * 2, dtype=torch.float64).view(-1, 2).sin()


def recipe(world: Defaults = LANGUAGE) -> Recipe:
    return replace(turn_critic(world), name="archer")


def slopes(turn_length: int) -> torch.Tensor:
    """Returns the gradient of each episode, [Y, S * A], under exact critics."""
    logits = LOGITS_SA.clone().requires_grad_()
    advantage = turn_advantage(probes.exact_values(EPISODES, LOGITS_SA, turn_length))
    episodes = (advantage * EPISODES.decision_logp(logits)[0]).sum(1)
    return torch.stack([torch.autograd.grad(one, logits, retain_graph=True)[0].flatten() for one in episodes])


def bias() -> torch.Tensor:
    chance, exact = EPISODES.logp(LOGITS_SA).exp().T, probes.exact_table_gradient(EPISODES, LOGITS_SA).flatten()
    return torch.stack([((chance * slopes(length)).sum(0) - exact).abs().max() for length in (1, 2, 3)]).max()


def variance_left() -> torch.Tensor:
    """Returns the variance of an episode's gradient: turns of two tokens relative to whole episodes."""
    chance = EPISODES.logp(LOGITS_SA).exp().T
    spreads = [(chance * (found - (chance * found).sum(0)).square()).sum() for found in (slopes(2), slopes(4))]
    return spreads[0] / spreads[1]


METHOD = Method(
    paper="arXiv:2402.19446",
    recipe=recipe,
    default_task="twenty-questions",
    family="credit assignment",
    base=recipes.reinforce,
    departures=(
        "one V for the smaller of two Q, in a network of its own; the authors' code has two of each on one encoder",
        "V and the policy share the batches of new turns, 16 a step with 5 or 6 policy steps, after 16 of Q; the "
        "authors' code draws them apart, 50 and 3. One turn of each replayed conversation is decided again",
        "small transformers from scratch, not RoBERTa; no discount between turns, which are few",
    ),
    claims=(
        Exact("gradients of Q, V and the policy are the formula's",
              lambda: probes.formula_gap(recipe(TABLE), in_turns(), losses_by_hand), at_most=1e-9),
        Exact("V and the policy train on new turns of the current policy at replayed states",
              lambda: wrong_utterances(recipe()), equals=0.0),
        Exact("whatever was recorded, V's target is the policy's own mean worth",
              lambda: distance_of_mean_worth(recipe(TABLE)), at_most=0.01),
        Exact("with exact critics the expected gradient is exact", bias, equals=0.0),
        Exact("what follows a turn adds no variance: two turns have less than one", variance_left, at_most=0.75),
        Measured("wins 55 % of its games after fewer decisions than reinforce", "twenty-questions-2", recipe(),
                 recipes.reinforce(), metric=DecisionsTo(0.55, "reward"), expect=Expect.BELOW, seeds=5, minutes=6.0,
                 steps=24, warmup=120),
    ),
)  # fmt: skip
