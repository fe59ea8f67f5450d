"""Pairs from anybody, targets known by enumeration, rewards inside a group, preferences as values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.recipe import Recipe
from assay.core.record import Experience, Scored
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods import arenarl, copg, dpo_q_function, kl_bayes
from assay.methods.arenarl.arena import Arena, FunctionJudge, JudgedAlone, OutcomeJudge
from assay.methods.arenarl.tournaments import AnchorOnly, RoundRobin, SeededElimination, bracket, ranks
from assay.methods.copg.objectives import ContrastivePairs
from assay.methods.dpo_q_function.credit import ImplicitReward
from assay.methods.kl_bayes.credit import PosteriorWeight
from assay.proof.laws.cases import EPISODES, RAGGED, SEGMENTS, TOKENS, TORQUES, build
from assay.recipes.defaults import TABLE
from assay.runs import catalogue
from assay.tasks.language.addition import addition

BATCHES = {"tokens": build(TOKENS, RAGGED), "segments": build(TOKENS, SEGMENTS), "torques": build(TORQUES, EPISODES)}


class Given:
    """A view with log-probabilities and nothing else."""

    def __init__(self, logp: Tensor) -> None:
        self.scored = Scored(logp)


def members(batch: Experience) -> dict[int, dict[int, list[int]]]:
    """Rows with a decision, by group and by episode."""
    found: dict[int, dict[int, list[int]]] = {}
    for row in range(len(batch)):
        if bool(batch.mask[row].any()):
            episode = row if batch.episode is None else 1000 + int(batch.episode[row])
            group = row if batch.group is None else int(batch.group[row])
            found.setdefault(group, {}).setdefault(episode, []).append(row)
    return found


def total(value_BT: Tensor, batch: Experience, rows: list[int]) -> float:
    return sum(float(value_BT[row, t]) for row in rows for t in range(batch.num_columns) if batch.mask[row, t])


# ---------------------------------------------------------------------------------------------------- copg
@pytest.mark.parametrize("name", BATCHES)
def test_contrastive_loss_is_the_mean_over_all_pairs(name: str) -> None:
    batch, beta = BATCHES[name], 0.3
    logp = (batch.logp - 0.2) * batch.mask
    expected, count = 0.0, 0
    for episodes in members(batch).values():
        d = [
            total(batch.reward, batch, rows) - beta * total(logp - batch.column("logp_ref"), batch, rows)
            for rows in episodes.values()
        ]
        pairs = list(itertools.combinations(d, 2))
        if pairs:
            expected += sum((one - other) ** 2 for one, other in pairs) / len(pairs) / (4 * beta)
            count += 1
    loss = ContrastivePairs(beta)(batch, Given(logp))
    assert float(loss.sum) == pytest.approx(expected, rel=1e-10)
    assert int(loss.count) == count


def test_a_group_of_one_teaches_copg_nothing() -> None:
    alone = replace(BATCHES["tokens"], group=None)
    logp = alone.logp.clone().requires_grad_()
    loss = ContrastivePairs()(alone, Given(logp))
    (slope,) = torch.autograd.grad(loss.sum, logp)
    assert float(loss.sum.detach()) == 0.0
    assert int(loss.count) == 0
    assert not slope.any()


def test_equal_rewards_pull_copg_back_to_the_reference() -> None:
    logits = torch.tensor([1.0, -1.0])
    batch = probes.bandit_experience([0, 1], [0.4, 0.4], logits)
    reference = torch.full((2, 1), math.log(0.5)).double()
    push = probes.decision_weights(copg.recipe(beta=0.5), batch, batch.logp, logp_ref=reference)
    assert float(push[0]) < 0 < float(push[1])
    still = probes.decision_weights(copg.recipe(beta=0.5), batch, reference, logp_ref=reference)
    assert not still.any()


def test_copg_goes_to_the_optimum_whoever_acts() -> None:
    arms, uniform = probes.bandit_episodes(torch.tensor([0.0, 0.5, 1.0])), torch.zeros(1, 3)
    target = probes.posterior(arms, uniform, 0.5).logp
    for behaviour in (torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[2.0, 0.0, -1.0]])):
        table = probes.trained_table(
            copg.recipe(TABLE, 0.5), arms, uniform, steps=200, members=16, behaviour_SA=behaviour
        )
        assert float(probes.divergence(arms.logp(table), target)) < 1e-3


# ---------------------------------------------------------------------------------------------------- kl-bayes
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


# ---------------------------------------------------------------------------------------------------- arenarl
def judge_of(quality: list[float]) -> Callable[..., list[tuple[float, float]]]:
    return lambda pairs: [(quality[one], quality[other]) for one, other in pairs]


def test_brackets_by_hand() -> None:
    assert bracket(1) == [0]
    assert bracket(4) == [0, 3, 1, 2]
    assert bracket(8) == [0, 7, 3, 4, 1, 6, 2, 5]
    assert bracket(5) == [0, 3, 4, 1, 2]


def test_ranks_share_ties() -> None:
    assert ranks([(3.0, 0.0), (1.0, 0.0), (3.0, 0.0), (0.0, 1.0)]) == [0.5, 2.0, 0.5, 3.0]


@pytest.mark.parametrize("topology", [RoundRobin(), AnchorOnly(), SeededElimination()])
def test_a_judge_without_error_ranks_every_small_group(topology: Any) -> None:
    for num in range(1, 5):
        for order in itertools.permutations(range(num)):
            place = topology(num, judge_of([float(one) for one in order]))
            assert sorted(place) == list(range(num))
            assert place[order.index(num - 1)] == 0
            if not isinstance(topology, SeededElimination):
                assert place == [float(num - 1 - one) for one in order]


@pytest.mark.parametrize("topology", [RoundRobin(), AnchorOnly(), SeededElimination()])
def test_equal_members(topology: Any) -> None:
    assert topology(1, judge_of([0.3])) == [0.0]
    assert topology(2, judge_of([0.3, 0.3])) == [0.5, 0.5]


def members_of_one(outcomes: list[float]) -> Experience:
    return probes.bandit_experience([0] * len(outcomes), outcomes, torch.zeros(2))


def test_arena_gives_quantiles_and_a_group_of_one_a_half() -> None:
    batch = members_of_one([0.1, 0.9, 0.5, -3.0])
    assert Arena()(batch).reward.squeeze(1).tolist() == pytest.approx([1 / 3, 1.0, 2 / 3, 0.0])
    assert Arena()(replace(batch, group=None)).reward.squeeze(1).tolist() == [0.5] * 4
    squashed = replace(batch, reward=batch.reward.tanh())
    assert torch.equal(Arena()(squashed).reward, Arena()(batch).reward)


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("part", [Arena(OutcomeJudge(0.5)), JudgedAlone(OutcomeJudge(0.5))])
def test_an_episode_is_rewarded_once_and_rows_that_left_not_at_all(name: str, part: Any) -> None:
    batch = BATCHES[name]
    reward = part(batch).reward
    episodes = [rows for group in members(batch).values() for rows in group.values()]
    assert all(int((reward[rows] != 0).sum()) <= 1 for rows in episodes)
    assert not reward[~batch.mask].any()
    order = torch.arange(len(batch)).flip(0)
    if batch.episode is None:
        assert torch.equal(part(batch.rows(order)).reward, reward[order])


def test_noise_of_a_judge_is_repeated_and_has_its_size() -> None:
    batch = members_of_one([0.0] * 60)
    first, second = (torch.tensor(side) for side in zip(*itertools.combinations(range(60), 2), strict=True))
    scores = OutcomeJudge(0.5)(batch, None, first, second)  # type: ignore[arg-type]
    assert torch.equal(scores, OutcomeJudge(0.5)(batch, None, first, second))  # type: ignore[arg-type]
    assert float(scores.std()) == pytest.approx(0.5, rel=0.05)
    assert abs(float(scores.mean())) < 0.05
    again = OutcomeJudge(0.5)(batch, None, second, first)  # type: ignore[arg-type]
    assert torch.equal(again.flip(1), scores)


def test_a_users_judge_is_asked_in_both_orders() -> None:
    task = addition(1)
    shown = task.demonstrate(np.array([0, 1, 2]), 0)
    together = replace(shown, group=torch.zeros(3, dtype=torch.long)).add({"sample": torch.arange(3)})

    def prefers_the_first(a: dict[str, Any], b: dict[str, Any]) -> tuple[float, float]:
        return len(a["prompt"]) + 10.0, float(len(b["prompt"]))

    scores = FunctionJudge(prefers_the_first)(together, task, torch.tensor([0, 1]), torch.tensor([1, 2]))
    assert torch.equal(scores[:, 0] - scores[:, 1], torch.zeros(2).double())
    arena = Arena(FunctionJudge(prefers_the_first), RoundRobin())
    assert arena(together, Scene(task)).reward.sum() == pytest.approx(1.5)


@pytest.mark.parametrize("task", ["cartpole", "bandit"])
def test_a_tournament_trains_in_control(task: str) -> None:
    made = catalogue.find_task(task)
    loop = Loop(catalogue.recipe_for("arenarl", made, {}), made, seed=0, num_steps=2)
    step = loop.step()
    assert step.fresh is not None
    reward = (step.fresh.reward * step.fresh.mask).sum(1)
    assert float(reward.min()) >= 0.0
    assert float(reward.max()) <= 1.0
    assert torch.allclose(reward.view(-1, 8).sum(1), torch.full((8,), 4.0))


# ---------------------------------------------------------------------------------------------------- dpo-q-function
def test_implicit_rewards_are_the_log_ratio_on_decisions() -> None:
    for batch in BATCHES.values():
        found = ImplicitReward(0.2)(batch).column("advantage")
        assert torch.allclose(found, 0.2 * (batch.logp - batch.column("logp_ref")) * batch.mask)
        still = ImplicitReward(0.2)(batch.add({"logp_ref": batch.logp})).column("advantage")
        assert not still.any()


def test_preferences_pull_a_policy_that_is_not_optimal() -> None:
    words, prior = dpo_q_function.EPISODES, dpo_q_function.REFERENCE_SA
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
