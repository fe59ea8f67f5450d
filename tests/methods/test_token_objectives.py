"""rec, nft, clip-cov and rover: the maths against slow references, and what happens at the edges."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Scored
from assay.engine.engine import Engine
from assay.engine.loop import Loop
from assay.engine.placement import Placement
from assay.methods import clip_cov, nft, rec, rover
from assay.methods.clip_cov.credit import DropHighCovariance, MarkHighCovariance, covariance_of
from assay.methods.nft.credit import PopulationDeviation
from assay.methods.nft.objectives import NegativeAware, odds_of_centred, odds_of_scaled
from assay.methods.rec.credit import DropSurplusNegatives
from assay.methods.rec.objectives import (
    Even,
    EveryDecision,
    ExpAdvantage,
    Importance,
    Keeps,
    MaskedScore,
    OneSide,
    Ring,
    TwoSide,
    Weight,
)
from assay.methods.rover.objectives import UniformLogp, UniformValue, needed
from assay.models.heads.categorical import SoftmaxTable
from assay.ops import distributions, divergences
from assay.parts.credit.outcome import GroupMean, OutcomeCredit
from assay.parts.objectives.trust import Clip
from assay.parts.regularizers.behaviour import KlToBehaviour, KlWhereMarked, forward
from assay.proof.laws.cases import CHOICES, RAGGED, TOKENS, build
from assay.recipes.defaults import CONTROL, LANGUAGE, TABLE
from assay.runs import catalogue

RATIOS = [0.1, 0.39, 0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 2.5, 3.1]
KEYS = ["rec", "nft", "clip-cov", "rover"]


def slope_of(trust: object, log_ratio: Tensor, advantage: Tensor) -> Tensor:
    """d loss / d logp of each decision, for an old log-probability of -1."""
    logp = (log_ratio - 1.0).requires_grad_()
    loss, _ = trust(logp + 1.0, advantage, logp)  # type: ignore[operator]
    (slope,) = torch.autograd.grad(loss.sum(), logp)
    return slope


def ragged() -> Experience:
    """Token rows of different lengths with outcomes 0 and 1 in groups of 1, 2 and 4."""
    batch = build(TOKENS, RAGGED)
    last = batch.mask & (batch.mask.long().flip(1).cumsum(1).flip(1) == 1)
    right = torch.tensor([1.0, 0, 0, 1, 1, 0, 0], dtype=torch.float64)
    return replace(batch, reward=last * right.unsqueeze(1))


def empty() -> Experience:
    batch = ragged()
    return replace(batch, mask=torch.zeros_like(batch.mask))


# ---------------------------------------------------------------------------------------------------- rec
def kept_by_hand(keeps: Keeps, ratio: float, advantage: float) -> bool:
    inside = 0.8 <= ratio <= 1.2
    if isinstance(keeps, TwoSide):
        return inside
    if isinstance(keeps, Ring):
        return inside or (advantage >= 0 and ratio <= 0.4) or (advantage <= 0 and ratio >= 3.0)
    if isinstance(keeps, OneSide):
        return not (advantage > 0 and ratio > 1.2) and not (advantage < 0 and ratio < 0.8)
    return True


def weight_by_hand(weight: Weight, ratio: float, advantage: float) -> float:
    if isinstance(weight, Importance):
        return ratio
    return math.exp(advantage / weight.temperature) if isinstance(weight, ExpAdvantage) else 1.0


@pytest.mark.parametrize("keeps", [EveryDecision(), OneSide(), TwoSide(), Ring()])
@pytest.mark.parametrize("weight", [Even(), Importance(), ExpAdvantage(0.5)])
def test_every_mask_goes_with_every_weight(keeps: Keeps, weight: Weight) -> None:
    ratio = torch.tensor(RATIOS, dtype=torch.float64)
    for size in (0.7, 0.0, -0.7):
        advantage = torch.full_like(ratio, size)
        found = slope_of(MaskedScore(keeps, weight), ratio.log(), advantage)
        expected = [-size * weight_by_hand(weight, r, size) * kept_by_hand(keeps, r, size) for r in RATIOS]
        assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64))


def test_one_side_with_importance_has_the_gradient_of_the_clip() -> None:
    log_ratio = torch.linspace(-2.0, 2.0, 41, dtype=torch.float64).repeat(2, 1)
    advantage = torch.tensor([[1.3], [-0.4]], dtype=torch.float64).expand_as(log_ratio)
    ours, theirs = (slope_of(one, log_ratio, advantage) for one in (MaskedScore(OneSide(), Importance()), Clip()))
    assert torch.allclose(ours, theirs)


def test_what_the_mask_leaves_out_has_a_value_but_no_gradient() -> None:
    logp = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    loss, cut = MaskedScore()(logp, torch.ones(1, dtype=torch.float64), logp)
    assert bool(cut)
    assert float(loss.detach()) == -1.0
    assert float(torch.autograd.grad(loss.sum(), logp)[0]) == 0.0


def test_a_forward_kl_to_who_acted_is_a_lower_baseline() -> None:
    """AsymRE."""
    plain = rec.recipe(keeps=EveryDecision())
    even = probes.credited(plain, rec.PULLS)
    raised = even.add({"advantage": even.column("advantage") + 0.1})
    asymre = rec.recipe(keeps=EveryDecision(), penalty=(KlToBehaviour(0.1, forward),))
    logp = rec.MOVED.clone().requires_grad_()
    (slope,) = torch.autograd.grad(probes.loss(asymre, rec.PULLS, logp).loss, logp)
    assert torch.allclose(-slope, probes.decision_weights(plain, raised, rec.MOVED))


def test_opmd_pulls_in_proportion_to_the_log_ratio() -> None:
    opmd = rec.recipe(keeps=EveryDecision(), penalty=(KlToBehaviour(0.3, divergences.k2),))
    logp = rec.MOVED.clone().requires_grad_()
    (slope,) = torch.autograd.grad(probes.loss(opmd, rec.PULLS, logp).loss, logp)
    credited = probes.credited(opmd, rec.PULLS)
    expected = (-credited.column("advantage") + 0.3 * (rec.MOVED - rec.PULLS.logp)) / len(rec.PULLS)
    assert torch.allclose(slope, expected)


def test_dropping_leaves_as_many_negatives_as_others() -> None:
    batch = probes.bandit_experience([0] * 8, [1.0, 0, 0, 0, 1.0, 1.0, 1.0, 0], torch.zeros(2), members=4)
    batch = batch.add({"start": batch.group, "sample": torch.arange(8) % 4})  # type: ignore[dict-item]
    kept = DropSurplusNegatives()(batch).mask[:, 0]
    assert int(kept[:4].sum()) == 2
    assert bool(kept[0])
    assert bool(kept[4:].all())
    credited = OutcomeCredit(GroupMean())(DropSurplusNegatives()(batch)).column("advantage")[:4, 0]
    assert sorted(credited.tolist()) == [-0.5, 0.0, 0.0, 0.5]


def test_which_negatives_are_dropped_differs_between_starts() -> None:
    rewards = [1.0, 0, 0, 0] * 50
    batch = probes.bandit_experience([0] * 200, rewards, torch.zeros(2), members=4)
    batch = batch.add({"start": batch.group, "sample": torch.arange(200) % 4})  # type: ignore[dict-item]
    kept = DropSurplusNegatives()(batch).mask.view(50, 4)
    assert bool((kept.sum(1) == 2).all())
    share = kept[:, 1:].double().mean(0)
    assert float(share.min()) > 0.1
    assert float(share.max()) < 0.6


@pytest.mark.parametrize("reward", [[0.1, 0.1, 0.1], [1.0, 1.0, 1.0]])
def test_equal_outcomes_drop_nothing(reward: list[float]) -> None:
    batch = probes.bandit_experience([0, 1, 0], reward, torch.zeros(2))
    batch = batch.add({"start": batch.group, "sample": torch.arange(3)})  # type: ignore[dict-item]
    assert bool(DropSurplusNegatives()(batch).mask.all())


# ---------------------------------------------------------------------------------------------------- nft
def nft_slopes_by_hand(batch: Experience, logp: Tensor, floor: float, centred: bool) -> Tensor:
    """-d loss / d logp of a sum over tokens, prompt by prompt and token by token, from the paper's formula."""
    assert batch.group is not None
    outcome, result = (batch.reward * batch.mask).sum(1), torch.zeros_like(logp)
    for row in range(len(batch)):
        members = [r for r in range(len(batch)) if batch.group[r] == batch.group[row] and bool(batch.mask[r].any())]
        rate = sum(float(outcome[r]) for r in members) / max(1, len(members))
        if not members or rate in (0.0, 1.0):
            continue
        weight = 1 - rate if centred else math.sqrt((1 - rate) / rate)
        for time in batch.mask[row].nonzero().squeeze(1).tolist():
            ratio = math.exp(float(logp[row, time] - batch.logp[row, time]))
            if float(outcome[row]) > 0:
                result[row, time] = weight
            else:
                implicit = max((1 - rate * ratio) / (1 - rate), floor)
                result[row, time] = -weight * rate / (1 - rate) * ratio / implicit
    return result


