"""Posteriors as targets: weights against a loop, and what each divergence does."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from assay import recipes
from assay.claims import probes
from assay.claims.laws.cases import EPISODES, RAGGED, SEGMENTS, TOKENS, TORQUES, build
from assay.methods import kl_bayes
from assay.methods.kl_bayes import PosteriorWeight
from assay.recipes.presets import TABLE
from tests.methods.members import members, total

BATCHES = {"tokens": build(TOKENS, RAGGED), "segments": build(TOKENS, SEGMENTS), "torques": build(TORQUES, EPISODES)}


@pytest.mark.parametrize("name", BATCHES)
def test_posterior_weights_against_a_loop(name: str) -> None:
    batch, beta = BATCHES[name], 0.7
    found = PosteriorWeight(beta)(batch).column("advantage")
    for episodes in members(batch).values():
        weight = {
            key: math.exp(
                total(batch.column("logp_ref") - batch.logp, batch, rows) + total(batch.reward, batch, rows) / beta
            )
            for key, rows in episodes.items()
        }
        mean = sum(weight.values()) / len(weight)
        for key, rows in episodes.items():
            for row in rows:
                values = found[row][batch.mask[row]]
                assert torch.allclose(values, torch.full_like(values, weight[key] / mean - 1.0))
    assert not found[~batch.mask].any()


def test_posterior_weight_of_equal_rewards_at_the_reference_and_of_one() -> None:
    batch = probes.bandit_experience([0, 1, 1], [1.0, 1.0, 1.0], torch.zeros(2))
    for one in (batch, replace(batch, group=None)):
        assert PosteriorWeight()(one.add({"logp_ref": one.logp})).column("advantage").abs().max() < 1e-12


def test_mild_rewards_make_matching_the_step_of_reinforcement_over_beta() -> None:
    """Both divergences have the same gradient at the reference, to first order in the reward."""
    logits, beta = torch.tensor([0.3, -0.2, 0.5]).double(), 1e4
    batch = probes.bandit_experience([0, 1, 2, 2], [0.2, 1.0, 0.0, 0.7], logits)
    ours = probes.decision_weights(kl_bayes.matching(beta=beta), batch, batch.logp, logp_ref=batch.logp)
    plain = probes.decision_weights(recipes.group_reinforce(), batch, batch.logp)
    assert torch.allclose(ours * beta, plain, atol=1e-4)


def test_posterior_table_reproduces_the_posterior_and_its_values_obey_bellman() -> None:
    words = probes.token_episodes(lambda y: len(y) - 2.0 * y[0], num_tokens=3, horizon=3, end=2)
    prior, beta = torch.linspace(-1, 1, words.num_states * 3).double().view(-1, 3), 0.4
    found = probes.posterior(words, prior, beta)
    assert torch.allclose(words.logp(found.table), found.logp)
    assert float(found.value[0]) == pytest.approx(beta * float(found.log_z))
    assert float(found.logp.exp().sum()) == pytest.approx(1.0)
    value = torch.zeros(words.num_states, dtype=torch.float64)
    after = torch.full((words.num_states, 3), -1)
    pay = torch.zeros(words.num_states, 3, dtype=torch.float64)
    for y, t in words.mask[0].nonzero().tolist():
        s, a = int(words.state[0, y, t]), int(words.action[0, y, t])
        pay[s, a] = words.reward[0, y, t]
        if t + 1 < words.mask.shape[2] and words.mask[0, y, t + 1]:
            after[s, a] = words.state[0, y, t + 1]
    for s in reversed(range(words.num_states)):  # longer prefixes have larger numbers
        q = pay[s] + torch.where(after[s] >= 0, value[after[s].clamp(min=0)], 0.0)
        value[s] = beta * (prior[s].log_softmax(-1) + q / beta).logsumexp(-1)
    assert torch.allclose(found.value, value)


def test_reward_alone_collapses_and_both_divergences_do_not() -> None:
    arms = probes.bandit_episodes(torch.tensor([0.8, 0.9, 1.0]))
    budget = {"steps": 300, "members": 16}
    alone, reverse, forward = (
        probes.distance_from_posterior(one, arms, 0.5, **budget)
        for one in (recipes.rloo(TABLE), kl_bayes.recipe(TABLE, 0.5), kl_bayes.matching(TABLE, 0.5))
    )
    assert alone > 0.5
    assert max(reverse, forward) < 0.05
