"""Preferences as values: implicit rewards, learning on a table, and search with what was learnt."""

from __future__ import annotations

import pytest
import torch

from assay import recipes
from assay.claims import dpo_q_function as claims
from assay.claims import probes
from assay.claims.laws.cases import EPISODES, RAGGED, SEGMENTS, TOKENS, TORQUES, build
from assay.core.recipe import Recipe
from assay.methods import dpo_q_function
from assay.methods.dpo_q_function import ImplicitReward
from assay.recipes.presets import TABLE

BATCHES = {"tokens": build(TOKENS, RAGGED), "segments": build(TOKENS, SEGMENTS), "torques": build(TORQUES, EPISODES)}


def test_implicit_rewards_are_the_log_ratio_on_decisions() -> None:
    for batch in BATCHES.values():
        found = ImplicitReward(0.2)(batch).column("advantage")
        assert torch.allclose(found, 0.2 * (batch.logp - batch.column("logp_ref")) * batch.mask)
        still = ImplicitReward(0.2)(batch.add({"logp_ref": batch.logp})).column("advantage")
        assert not still.any()


def test_preferences_pull_a_policy_that_is_not_optimal() -> None:
    words, prior = claims.EPISODES, claims.REFERENCE_SA
    push = probes.preference_push(recipes.dpo(beta=0.5), words, prior, prior)
    outcome = words.outcome[0]
    assert float(push[0, outcome.argmax()]) > 0 > float(push[0, outcome.argmin()])
    assert float(push.sum()) == pytest.approx(0.0)


def learned_from(recipe: Recipe) -> float:
    words = probes.spelling(3, num_tokens=2, horizon=2)
    start = torch.zeros(words.num_states, 2)
    table = probes.trained_table(recipe, words, start, steps=60, members=2, groups=8)
    return float(
        (words.logp(table).exp() * words.outcome).sum() - (words.logp(start.double()).exp() * words.outcome).sum()
    )


def test_dpo_learns_on_a_table_and_reading_its_credit_changes_nothing() -> None:
    plain, read = learned_from(recipes.dpo(TABLE, 0.5)), learned_from(dpo_q_function.recipe(TABLE, 0.5))
    assert plain > 0.3
    assert read == plain


def test_spelling_has_other_rewards_for_each_prompt_and_states_of_their_own() -> None:
    words = probes.spelling(1, num_tokens=3, horizon=2, num_prompts=4)
    assert words.num_states == 4 * 4
    assert torch.equal(words.state[2] - words.state[0], torch.full_like(words.state[0], 8))
    assert len(torch.unique(words.outcome)) == 4 * 9


def test_a_beam_on_a_table_is_greedy_at_width_one_and_exact_when_wide() -> None:
    words = probes.token_episodes(lambda y: 0.0, num_tokens=3, horizon=3, end=2)
    draw = torch.Generator().manual_seed(0)
    gained = 0.0
    for _ in range(20):
        logits = torch.randn(words.num_states, 3, generator=draw).double()
        logp = words.logp(logits)[0]
        greedy, wide = (int(probes.beam_search(words, logits, width)) for width in (1, words.num_episodes))
        state, tokens = 0, []
        while not tokens or (tokens[-1] != 2 and len(tokens) < 3):
            tokens.append(int(logits[state].argmax()))
            same = [y for y in range(words.num_episodes) if words.action[0, y, : len(tokens)].tolist() == tokens]
            state = int(words.state[0, same[0], min(len(tokens), 2)])
        assert words.action[0, greedy][words.mask[0, greedy]].tolist() == tokens
        assert wide == int(logp.argmax())
        gained += float(logp[wide] - logp[greedy])
    assert gained > 0