@pytest.mark.parametrize("floor", [1.0, 0.3])
@pytest.mark.parametrize("centred", [False, True])
def test_negative_aware_is_the_formula_of_the_paper(floor: float, centred: bool) -> None:
    batch = ragged()
    logp = (batch.logp + 0.4 * torch.sin(torch.arange(batch.mask.numel()).double().view_as(batch.logp))) * batch.mask
    credit = OutcomeCredit(GroupMean()) if centred else OutcomeCredit(GroupMean(), PopulationDeviation())
    trust = NegativeAware(odds_of_centred if centred else odds_of_scaled, floor)
    base = nft.recipe()
    objective = replace(base.stages[0].objective[0], trust=trust)  # type: ignore[type-var, call-arg]
    base = replace(base, credit=(credit,), stages=(replace(base.stages[0], objective=(objective,)),))
    bare = replace(batch, extra={})  # as it comes from a rollout: the credit is the recipe's
    weights = probes.decision_weights(base, bare, logp) * int(batch.mask.sum())
    assert torch.allclose(weights, nft_slopes_by_hand(batch, logp, floor, centred))
    assert bool((weights < 0).any())
    assert bool((weights > 0).any())


def test_without_negatives_only_right_answers_learn() -> None:
    weights = probes.decision_weights(nft.recipe(negative=0.0), nft.PULLS, nft.MOVED)
    assert torch.equal(weights != 0, nft.PULLS.reward > 0)


