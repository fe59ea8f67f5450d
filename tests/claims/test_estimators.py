"""Bias and variance of every gradient estimator, by enumeration: float64, every outcome listed, nothing sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import comb, sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.slots import Aggregation, RatioLevel, RowStatistic, TrustRegion
from assay.ops import divergences
from assay.parts.aggregations import FixedLength, SequenceMean, SequenceSum, TokenMean
from assay.parts.credit.outcome import Constant, GroupDeviation, GroupMean, LeaveOneOut, OutcomeCredit
from assay.parts.credit.shaping import KlInReward
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.objectives.ratio import ProductRatio, SequenceRatio, TokenRatio
from assay.parts.objectives.trust import Clip, NoTrust, StopGradientWeight, Unclipped
from assay.parts.regularizers.divergence import KlToReference

LOGITS_A = torch.tensor([0.9, 0.2, -0.4], dtype=torch.float64)
REWARD_A = torch.tensor([0.3, 1.0, -0.5], dtype=torch.float64)
TOLERANCE = 1e-12


def equal(mine: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    return mine.shape == expected.shape and float((mine - expected).abs().max()) <= tolerance


def policy(
    baseline: RowStatistic = Constant(),
    trust: TrustRegion = NoTrust(),
    aggregate: Aggregation = SequenceSum(),
    ratio: RatioLevel = TokenRatio(),
) -> Recipe:
    """A policy gradient put together from its choices."""
    objective = PolicyGradient(ratio=ratio, trust=trust, aggregate=aggregate)
    stage = Stage("policy", trains=("actor",), objective=(objective,))
    return replace(recipes.group_reinforce(), credit=(OutcomeCredit(baseline),), stages=(stage,))


def words() -> probes.AllEpisodes:
    """Words over {end, a} of at most three tokens: 0, 10, 110, 111; four episodes of one to three decisions."""
    reward = {(0,): 0.2, (1, 0): 1.0, (1, 1, 0): -0.3, (1, 1, 1): 0.6}
    return probes.token_episodes(lambda tokens: reward[tokens], num_tokens=2, horizon=3, end=0)


def pairs() -> probes.AllEpisodes:
    """Two tokens of two kinds; what is right depends on both."""
    return probes.token_episodes(lambda pair: float(pair[0] == pair[1]) - 0.2 * pair[0], num_tokens=2, horizon=2)


WORD_LOGITS = torch.tensor([[0.3, -0.2], [-0.5, 0.4], [0.1, 0.7]], dtype=torch.float64)
PAIR_LOGITS = torch.tensor([[0.3, -0.2], [-0.5, 0.4], [0.1, 0.7]], dtype=torch.float64)
OTHER_LOGITS = torch.tensor([[-0.4, 0.5], [0.6, -0.1], [0.8, -0.3]], dtype=torch.float64)


def slope_of(function: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    """The exact gradient of a function of the table."""
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf)[0]


# ---------------------------------------------------------------------------------------------------- baselines
numbers = st.floats(-2.0, 2.0, allow_nan=False)


@given(logits=st.lists(numbers, min_size=3, max_size=3), reward=st.lists(numbers, min_size=3, max_size=3))
def test_rloo_is_unbiased_on_every_bandit(logits: list[float], reward: list[float]) -> None:
    logits_A, reward_A = torch.tensor(logits, dtype=torch.float64), torch.tensor(reward, dtype=torch.float64)
    mine = -probes.expected_gradient(recipes.rloo(), logits_A, reward_A, members=2)
    assert equal(mine, probes.exact_bandit_gradient(logits_A, reward_A))


@pytest.mark.parametrize("members", [2, 3])
def test_rloo_is_unbiased_on_sequences_and_on_several_prompts(members: int) -> None:
    assert equal(probes.compare(recipes.rloo(), words(), WORD_LOGITS, members).bias, torch.zeros(3, 2))
    two = probes.bandit_episodes(torch.tensor([[0.0, 1.0], [2.0, -1.0]]))
    assert equal(probes.compare(recipes.rloo(), two, WORD_LOGITS[:2], members).bias, torch.zeros(2, 2))


def test_reinforce_without_baseline_is_unbiased() -> None:
    for members in (1, 2):
        assert equal(probes.compare(policy(), words(), WORD_LOGITS, members).bias, torch.zeros(3, 2))


@pytest.mark.parametrize(("num_prompts", "members"), [(1, 1), (1, 2), (1, 3), (2, 2)])
def test_batch_mean_shrinks_the_gradient_by_one_in_n(num_prompts: int, members: int) -> None:
    """The mean contains the row's own outcome: E[g] = (1 - 1/n) * exact for n rows, whatever their prompts."""
    reward = torch.tensor([[0.3, 1.0, -0.5], [2.0, 0.0, 1.0]], dtype=torch.float64)[:num_prompts]
    logits = torch.stack([LOGITS_A, -LOGITS_A])[:num_prompts]
    seen = probes.compare(recipes.reinforce(), probes.bandit_episodes(reward), logits, members)
    assert equal(seen.expected, (1 - 1 / (num_prompts * members)) * seen.exact)


