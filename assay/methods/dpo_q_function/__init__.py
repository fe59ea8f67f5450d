"""dpo-q-function: reads the log-ratio of a preference-trained policy as soft values, credit for each token.

    beta log(pi*(a|s) / pi_ref(a|s)) = Q*(s, a) - V*(s) = r(s, a) + V*(s') - V*(s)

Rafailov et al. 2024. The loss is dpo's; new is how the policy is read: as credit, and beam search as search with
values: the policy is evaluated and exported with a beam of 5 (`width`; 1 is greedy decoding).
"""

from dataclasses import replace

import torch
from torch import Tensor

from assay import recipes
from assay.claims import Exact, Measured, Method, probes
from assay.core.recipe import Recipe
from assay.methods.dpo_q_function.beam import Beam
from assay.methods.dpo_q_function.claims import gap_of_credit, loss_by_hand, with_a_tie, wrong_beams
from assay.methods.dpo_q_function.credit import ImplicitReward
from assay.recipes.defaults import EVERY, LANGUAGE, PREFERENCES, TABLE, Defaults

BETA = 0.5
EPISODES = probes.token_episodes(lambda tokens: tokens[0] * 2.0 - tokens[1] * tokens[2], num_tokens=2, horizon=3)
REFERENCE_SA, NOW_SA = (torch.linspace(first, -first, 14).double().view(7, 2) for first in (-0.5, 1.0))
TARGET = probes.posterior(EPISODES, REFERENCE_SA, BETA)


def recipe(world: Defaults = LANGUAGE, beta: float = 0.1, width: int = 5) -> Recipe:
    """Returns dpo with the credit of each token, evaluated and exported with a beam where answers are written."""
    wrapper = Beam(width) if world.tokens and not world.paired else None
    credit = (*recipes.dpo().credit, ImplicitReward(beta))
    return replace(recipes.dpo(world, beta), name="dpo-q-function", credit=credit, wrapper=wrapper)


def implicit(table_SA: Tensor, reference_SA: Tensor, episodes: probes.AllEpisodes = EPISODES) -> Tensor:
    every = episodes.record(torch.arange(episodes.num_episodes).expand(episodes.num_prompts, -1), table_SA)
    columns = {"logp_ref": episodes.decision_logp(reference_SA).flatten(0, 1)}
    return recipe(beta=BETA).credit[-1](every.add(columns)).column("advantage").view(episodes.mask.shape)


def bellman_error() -> Tensor:
    value = TARGET.value[EPISODES.state]
    change = torch.nn.functional.pad(value[..., 1:], (0, 1)) - value
    return (implicit(TARGET.table, REFERENCE_SA) - EPISODES.reward - change).abs().max()


def decline_of_answers_from_the_reference() -> Tensor:
    prior, implied = EPISODES.logp(REFERENCE_SA), implicit(NOW_SA, REFERENCE_SA).sum(-1)
    return (prior.exp() * implied).sum() + BETA * probes.divergence(prior, EPISODES.logp(NOW_SA))


def words_prior_and_learnt(seed: int) -> tuple[probes.AllEpisodes, Tensor, Tensor]:
    words, draw = probes.spelling(seed, num_tokens=3, horizon=4, num_prompts=8), torch.Generator().manual_seed(~seed)
    prior = torch.randn(words.num_states, words.num_actions, generator=draw).double()
    table = probes.trained_table(recipe(TABLE, BETA), words, prior, steps=300, members=2, groups=8, behaviour_SA=prior)
    return words, prior, table


def found(seed: int, by_reference: bool) -> float:
    """Returns how often a word's lowest token credit is at its one difference from the best word."""
    words, prior, table = words_prior_and_learnt(seed)
    differs = words.action != words.action[0, words.outcome.argmax(1)].unsqueeze(1)
    number = words.decision_logp(prior) if by_reference else implicit(table, prior, words)
    return float((number.argmin(-1) == differs.long().argmax(-1))[differs.sum(-1) == 1].double().mean())


def beamed(seed: int, width: int) -> float:
    words, _, table = words_prior_and_learnt(seed)
    return float(words.outcome.gather(1, probes.beam_search(words, table, width).unsqueeze(1)).mean())


METHOD = Method(
    "arXiv:2404.12358", recipe, worlds=(*EVERY, PREFERENCES), default_task="sorting-5",
    family="preference",
    base=recipes.dpo,
    departures=("the credit is only read, no loss uses it: it is shown with the samples of a run",
             "claims use tables and a random reference"),
    claims=(
        Exact("off-policy its gradient is dpo's", lambda: probes.formula_gap(recipe(), with_a_tie(), loss_by_hand),
              at_most=1e-9),
        Exact("a token's credit is beta times its log-ratio", lambda: gap_of_credit(recipe()), at_most=1e-12),
        Exact("its answer is that of a beam of 5 by enumeration, or of 2",
              lambda: wrong_beams(recipe(), 5) + wrong_beams(recipe(width=2), 2), equals=0.0),
        Exact("at the optimum the log-ratio obeys Bellman's equation", bellman_error, equals=0.0),
        Exact("there dpo pulls no answer", equals=0.0, function=lambda: probes.preference_push(
            recipe(beta=BETA), EPISODES, TARGET.table, REFERENCE_SA).norm()),
        Exact("answers of the reference lose beta KL", decline_of_answers_from_the_reference, equals=0.0),
        Measured("finds the spoilt letter more often than the reference's log-probability", "",
                 lambda seed: found(seed, False), lambda seed: found(seed, True), seeds=5, minutes=1.0),
        Measured("a beam of 5 finds better words than greedy decoding", "", lambda seed: beamed(seed, 5),
                 lambda seed: beamed(seed, 1), seeds=20, minutes=10.0, looks=3),
    ),
)  # fmt: skip