def test_a_wrong_answer_is_pushed_less_the_less_likely_it_has_become() -> None:
    log_ratio = torch.tensor([0.0, -0.5, -1.0, -4.0], dtype=torch.float64)
    slope = slope_of(NegativeAware(), log_ratio, torch.full((4,), -2.0, dtype=torch.float64))
    assert bool((slope.diff() < 0).all())
    assert float(slope[0]) == 2.0
    assert float(slope[-1]) > 0


@pytest.mark.parametrize("rewards", [[1.0], [0.0, 0.0, 0.0], [1.0, 1.0]])
def test_groups_that_do_not_differ_teach_nothing(rewards: list[float]) -> None:
    batch = probes.bandit_experience([0] * len(rewards), rewards, torch.zeros(2))
    assert not probes.decision_weights(nft.recipe(), batch, batch.logp + 0.2).any()


def test_population_deviation_is_of_the_pass_rate() -> None:
    batch = nft.PULLS
    scale = PopulationDeviation()(batch.reward[:, 0], batch)
    assert torch.allclose(scale, torch.full((8,), math.sqrt(3) / 4, dtype=torch.float64))


# ---------------------------------------------------------------------------------------------------- clip-cov
def with_advantage(batch: Experience) -> Experience:
    return OutcomeCredit(GroupMean())(batch)


def test_covariances_sum_to_that_of_the_batch() -> None:
    batch = with_advantage(ragged())
    pairs = torch.stack([batch.logp[batch.mask], batch.column("advantage")[batch.mask]])
    total = covariance_of(batch).sum() / batch.mask.sum()
    assert torch.allclose(total, torch.cov(pairs, correction=0)[0, 1])


@pytest.mark.parametrize(("share", "num"), [(1e-6, 1), (0.1, 2), (0.2, 4)])
def test_the_largest_covariances_are_marked(share: float, num: int) -> None:
    batch = with_advantage(ragged())
    assert int(batch.mask.sum()) == 24
    marked = MarkHighCovariance(share)(batch).column("high_covariance")
    covariance = covariance_of(batch)
    assert int(marked.sum()) == num
    assert float(covariance[marked].min()) > float(covariance[batch.mask & ~marked].max())


