"""The instruments themselves: the loss without a model is the engine's, enumeration gives what calculus gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from assay import recipes
from assay.claims import by_hand, probes
from assay.core.errors import AssayError
from assay.core.recipe import Copy, Recipe, Stage
from assay.core.record import Experience, Loss, Need, Progress, pad
from assay.core.schedules import Linear
from assay.core.slots import View
from assay.core.spaces import Discrete, Spec
from assay.engine.placement import Placement
from assay.models.bodies.table import Table
from assay.models.model import Critic
from assay.parts.aggregations import SequenceSum
from assay.parts.credit.outcome import Constant, OutcomeCredit
from assay.parts.objectives.pathwise import MatchEntropy
from assay.parts.objectives.policy import PolicyGradient
from assay.parts.regularizers.divergence import EntropyBonus, KlToReference
from assay.recipes.presets import TABLE

TABLE_LOGITS = torch.tensor(
    [[0.3, -0.2, 0.5], [-0.5, 0.4, 0.1], [0.1, 0.7, -0.6], [0.0, 0.2, 0.9]], dtype=torch.float64
)
FAMILY = [
    recipes.reinforce, recipes.rloo, recipes.group_reinforce, recipes.grpo, recipes.dr_grpo, recipes.dapo,
    recipes.gspo, recipes.cispo,
    recipes.ppo, recipes.a2c, recipes.dpo, recipes.sft,
]  # fmt: skip


def table(logits: Tensor = TABLE_LOGITS) -> Any:
    return probes.table_of(logits)


def batch() -> Experience:
    """Six rows of up to five columns in three groups of unequal sizes, with holes and padding, acted by another."""
    generator = torch.Generator().manual_seed(7)
    mask = torch.tensor(
        [[1, 1, 1, 0, 0], [1, 0, 1, 1, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0]]
    )
    mask = mask.bool()
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    reward = torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5, 0.25], dtype=torch.float64).unsqueeze(1) * last
    return Experience(
        context={"state": torch.randint(0, 4, mask.shape, generator=generator)},
        action=torch.randint(0, 3, mask.shape, generator=generator),
        mask=mask,
        logp=(-0.5 - torch.rand(mask.shape, generator=generator, dtype=torch.float64)) * mask,
        reward=reward,
        terminal=last,
        truncated=torch.zeros_like(mask),
        group=torch.tensor([4, 4, 4, 9, 9, 2]),
    )


def given(recipe: Recipe, actor: Any, value: nn.Module, reference: Any) -> probes.Probe:
    """`probes.loss` with tensors that these models computed."""
    scored = actor.score(batch(), frozenset({Need.LOGP, Need.ENTROPY}))
    logp_ref = reference.score(batch(), frozenset({Need.LOGP})).logp
    return probes.loss(
        recipe, batch(), scored.logp, entropy=scored.entropy, logp_ref=logp_ref, value=value(batch().context)
    )


# ---------------------------------------------------------------------------------------------------- loss
@pytest.mark.parametrize("base", FAMILY, ids=lambda base: base.__name__)
@pytest.mark.parametrize("micro_batch", [0, 2])
def test_loss_on_tensors_has_the_gradient_that_the_engine_has(base: object, micro_batch: int) -> None:
    recipe = base(TABLE)  # type: ignore[operator]
    actor, reference = table(), table(TABLE_LOGITS.flip(0))
    value: Any = Critic(Table()).build(Spec(Discrete(4), Discrete(3), 1)).double()
    with torch.no_grad():
        value.body.table.copy_(TABLE_LOGITS[:, 0])
    probe = given(recipe, actor, value, reference)
    (mine,) = torch.autograd.grad(probe.loss, actor.body.table, retain_graph=True)
    models = {name: {"value": value, "reference": reference}[name] for name in [*recipe.critics, *recipe.copies]}
    engine = probes.gradient(recipe, batch(), actor, models=models, placement=Placement(micro_batch=micro_batch))
    assert mine.abs().max() > 1e-3
    assert torch.allclose(mine, engine["body.table"], rtol=0, atol=1e-12)


def test_gradient_reaches_logp_entropy_and_value_and_never_the_reference() -> None:
    stage = replace(recipes.ppo().stages[0], regularizers=(EntropyBonus(0.1), KlToReference(0.1)))
    recipe = replace(recipes.ppo(), stages=(stage, recipes.ppo().stages[1]), copies={"reference": Copy(of="actor")})
    leaves = {
        name: torch.full((6, 5), -0.7, dtype=torch.float64).requires_grad_()
        for name in ("logp", "entropy", "logp_ref", "value")
    }
    probe = probes.loss(
        recipe, batch(), leaves["logp"], entropy=leaves["entropy"], logp_ref=leaves["logp_ref"], value=leaves["value"]
    )
    probe.loss.backward()
    assert leaves["logp_ref"].grad is None
    for name in ("logp", "entropy", "value"):
        slope = leaves[name].grad
        assert slope is not None
        assert bool((slope[batch().mask] != 0).any()), name
        assert bool((slope[~batch().mask] == 0).all()), name
    assert set(probe.sums) == {"PolicyGradient", "EntropyBonus", "KlToReference", "value"}
    assert {"advantage", "return", "value", "logp_ref"} <= set(probe.experience.extra)


def test_loss_is_the_sum_of_sums_over_counts() -> None:
    probe = probes.loss(recipes.grpo(), batch(), batch().logp)
    assert float(probe.counts["PolicyGradient"]) == 6
    assert float(probe.loss) == pytest.approx(float(probe.sums["PolicyGradient"]) / 6)
    assert probe.means["ratio"] == pytest.approx(1.0)
    assert probe.metrics["ratio"][1] == batch().mask.sum()


def test_reinforce_by_hand() -> None:
    """Outcomes 1, 0, 2, -1, 0.5, 0.25 without baseline: loss = -(sum of R * sequence log-probability) / 6."""
    recipe = replace(recipes.reinforce(), credit=(OutcomeCredit(Constant()),))
    logp = torch.tensor([[-1.0, -2.0, -3.0, -4.0, -5.0]]).double().expand(6, 5)
    rows = [1.0 * -6, 0.0 * -8, 2.0 * -1, -1.0 * -10, 0.5 * -3, 0.25 * -4]
    assert float(probes.loss(recipe, batch(), logp).loss) == pytest.approx(-sum(rows) / 6)
    weights = probes.decision_weights(recipe, batch(), logp)
    assert torch.allclose(
        weights, torch.tensor([1.0, 0.0, 2.0, -1.0, 0.5, 0.25]).double().unsqueeze(1) * batch().mask / 6
    )


def test_what_stands_where_the_mask_is_false_changes_nothing() -> None:
    junk = torch.full((6, 5), torch.nan, dtype=torch.float64)
    logp = torch.where(batch().mask, -1.0, junk).requires_grad_()
    recipe = replace(recipes.dpo(), stages=(replace(recipes.dpo().stages[0], regularizers=(EntropyBonus(),)),))
    probe = probes.loss(
        recipe,
        batch(),
        logp,
        entropy=torch.where(batch().mask, 0.5, junk),
        logp_ref=torch.where(batch().mask, -1.5, junk),
    )
    probe.loss.backward()
    assert logp.grad is not None
    assert bool(probe.loss.isfinite())
    assert bool(logp.grad.isfinite().all())
    longer = pad(batch(), 9)
    wide = torch.nn.functional.pad(batch().logp, (0, 4), value=3.0)
    short = probes.loss(recipes.grpo(), batch(), batch().logp).loss
    assert float(probes.loss(recipes.grpo(), longer, wide).loss) == pytest.approx(float(short), abs=1e-14)


def test_credit_that_is_there_is_kept() -> None:
    ready = batch().add({"advantage": torch.ones(6, 5, dtype=torch.float64)})
    probe = probes.loss(recipes.group_reinforce(), ready, batch().logp)
    assert probe.experience.extra["advantage"] is ready.extra["advantage"]
    assert float(probe.sums["PolicyGradient"]) == pytest.approx(-float(batch().logp.sum()))


def test_schedules_stand_at_their_start_and_can_be_moved() -> None:
    term = KlToReference(Linear(1.0, 0.0))
    recipe = replace(recipes.group_reinforce(), stages=(Stage("policy", trains=("actor",), regularizers=(term,)),))
    recipe = replace(recipe, credit=(), copies={"reference": Copy(of="actor")})
    logp_ref = batch().logp - 0.3
    start = probes.loss(recipe, batch(), batch().logp, logp_ref=logp_ref)
    half = probes.loss(recipe.at(Progress(step=5, num_steps=10)), batch(), batch().logp, logp_ref=logp_ref)
    assert float(half.loss) == pytest.approx(0.5 * float(start.loss))


def test_a_critic_loss_without_its_model_is_left_out_and_named() -> None:
    ready = batch().add({"advantage": batch().reward, "return": batch().reward})
    probe = probes.loss(recipes.ppo(), ready, batch().logp, entropy=-batch().logp)
    assert probe.left_out == ("value",)
    assert "value" not in probe.sums
    only = probes.loss(recipes.ppo(), ready, batch().logp, value=batch().logp, stage="value")
    assert set(only.sums) == {"value"}


def test_two_terms_of_one_class_keep_their_names() -> None:
    stage = Stage("policy", trains=("actor",), regularizers=(EntropyBonus(0.1), EntropyBonus(0.2, SequenceSum())))
    probe = probes.loss(replace(recipes.rloo(), stages=(stage,)), batch(), batch().logp, entropy=-batch().logp)
    assert list(probe.sums) == ["EntropyBonus", "EntropyBonus 2"]
    assert float(probe.sums["EntropyBonus 2"]) == pytest.approx(2 * float(probe.sums["EntropyBonus"]))


@pytest.mark.parametrize(
    ("recipe", "options", "text"),
    [
        (recipes.grpo(), {"logp": torch.zeros(6, 4)}, "logp has shape"),
        (recipes.ppo(), {}, "entropy="),
        (recipes.ppo(), {"entropy": torch.zeros(6, 5)}, "value="),
        (recipes.dpo(), {}, "logp_ref="),
        (recipes.grpo(), {"stage": "critic"}, "it has policy"),
        (recipes.td3(), {}, "'actor'"),
    ],
)
def test_what_is_missing_is_named(recipe: Recipe, options: dict[str, object], text: str) -> None:
    with pytest.raises(AssayError, match=text):
        probes.loss(recipe, batch(), **{"logp": batch().logp, **options})  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- gradient
def test_gradient_leaves_the_given_actor_as_it_was() -> None:
    actor = table()
    before = actor.body.table.detach().clone()
    first = probes.gradient(recipes.grpo(TABLE), batch(), actor)
    second = probes.gradient(recipes.grpo(TABLE), batch(), actor)
    assert torch.equal(actor.body.table, before)
    assert actor.body.table.grad is None
    assert torch.equal(first["body.table"], second["body.table"])


def test_gradient_is_zero_where_nothing_is_to_be_learnt() -> None:
    empty = replace(batch(), mask=torch.zeros(6, 5, dtype=torch.bool))
    assert torch.equal(probes.gradient(recipes.sft(TABLE), empty, table())["body.table"], torch.zeros(4, 3).double())


def test_models_that_are_missing_or_unknown_are_named() -> None:
    with pytest.raises(AssayError, match="value"):
        probes.gradient(recipes.ppo(), batch(), table())
    with pytest.raises(AssayError, match="'teacher'"):
        probes.gradient(recipes.grpo(), batch(), table(), models={"teacher": table()})


def test_a_given_reference_is_used() -> None:
    same = probes.gradient(recipes.dpo(TABLE), batch(), table())
    other = probes.gradient(recipes.dpo(TABLE), batch(), table(), models={"reference": table(TABLE_LOGITS.flip(1))})
    assert not torch.allclose(same["body.table"], other["body.table"])


# ---------------------------------------------------------------------------------------------------- enumeration
def test_all_token_sequences_are_listed_once() -> None:
    episodes = probes.token_episodes(lambda tokens: float(len(tokens)), num_tokens=3, horizon=3, end=0)
    assert episodes.num_episodes == 1 + 2 + 4 * 3
    assert episodes.num_states == 1 + 2 + 4
    logits = torch.linspace(-1, 1, 21, dtype=torch.float64).view(7, 3).sin()
    assert float(episodes.logp(logits).exp().sum()) == pytest.approx(1.0, abs=1e-14)
    assert torch.equal(episodes.outcome[0], episodes.length[0].double())
    rows = {tuple(a[m].tolist()) for a, m in zip(episodes.action[0], episodes.mask[0], strict=True)}
    assert len(rows) == episodes.num_episodes
    assert all(0 not in row[:-1] for row in rows)


def test_a_record_is_what_a_rollout_would_have_written() -> None:
    episodes = probes.token_episodes(lambda tokens: 1.0 + len(tokens), num_tokens=2, horizon=2, end=0)
    logits = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    record = episodes.record(torch.tensor([[0, 2]]), logits)
    assert record.action.tolist() == [[0, 0], [1, 1]]
    assert record.mask.tolist() == [[True, False], [True, True]]
    assert record.terminal.tolist() == [[True, False], [False, True]]
    assert record.reward.tolist() == [[2.0, 0.0], [0.0, 3.0]]
    assert record.context["state"].tolist() == [[0, 0], [0, 1]]
    assert torch.allclose(record.logp.exp(), torch.tensor([[0.5, 1.0], [0.5, 0.7310585786]]).double())


def test_exact_gradients_agree_with_each_other_and_with_differences() -> None:
    logits, reward = TABLE_LOGITS[0], torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    exact = probes.exact_bandit_gradient(logits, reward)
    assert torch.allclose(exact, probes.exact_table_gradient(probes.bandit_episodes(reward), logits.unsqueeze(0))[0])
    step = 1e-6 * torch.eye(3, dtype=torch.float64)
    value = ((logits + step).softmax(-1) * reward).sum(-1) - ((logits - step).softmax(-1) * reward).sum(-1)
    assert torch.allclose(exact, value / 2e-6, atol=1e-9)


def test_one_pull_moves_against_the_sign_of_the_loss() -> None:
    """bandit_grad = -r * (e_arm - pi) without a baseline, and 0 with a group of one."""
    plain = replace(recipes.reinforce(), credit=(OutcomeCredit(Constant()),))
    expected = -2.0 * (torch.tensor([0.0, 1.0, 0.0]) - TABLE_LOGITS[0].softmax(-1))
    assert torch.allclose(probes.bandit_grad(plain, TABLE_LOGITS[0].float(), arm=1, reward=2.0), expected, atol=1e-7)
    assert not probes.bandit_grad(recipes.group_reinforce(), TABLE_LOGITS[0], arm=1, reward=2.0).any()


def test_pulls_as_experience() -> None:
    pulls = probes.bandit_experience([2, 0, 1, 1], [1.0, 0.0, 0.5, 0.5], torch.zeros(3), members=2)
    assert pulls.group is not None
    assert pulls.group.tolist() == [0, 0, 1, 1]
    assert torch.allclose(pulls.logp.exp(), torch.full((4, 1), 1 / 3).double())
    with pytest.raises(AssayError, match="whole groups"):
        probes.bandit_experience([0, 1, 2], [0.0, 0.0, 0.0], torch.zeros(3), members=2)


def test_compare_measures_bias_direction_and_noise() -> None:
    episodes = probes.bandit_episodes(torch.tensor([1.0, 0.0, -1.0]))
    objective = PolicyGradient(aggregate=SequenceSum())
    recipe = replace(recipes.rloo(), stages=(Stage("policy", trains=("actor",), objective=(objective,)),))
    seen = probes.compare(recipe, episodes, TABLE_LOGITS[0], 2)
    assert torch.equal(seen.bias, seen.expected - seen.exact)
    assert seen.cosine == pytest.approx(1.0)
    assert seen.scale == pytest.approx(1.0)
    total = probes.gradient_variance(recipe, TABLE_LOGITS[0], torch.tensor([1.0, 0.0, -1.0]), 2)
    assert torch.equal(seen.variance[0], total)


def test_too_many_draws_are_refused_before_they_are_tried() -> None:
    with pytest.raises(AssayError, match="fewer members"):
        probes.expected_gradient(recipes.rloo(), torch.zeros(10), torch.zeros(10), members=8)


# ---------------------------------------------------------------------------------------------------- values
def test_values_solve_bellman_and_end_at_terminal_states() -> None:
    """Two states before an end: V(1) = 0.5 * 2 + 0.5 * (0 + 0.9 V(0)), V(0) = 0.9 V(1)."""
    P = torch.zeros(3, 2, 3, dtype=torch.float64)
    P[0, :, 1] = 1.0
    P[1, 0, 2] = P[1, 1, 0] = P[2, :, 2] = 1.0
    R = torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]], dtype=torch.float64)
    policy = torch.full((3, 2), 0.5, dtype=torch.float64)
    value = probes.evaluate_table(P, R, policy, 0.9, terminal_S=torch.tensor([False, False, True]))
    first = 0.9 / (1 - 0.5 * 0.81)
    assert torch.allclose(value, torch.tensor([first, first / 0.9, 0.0], dtype=torch.float64))
    with pytest.raises(AssayError, match="discount=1"):
        probes.evaluate_table(P, R, policy, 1.0)


def test_uneven_sequences_hold_what_equal_ones_hide() -> None:
    data = probes.graded()
    assert data.group is not None
    sizes = torch.bincount(data.group[data.mask.any(1)]).tolist()
    assert sizes == [4, 7, 2, 5, 2]
    assert {5, 400} <= set(data.mask.sum(1).tolist())
    outcome = by_hand.outcome(data)
    assert set(outcome.tolist()) == {0.0, 0.25, 0.5, 0.75, 1.0}
    away = by_hand.centred(data)
    first = by_hand.rows_of_groups(data)[0]
    assert (away[first] == 0).tolist() == [False, True, False, True], "two answers are exactly at their group's mean"
    assert set(by_hand.outcome(probes.signed())[:-1].tolist()) == {-1.0, 1.0}
    assert set(by_hand.outcome(probes.binary()).tolist()) == {0.0, 1.0}


def test_the_gap_of_several_data_is_the_largest() -> None:
    def loss(seen: probes.Seen) -> torch.Tensor:  # right only where every group has four answers
        advantage = by_hand.standardised(seen.experience)
        return by_hand.grpo_loss(seen, advantage) * (1.0 if len(advantage) == 16 else 2.0)

    assert probes.formula_gap(recipes.grpo(), (probes.sequences,), loss) < 1e-9
    assert probes.formula_gap(recipes.grpo(), (probes.sequences, probes.graded), loss) == pytest.approx(0.5)


def test_templated_answers_begin_at_different_columns_after_a_start_token_and_a_template() -> None:
    data = probes.templated()
    there = data.mask.any(1)
    first = data.mask.long().argmax(1)[there]
    assert len(first.unique()) == 4  # one for each prompt
    assert int(first.min()) > len("<|user|><|end|><|assistant|>")
    assert not data.mask[:, -1].any()
    assert bool((data.truncated | data.terminal)[there].any(1).all())
    assert data.truncated.any()
    assert not there[-1]
    assert set(by_hand.outcome(data).tolist()) == {0.0, 1.0}
    assert {probes.templated} <= set(probes.ANY_OUTCOME) & set(probes.UNIT_OUTCOME) & set(probes.RIGHT_OR_WRONG)


@dataclass(frozen=True)
class GraphKept(MatchEntropy):
    """Reports the temperature with its gradient."""

    not_a_part: ClassVar[str] = "a mistake"

    def __call__(self, batch: Experience, view: View) -> Loss:
        loss = super().__call__(batch, view)
        return replace(loss, metrics={"temperature": (view.model(self.temperature)(), loss.count)})


def test_reports_that_differ_are_missing_or_carry_a_gradient_are_seen() -> None:
    sac = recipes.sac()

    def gap(told: Callable[[Tensor], dict[str, Tensor]], recipe: Recipe = sac) -> float:
        def report(seen: probes.Seen) -> dict[str, Tensor]:
            return told(seen.models["temperature"].log_value.exp())

        return probes.formulas.report_gap(recipe, probes.transitions, report, probes.BOX_SPEC)

    assert gap(lambda right: {"temperature": right}) < 1e-6
    assert gap(lambda right: {"temperature": right + 3.0}) > 0.1
    assert gap(lambda right: {"temperature": right, "another": right}) == float("inf")
    kept = replace(sac.stages[1], objective=(*sac.stages[1].objective[:1], GraphKept()))
    assert gap(lambda right: {"temperature": right}, replace(sac, stages=(sac.stages[0], kept))) == float("inf")