@pytest.mark.parametrize("members", [2, 3, 4])
def test_group_mean_is_rloo_times_n_minus_one_over_n(members: int) -> None:
    """Not only on average: every batch is scaled by the same number, so the variance is scaled by its square."""
    shrink = (members - 1) / members
    own = probes.compare(policy(GroupMean()), words(), WORD_LOGITS, members)
    others = probes.compare(policy(LeaveOneOut()), words(), WORD_LOGITS, members)
    assert equal(own.expected, shrink * others.expected)
    assert equal(own.variance, shrink**2 * others.variance)


def test_variance_of_one_pull_is_the_textbook_formula() -> None:
    """Var = sum_a pi(a) r(a)^2 (e_a - pi)^2 - exact^2, and 1/n of it for n independent pulls without baseline."""
    prob = LOGITS_A.softmax(-1)
    score_AA = torch.eye(3, dtype=torch.float64) - prob
    exact = probes.exact_bandit_gradient(LOGITS_A, REWARD_A)
    single = ((prob * REWARD_A.square()).unsqueeze(1) * score_AA.square()).sum(0) - exact.square()
    for members in (1, 2, 3):
        assert equal(probes.gradient_variance(policy(), LOGITS_A, REWARD_A, members), single / members)


def test_leave_one_out_does_not_feel_a_shift_of_all_rewards_and_no_baseline_does() -> None:
    plain = [probes.gradient_variance(policy(), LOGITS_A, REWARD_A + shift, 3).sum() for shift in (0.0, 5.0)]
    others = [probes.gradient_variance(recipes.rloo(), LOGITS_A, REWARD_A + shift, 3).sum() for shift in (0.0, 5.0)]
    assert abs(others[0] - others[1]) < TOLERANCE
    assert plain[1] > 40 * plain[0]
    assert plain[1] > 40 * others[1]


# ---------------------------------------------------------------------------------------------------- GRPO's deviation
def weight_of_prompt(prob: float, members: int, epsilon: float) -> float:
    """c_n(p) with E[GRPO's gradient] = c_n(p) * dp for rewards in {0, 1}; tends to 1 / sqrt(p (1 - p)).

    c_n(p) = E_k[k (n - k) / (n^2 (s_k + eps))] / (p (1 - p)),  k ~ Binomial(n, p),  s_k^2 = k (n - k) / (n (n - 1)).
    """
    total = 0.0
    for right in range(1, members):
        chance = comb(members, right) * prob**right * (1 - prob) ** (members - right)
        deviation = sqrt(right * (members - right) / (members * (members - 1)))
        total += chance * right * (members - right) / (members**2 * (deviation + epsilon))
    return total / (prob * (1 - prob))