def test_dropped_decisions_are_a_share_of_those_in_the_band() -> None:
    batch = with_advantage(ragged())
    part = DropHighCovariance(share=0.1, low=0.01, high=5.0)
    after = part(batch)
    dropped, covariance = after.column("dropped"), covariance_of(batch)
    assert int(dropped.sum()) == 2
    assert bool(((covariance[dropped] > 0.01) & (covariance[dropped] < 5.0)).all())
    assert not after.column("advantage")[dropped].any()
    assert torch.equal(after.column("advantage")[~dropped], batch.column("advantage")[~dropped])


@pytest.mark.parametrize("part", [DropHighCovariance(0.5, 0.0, 9.0), MarkHighCovariance(0.5)])
def test_without_advantages_nothing_is_selected(part: DropHighCovariance | MarkHighCovariance) -> None:
    for batch in (ragged(), empty()):
        even = batch.add({"advantage": torch.zeros_like(batch.logp)})
        after = part(even)
        assert not (after.extra.get("dropped", after.extra.get("high_covariance"))).any()  # type: ignore[union-attr]


def test_the_penalty_is_on_marked_decisions_alone() -> None:
    batch = MarkHighCovariance(0.2)(with_advantage(ragged()))
    marked = batch.column("high_covariance")
    logp = (batch.logp + 0.3).requires_grad_()
    loss = KlWhereMarked(2.0)(batch, probes.tensors.TensorView(Scored(logp), {}))
    (slope,) = torch.autograd.grad(loss.sum, logp)
    assert torch.equal(slope, 2.0 * marked.double())
    assert int(loss.count) == int(batch.mask.sum())


def test_kl_cov_at_the_acting_policy_has_no_penalty() -> None:
    batch = MarkHighCovariance(0.2)(with_advantage(ragged()))
    logp = batch.logp.clone().requires_grad_()
    loss = KlWhereMarked()(batch, probes.tensors.TensorView(Scored(logp), {}))
    assert not torch.autograd.grad(loss.sum, logp)[0].any()


def test_kl_cov_trains() -> None:
    task = catalogue.find_task("addition-1")
    recipe = clip_cov.watched(clip_cov.kl_cov()).set("rollout.num_starts", 4).set("actor.width", 16)
    step = Loop(recipe, task, seed=0, num_steps=1).step()
    assert not step.alarms
    assert "marked" in step.metrics
    assert step.metrics["entropy"] > 0


# ---------------------------------------------------------------------------------------------------- rover
def rover_loss_by_hand(batch: Experience, new: Tensor, old: Tensor, temperature: float, scale: float) -> float:
    """Token by token from the paper's formula; `new` and `old` are logits [B, T, V]."""
    total = 0.0
    for row, time in batch.mask.nonzero().tolist():
        moved = (new.log_softmax(-1) - old.log_softmax(-1))[row]
        follows = time + 1 < batch.num_columns and bool(batch.mask[row, time + 1])
        follows = follows and not bool(batch.terminal[row, time] | batch.truncated[row, time])
        after = float(moved[time + 1].mean()) if follows else 0.0
        target = float(batch.column("advantage")[row, time]) + scale * temperature * after
        total += (temperature * float(moved[time, batch.action[row, time]]) - target) ** 2 / 2
    return total


@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 1.0), (0.5, 1.0), (2.0, 0.3), (1.0, 0.0)])
def test_uniform_value_is_the_bellman_error_of_the_uniform_policy(temperature: float, scale: float) -> None:
    batch = with_advantage(build(CHOICES, replace(RAGGED, rows=tuple(row.replace("p", "d") for row in RAGGED.rows))))
    shape = (*batch.mask.shape, 3)
    new, old = (torch.sin(k * torch.arange(math.prod(shape)).double()).view(shape) for k in (1.1, 2.3))
    logp, logp_old = (one.log_softmax(-1).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1) for one in (new, old))
    batch = replace(batch, logp=logp_old * batch.mask).add({"uniform_logp_old": distributions.uniform_logp(old) * batch.mask})
    leaf = logp.detach().requires_grad_()
    part = UniformValue(temperature, scale)
    loss = part(batch, probes.tensors.TensorView(Scored(leaf, uniform=distributions.uniform_logp(new)), {}))
    assert float(loss.sum.detach()) == pytest.approx(rover_loss_by_hand(batch, new.detach(), old, temperature, scale))
    (slope,) = torch.autograd.grad(loss.sum, [leaf])
    assert bool(slope[batch.mask].any())
    assert not slope[~batch.mask].any()


def test_forbidden_tokens_are_no_choice_of_the_uniform_policy() -> None:
    logits = torch.tensor([[[1.0, 0.0, -1e9, 2.0]]])
    found = distributions.uniform_logp(logits)
    assert torch.allclose(found, logits[..., [0, 1, 3]].log_softmax(-1).mean(-1))


def test_the_old_column_is_that_of_the_policy_that_acted() -> None:
    recipe = rover.recipe(TABLE)
    engine = Engine(recipe, catalogue.find_task("chain").spec, 0, Placement(micro_batch=3))
    loop = Loop(recipe, catalogue.find_task("chain"), seed=0, num_steps=1)
    fresh = loop.step().fresh
    assert fresh is not None
    noted = fresh.column("uniform_logp_old")
    actor = engine.models["actor"]
    assert isinstance(actor, SoftmaxTable)
    logits = actor.score(fresh, frozenset({Need.LOGITS})).logits
    assert logits is not None
    assert torch.allclose(noted, logits.log_softmax(-1).mean(-1) * fresh.mask)
    again = engine.annotate(replace(fresh, extra={}), frozenset({UniformLogp()}))
    assert torch.equal(noted, again.column("uniform_logp_old"))


def test_on_policy_its_expected_gradient_is_not_zero() -> None:
    assert (
        float(probes.expected_table_gradient(rover.recipe(), rover.EPISODES, rover.LOGITS_SA, members=2).norm()) > 0.1
    )


def test_continuous_actions_are_refused() -> None:
    task = catalogue.find_task("pendulum")
    with pytest.raises(AssayError, match="works in these worlds"):
        catalogue.recipe_for("rover", task, {})
    with pytest.raises(AssayError, match="discrete actions"):
        needed(None)


# ---------------------------------------------------------------------------------------------------- all
@pytest.mark.parametrize("key", KEYS)
def test_an_empty_mask_gives_no_step(key: str) -> None:
    recipe = catalogue.methods()[key].recipe(LANGUAGE)
    batch = recipe.credit[0](empty())
    for part in recipe.credit[1:]:
        batch = part(batch)
    term = recipe.stages[0].objective[0]
    batch = batch.add({"uniform_logp_old": torch.zeros_like(batch.logp)})
    logits = torch.zeros(*batch.mask.shape, 7, dtype=torch.float64)
    loss = term(batch, probes.tensors.TensorView(Scored(batch.logp, logits=logits, uniform=batch.logp), {}))
    assert float(loss.sum) == 0.0
    assert int(loss.count) == 0


@pytest.mark.parametrize("key", KEYS)
def test_the_same_parts_serve_tokens_and_control(key: str) -> None:
    recipe = catalogue.methods()[key].recipe
    tokens, control = ([type(term) for term in recipe(world).stages[0].terms] for world in (LANGUAGE, CONTROL))
    assert tokens == control


@pytest.mark.parametrize("key", KEYS)
def test_finds_the_best_arm_of_a_bandit(key: str) -> None:
    task = catalogue.find_task("bandit")
    loop = Loop(catalogue.recipe_for(key, task, {}), task, seed=0, num_steps=60)
    for _ in range(60):
        loop.step()
    assert float(loop.actor.body.table.detach().softmax(-1)[0, -1]) > 0.8


def test_variants_of_rec_are_grpo_and_reinforce_by_their_numbers() -> None:
    batch = rec.PULLS
    plain = probes.decision_weights(rec.recipe(keeps=EveryDecision()), batch, rec.MOVED)
    theirs = probes.decision_weights(recipes.group_reinforce(), batch, rec.MOVED)
    assert torch.allclose(plain, theirs)