@pytest.mark.parametrize("members", [2, 3, 4])
def test_grpo_weighs_prompts_by_their_difficulty(members: int) -> None:
    """Two or three members have one possible deviation, so the direction is right; from four on hard prompts gain."""
    prob_P = torch.tensor([0.05, 0.5], dtype=torch.float64)
    logits_PA = torch.stack([(1 - prob_P).log(), prob_P.log()], 1)
    prompts = probes.bandit_episodes(torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    grpo = probes.compare(recipes.grpo(), prompts, logits_PA, members)
    weight_P = prob_P.clone().apply_(lambda p: weight_of_prompt(p, members, GroupDeviation().epsilon))
    assert equal(grpo.expected, weight_P.unsqueeze(1) * grpo.exact)
    ratio = weight_of_prompt(0.05, members, 0.0) / weight_of_prompt(0.5, members, 0.0)
    print(f"n={members}: weights {weight_P.tolist()}, ratio {ratio:.6f}, cosine {grpo.cosine:.6f}")
    if members <= 3:
        assert ratio == pytest.approx(1.0, abs=TOLERANCE)
        assert grpo.cosine > 1 - 1e-9
    else:
        assert ratio > 1.05
        assert grpo.cosine < 1 - 1e-5


def test_grpo_tends_to_the_gradient_of_the_arcsine_of_the_root() -> None:
    """d/dp 2 arcsin(sqrt p) = 1 / sqrt(p (1 - p)): what GRPO climbs when groups are large.

    At n = 8 a prompt solved once in twenty times weighs 1.33 times one solved every other time.
    """
    for prob in (0.05, 0.3, 0.5):
        assert weight_of_prompt(prob, 900, 0.0) == pytest.approx(1 / sqrt(prob * (1 - prob)), rel=5e-3)
    assert weight_of_prompt(0.05, 8, 0.0) / weight_of_prompt(0.5, 8, 0.0) == pytest.approx(1.33, abs=5e-3)


def test_deviation_turns_the_direction_within_one_prompt_when_rewards_are_not_binary() -> None:
    seen = probes.compare(recipes.grpo(), probes.bandit_episodes(REWARD_A), LOGITS_A, 3)
    binary = probes.compare(recipes.grpo(), probes.bandit_episodes(torch.tensor([0.0, 1.0, 1.0])), LOGITS_A, 3)
    assert seen.cosine < 0.999
    assert binary.cosine > 1 - TOLERANCE


@pytest.mark.parametrize("members", [2, 3])
def test_dr_grpo_points_where_rloo_points_and_grpo_does_not(members: int) -> None:
    mine = probes.compare(recipes.dr_grpo(length=3), words(), WORD_LOGITS, members)
    assert equal(mine.expected, (members - 1) / members / 3 * mine.exact)
    assert probes.compare(recipes.grpo(), words(), WORD_LOGITS, members).cosine < 0.999


# ---------------------------------------------------------------------------------------------------- lengths
def test_sequence_mean_climbs_the_reward_divided_by_the_length() -> None:
    seen = probes.compare(policy(aggregate=SequenceMean()), words(), WORD_LOGITS, 2)
    per_length = words().outcome / words().length
    assert equal(seen.expected, slope_of(lambda x: (words().logp(x).exp() * per_length).sum(), WORD_LOGITS))
    assert seen.cosine < 0.98


def test_fixed_length_and_sequence_sum_have_no_length_bias() -> None:
    assert equal(probes.compare(policy(aggregate=SequenceSum()), words(), WORD_LOGITS, 2).bias, torch.zeros(3, 2))
    fixed = probes.compare(policy(aggregate=FixedLength(5)), words(), WORD_LOGITS, 2)
    assert equal(5 * fixed.expected, fixed.exact)


def test_token_mean_divides_by_the_length_of_the_whole_batch() -> None:
    """Two members: E[g] = 2 * d E[R w(L)], w(l) = E[1 / (l + L')] with L' of the other member, held fixed."""
    chance, length = words().logp(WORD_LOGITS).exp()[0], words().length[0].double()
    share = (chance / (length.unsqueeze(1) + length)).sum(1)
    expected = slope_of(lambda x: 2 * (words().logp(x).exp() * words().outcome * share).sum(), WORD_LOGITS)
    assert equal(probes.compare(policy(aggregate=TokenMean()), words(), WORD_LOGITS, 2).expected, expected)


@pytest.mark.parametrize(("reward", "sign"), [(1.0, -1.0), (-1.0, 1.0)])
def test_sequence_mean_prefers_short_rewards_and_long_punishments(reward: float, sign: float) -> None:
    """Every word is worth the same, so nothing is to be learnt; yet the mean over a sequence moves the length."""
    same = probes.token_episodes(lambda tokens: reward, num_tokens=2, horizon=3, end=0)
    longer = slope_of(lambda x: (same.logp(x).exp() * same.length).sum(), WORD_LOGITS)
    mean, total = (
        -probes.expected_table_gradient(policy(aggregate=aggregate), same, WORD_LOGITS)
        for aggregate in (SequenceMean(), SequenceSum())
    )
    assert sign * float((mean * longer).sum()) > 0.05
    assert equal(total, torch.zeros(3, 2))


# ---------------------------------------------------------------------------------------------------- ratio one
def scaled(trust: TrustRegion, aggregate: Aggregation) -> Recipe:
    """Plain REINFORCE with GRPO's advantages."""
    return replace(policy(trust=trust, aggregate=aggregate), credit=recipes.grpo().credit)


@pytest.mark.parametrize(
    ("recipe", "plain"),
    [
        (recipes.grpo(), scaled(NoTrust(), SequenceMean())),
        (recipes.gspo(), scaled(NoTrust(), SequenceMean())),
        (recipes.dapo(), scaled(NoTrust(), TokenMean())),
        (recipes.cispo(), scaled(NoTrust(), TokenMean())),
        (recipes.dr_grpo(), policy(GroupMean(), aggregate=FixedLength())),
        (recipes.ppo(), recipes.a2c()),
    ],
    ids=lambda recipe: recipe.name,
)
def test_on_its_own_data_a_trust_region_is_reinforce(recipe: Recipe, plain: Recipe) -> None:
    mine, reinforce = (probes.compare(one, words(), WORD_LOGITS, 2) for one in (recipe, plain))
    assert equal(mine.expected, reinforce.expected)
    assert equal(mine.variance, reinforce.variance)


# ---------------------------------------------------------------------------------------------------- other's data
@pytest.mark.parametrize("baseline", [Constant(), LeaveOneOut()])
def test_the_product_of_ratios_is_unbiased_on_data_of_another_policy(baseline: RowStatistic) -> None:
    recipe = policy(baseline, Unclipped(), SequenceMean(), ProductRatio())
    for episodes in (pairs(), words()):
        seen = probes.compare(recipe, episodes, WORD_LOGITS, 2, behaviour_SA=OTHER_LOGITS)
        assert equal(seen.bias, torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("ratio", "trust", "aggregate"),
    [
        (TokenRatio(), Unclipped(), SequenceSum()),
        (SequenceRatio(), Unclipped(), SequenceSum()),
        (ProductRatio(), Clip(0.2, 0.2), SequenceMean()),
        (TokenRatio(), NoTrust(), SequenceSum()),
    ],
    ids=["token", "geometric", "clipped product", "none"],
)
def test_other_ratios_are_biased_on_data_of_another_policy(
    ratio: RatioLevel, trust: TrustRegion, aggregate: Aggregation
) -> None:
    recipe = policy(Constant(), trust, aggregate, ratio)
    seen = probes.compare(recipe, pairs(), PAIR_LOGITS, behaviour_SA=OTHER_LOGITS)
    print(f"cosine {seen.cosine:.4f}, scale {seen.scale:.4f}, bias {float(seen.bias.norm()):.4f}")
    assert seen.bias.norm() > 0.03


def test_the_token_ratio_lacks_the_ratio_of_the_prefix() -> None:
    """E[g] = sum over y of b(y) R(y) sum_t ratio_t d log pi(y_t): right in the last token only where prefixes agree."""
    recipe = policy(Constant(), Unclipped(), SequenceSum(), TokenRatio())
    seen = probes.compare(recipe, pairs(), PAIR_LOGITS, behaviour_SA=OTHER_LOGITS)
    weight, old = pairs().logp(OTHER_LOGITS).exp() * pairs().outcome, pairs().decision_logp(OTHER_LOGITS)
    expected = slope_of(lambda x: (weight * (pairs().decision_logp(x) - old).exp().sum(-1)).sum(), PAIR_LOGITS)
    assert equal(seen.expected, expected)


def test_on_a_bandit_the_token_ratio_is_exact_and_a_ceiling_on_it_is_not() -> None:
    """With weights min(ratio, c): E[g] = sum_a b(a) min(ratio(a), c) r(a) d log pi(a)."""
    logits, other = LOGITS_A.unsqueeze(0), -LOGITS_A.unsqueeze(0)
    arms = probes.bandit_episodes(REWARD_A)
    free, capped = (policy(trust=StopGradientWeight(1.0, high)) for high in (1e9, 0.5))
    assert equal(probes.compare(free, arms, logits, 2, behaviour_SA=other).bias, torch.zeros(1, 3))
    ratio = (logits.log_softmax(-1) - other.log_softmax(-1)).exp()[0]
    weight = other.softmax(-1)[0] * ratio.clamp(max=1.5) * REWARD_A
    expected = slope_of(lambda x: (weight * x.log_softmax(-1)[0]).sum(), logits)
    assert equal(probes.compare(capped, arms, logits, 2, behaviour_SA=other).expected, expected)


# ---------------------------------------------------------------------------------------------------- KL
def kl(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL(p || q) of rows, summed over the last axis."""
    return (p_logits.softmax(-1) * (p_logits.log_softmax(-1) - q_logits.log_softmax(-1))).sum(-1)


Q_A = torch.tensor([-0.3, 0.8, 0.1], dtype=torch.float64)


def test_k1_and_k3_have_the_kl_as_their_mean_and_k2_has_not() -> None:
    prob, log_ratio = LOGITS_A.softmax(-1), LOGITS_A.log_softmax(-1) - Q_A.log_softmax(-1)
    mean = {k.__name__: float((prob * k(log_ratio)).sum()) for k in (divergences.k1, divergences.k2, divergences.k3)}
    exact = float(kl(LOGITS_A, Q_A))
    assert mean["k1"] == pytest.approx(exact, abs=1e-15)
    assert mean["k3"] == pytest.approx(exact, abs=1e-15)
    assert abs(mean["k2"] - exact) > 0.01


def penalty(estimator: Callable[[Tensor], Tensor]) -> Recipe:
    """A KL term alone."""
    term = KlToReference(1.0, estimator, SequenceSum())
    stage = Stage("policy", trains=("actor",), regularizers=(term,))
    return replace(recipes.group_reinforce(), credit=(), stages=(stage,), copies={"reference": Copy(of="actor")})


def loss_gradient(
    estimator: Callable[[Tensor], Tensor], episodes: probes.AllEpisodes, logits: Tensor, reference: Tensor
) -> Tensor:
    return probes.expected_table_gradient(penalty(estimator), episodes, logits, 2, reference_SA=reference)


def test_as_a_loss_k1_has_no_gradient_k2_that_of_kl_and_k3_that_of_the_reverse() -> None:
    arms, logits, reference = probes.bandit_episodes(REWARD_A), LOGITS_A.unsqueeze(0), Q_A.unsqueeze(0)
    forward = slope_of(lambda x: kl(x, reference).sum(), logits)
    reverse = slope_of(lambda x: kl(reference, x).sum(), logits)
    assert equal(loss_gradient(divergences.k1, arms, logits, reference), torch.zeros(1, 3))
    assert equal(loss_gradient(divergences.k2, arms, logits, reference), forward)
    assert equal(loss_gradient(divergences.k3, arms, logits, reference), reverse)
    assert not equal(forward, reverse, 0.01)


def test_on_sequences_k2_holds_fixed_how_often_a_prefix_is_visited() -> None:
    """E[g] = sum_s visits(s) d KL(pi(.|s) || ref(.|s)); the gradient of the whole KL also moves the visits."""
    words_here, table, reference = words(), WORD_LOGITS, OTHER_LOGITS
    chance = words_here.logp(table).exp().unsqueeze(-1) * words_here.mask
    visits = torch.zeros(3, dtype=torch.float64).index_add_(0, words_here.state.flatten(), chance.flatten())
    expected = slope_of(lambda x: (visits * kl(x, reference)).sum(), table)
    assert equal(loss_gradient(divergences.k2, words_here, table, reference), expected)
    assert not equal(expected, slope_of(lambda x: whole_kl(words_here, x, reference), table), 0.01)


def whole_kl(episodes: probes.AllEpisodes, logits: Tensor, reference: Tensor) -> Tensor:
    """KL between the distributions of whole sequences."""
    logp = episodes.logp(logits)
    return (logp.exp() * (logp - episodes.logp(reference))).sum()


@pytest.mark.parametrize("base", [recipes.rloo(), policy()], ids=["rloo", "no baseline"])
def test_kl_in_the_reward_has_the_whole_gradient(base: Recipe) -> None:
    """E[g] = d (E[R] - beta KL(pi || ref)), over bandits and sequences alike."""
    recipe = replace(base, credit=(KlInReward(0.3), *base.credit), copies={"reference": Copy(of="actor")})
    arms = probes.bandit_episodes(REWARD_A)
    for episodes, logits, reference in (
        (words(), WORD_LOGITS, OTHER_LOGITS),
        (arms, LOGITS_A.unsqueeze(0), Q_A.unsqueeze(0)),
    ):
        exact = probes.exact_table_gradient(episodes, logits)
        exact = exact - 0.3 * slope_of(lambda x, e=episodes, r=reference: whole_kl(e, x, r), logits)
        seen = probes.compare(recipe, episodes, logits, 2, reference_SA=reference, exact=exact)
        assert equal(seen.bias, torch.zeros_like(logits))
