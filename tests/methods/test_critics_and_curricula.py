"""Macro actions, classified values, mirror descent, and sources as arms, against slow references."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from assay import recipes
from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Progress
from assay.core.slots import Scene
from assay.engine.loop import Loop
from assay.methods.dump.curriculum import SourceBandit
from assay.methods.hl_gauss.base import hl_gauss
from assay.methods.hl_gauss.bins import gaussian_labels, two_hot_labels
from assay.methods.hl_gauss.fits import CrossEntropy, HlGauss, cross_entropy
from assay.methods.ma_rlhf.credit import FallingPerplexity, SegmentGae, Spans
from assay.methods.mdpo.objectives import MirrorDescent
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bins import Bins, decoded
from assay.models.heads.value import Greedy, Value
from assay.models.model import Critic, Policy
from assay.parts.credit.temporal import Gae
from assay.parts.critics.td import Td
from assay.parts.objectives.trust import NoTrust
from assay.parts.predictions import OfState
from assay.parts.targets.recorded import Column
from assay.proof.laws.cases import EPISODES, FRAGMENTS, NUMBERED, RAGGED, TOKENS, TORQUES, build, with_rewards
from assay.recipes.defaults import CONTINUOUS, CONTROL, LANGUAGE, TABLE
from assay.runs import catalogue
from assay.tasks.language.mixture import Mixture, mixture
from assay.tasks.language.sorting import sorting
from assay.tasks.language.textfile import textfile


BATCHES = {
    "tokens": build(TOKENS, RAGGED),
    "fragments": build(TORQUES, FRAGMENTS),
    "episodes": build(TORQUES, EPISODES),
}
EVERY_BATCH = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)


# ------------------------------------------------------------------------------------------------- macro actions
def macro_gae(batch: Experience, length: int, discount: float, decay: float) -> Tensor:
    """The paper's recursion on the shorter sequence of macro actions, row by row and episode by episode."""
    advantage = torch.zeros_like(batch.reward)
    for row in range(len(batch)):
        episode: list[int] = []
        columns = batch.mask[row].nonzero().flatten().tolist()
        for place, t in enumerate(columns):
            episode.append(t)
            over = bool(batch.terminal[row, t] | batch.truncated[row, t])
            if over or place + 1 == len(columns):
                one_episode(batch, row, episode, length, discount, decay, advantage)
                episode = []
    return advantage


def one_episode(
    batch: Experience, row: int, columns: list[int], length: int, discount: float, decay: float, advantage: Tensor
) -> None:
    value, reward = batch.column("value")[row], batch.reward[row]
    macros = [columns[begin : begin + length] for begin in range(0, len(columns), length)]
    last = columns[-1]
    after = 0.0
    if not bool(batch.terminal[row, last]) and last + 1 < batch.num_columns:
        after = float(value[last + 1])
    later = 0.0
    for macro in reversed(macros):
        total = sum(discount**i * float(reward[t]) for i, t in enumerate(macro))
        faded = discount ** len(macro)
        later = total + faded * after - float(value[macro[0]]) + faded * decay * later
        advantage[row, macro] = later
        after = float(value[macro[0]])


@EVERY_BATCH
@pytest.mark.parametrize("length", [1, 2, 3, 5, 100])
def test_segment_credit_is_gae_on_the_sequence_of_macro_actions(batch: Experience, length: int) -> None:
    credited = SegmentGae(0.9, 0.7)(Spans(length)(batch))
    torch.testing.assert_close(credited.column("advantage"), macro_gae(batch, length, 0.9, 0.7), rtol=0, atol=1e-12)


@EVERY_BATCH
def test_single_decisions_are_gae_with_and_without_the_column(batch: Experience) -> None:
    plain = Gae(0.9, 0.7)(batch)
    for single in (Spans(1)(batch), replace(batch, segment=None)):
        credited = SegmentGae(0.9, 0.7)(single)
        for name in ("advantage", "return"):
            torch.testing.assert_close(credited.column(name), plain.column(name), rtol=0, atol=1e-12)


@EVERY_BATCH
def test_without_discount_decay_happens_once_a_segment(batch: Experience) -> None:
    """The staircase: token TD errors, weighed by decay^(segments in between)."""
    split = Spans(3)(batch)
    assert split.segment is not None
    steps = Gae(1.0, 0.0)(batch).column("advantage")
    found = SegmentGae(1.0, 0.6)(split).column("advantage")
    for row in range(len(batch)):
        over = (batch.terminal[row] | batch.truncated[row]) & batch.mask[row]
        episode = over.long().cumsum(0) - over.long()
        for t in batch.mask[row].nonzero().flatten().tolist():
            here = split.segment[row, t]
            later = batch.mask[row] & (split.segment[row] >= here) & (episode == episode[t])
            weight = 0.6 ** (split.segment[row] - here).double()
            assert found[row, t] == pytest.approx(float((steps[row] * weight * later).sum()), abs=1e-12)


def test_with_decay_1_every_state_learns_its_own_return() -> None:
    batch = BATCHES["fragments"]
    found = SegmentGae(0.9, 1.0)(Spans(3)(batch)).column("return")
    torch.testing.assert_close(found, Gae(0.9, 1.0)(batch).column("return"), rtol=0, atol=1e-12)


def test_spans_begin_anew_with_each_episode_and_stay_in_the_row() -> None:
    split = Spans(2)(BATCHES["fragments"])
    assert split.segment is not None
    first = split.segment[0][split.mask[0]].tolist()  # dddEfdddf: four decisions, then three
    assert first == [1, 1, 2, 2, 3, 3, 4]


def test_perplexity_segments_rise_where_the_reference_is_more_surprised() -> None:
    batch = BATCHES["tokens"]
    split = FallingPerplexity()(batch)
    assert split.segment is not None
    for row in range(len(batch)):
        logp = batch.column("logp_ref")[row][batch.mask[row]].tolist()
        expected, number = [], 0
        for place, value in enumerate(logp):
            number += place == 0 or value < logp[place - 1]
            expected.append(number)
        assert split.segment[row][batch.mask[row]].tolist() == expected


def test_segments_of_nothing_get_nothing() -> None:
    batch = BATCHES["tokens"]
    empty = replace(batch, mask=torch.zeros_like(batch.mask))
    assert not SegmentGae()(Spans()(empty)).column("advantage").any()


def test_all_truncated_bootstraps_and_equal_rewards_are_finite() -> None:
    batch = with_rewards(BATCHES["episodes"], lambda reward: torch.ones_like(reward))
    cut = replace(batch, terminal=torch.zeros_like(batch.terminal), truncated=batch.terminal | batch.truncated)
    found = SegmentGae(0.9, 0.7)(Spans(2)(cut)).column("advantage")
    torch.testing.assert_close(found, macro_gae(cut, 2, 0.9, 0.7), rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------- bins
BINS = Bins(-4.0, 36.0, 101)


def test_labels_are_distributions_for_every_number() -> None:
    numbers = torch.tensor([-1e30, -4.0, 0.0, 17.3, 36.0, 1e30], dtype=torch.float32)
    for labels in (gaussian_labels(numbers, BINS, 0.75), two_hot_labels(numbers, BINS)):
        assert bool(torch.isfinite(labels).all())
        assert bool((labels >= 0).all())
        torch.testing.assert_close(labels.sum(-1), torch.ones(6))


def test_gaussian_labels_are_integrals_of_the_normal_density() -> None:
    label = gaussian_labels(torch.tensor(3.3, dtype=torch.float64), BINS, 0.75)
    deviation = 0.75 * BINS.width
    for index in (10, 17, 18, 19, 25):
        grid = torch.linspace(0, 1, 4001, dtype=torch.float64) * BINS.width + BINS.low + index * BINS.width
        density = torch.exp(-0.5 * ((grid - 3.3) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
        assert float(label[index]) == pytest.approx(float(torch.trapezoid(density, grid)), abs=1e-7)


@pytest.mark.parametrize("spread", [0.1, 0.25, 0.75])
def test_the_bias_of_a_label_is_the_damped_fourier_series(spread: float) -> None:
    numbers = torch.linspace(10.0, 12.0, 37, dtype=torch.float64)
    bias = gaussian_labels(numbers, BINS, spread) @ BINS.centres(numbers) - numbers
    phase = 2 * math.pi * (numbers - BINS.centres(numbers)[0]) / BINS.width
    series = sum(
        (-1) ** k * torch.sin(k * phase) / (math.pi * k) * math.exp(-2 * (math.pi * k * spread) ** 2)
        for k in range(1, 60)
    )
    torch.testing.assert_close(bias, BINS.width * series, rtol=0, atol=1e-11)


def test_a_narrow_gaussian_is_one_hot_at_the_nearest_centre() -> None:
    label = gaussian_labels(torch.tensor(5.0, dtype=torch.float64), BINS, 1e-3)
    assert float(label.max()) == pytest.approx(1.0)
    assert int(label.argmax()) == int((BINS.centres(label) - 5.0).abs().argmin())


def test_the_gradient_in_the_logits_is_softmax_minus_label() -> None:
    logits = torch.randn(7, 101, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    target = torch.linspace(-3.0, 35.0, 7, dtype=torch.float64).requires_grad_()
    slope, into_target = torch.autograd.grad(
        cross_entropy(logits, target, BINS, HlGauss()).sum(), (logits, target), allow_unused=True
    )
    torch.testing.assert_close(slope, logits.softmax(-1) - gaussian_labels(target, BINS, 0.75).detach())
    assert into_target is None


def test_the_mean_label_decodes_to_the_mean_of_noisy_targets() -> None:
    """No bias is paid for robustness, unlike with a Huber loss."""
    target = torch.randn(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).exp() + 3.0
    label = gaussian_labels(target, BINS, 0.75).mean(0)
    assert float(label @ BINS.centres(label)) == pytest.approx(float(target.mean()), abs=1e-5)
    assert float(decoded(label.clamp(min=1e-300).log(), BINS)) == pytest.approx(float(target.mean()), abs=1e-5)


def test_two_hot_means_are_exact() -> None:
    numbers = torch.linspace(-3.5, 35.5, 500, dtype=torch.float64)
    means = two_hot_labels(numbers, BINS) @ BINS.centres(numbers)
    torch.testing.assert_close(means, numbers, rtol=0, atol=1e-12)


def test_one_binned_critic_builds_for_tokens_torques_and_numbered_states() -> None:
    bodies = {TOKENS: Transformer(8, 1), TORQUES: Perceptron((8,)), NUMBERED: Table()}
    for spec, body in bodies.items():
        layout = RAGGED if spec is TOKENS else FRAGMENTS
        batch = build(spec, layout)
        critic = Critic(body, Value(Bins(-1.0, 1.0, num=11))).build(spec).double()
        assert critic.outputs(batch.context).shape == (*batch.mask.shape, 11)
        assert critic(batch.context).shape == batch.mask.shape


def test_binned_action_values_need_choices() -> None:
    with pytest.raises(AssayError, match="needs discrete actions"):
        Policy(head=Greedy(BINS)).build(TORQUES)


@pytest.mark.parametrize("world", [LANGUAGE, CONTROL, CONTINUOUS, TABLE], ids=lambda world: world.name)
def test_only_critic_and_critic_loss_differ_from_the_base(world) -> None:
    base = {CONTROL.name: recipes.dqn, CONTINUOUS.name: recipes.sac}.get(world.name, lambda: recipes.ppo(world))()
    ours = hl_gauss(world)
    assert (ours.source, ours.rollout, ours.credit, ours.copies) == (
        base.source,
        base.rollout,
        base.credit,
        base.copies,
    )
    assert [replace(stage, critic=()) for stage in ours.stages] == [replace(stage, critic=()) for stage in base.stages]


def test_classified_values_learn_the_outcomes_of_a_table() -> None:
    """Values of a chain under the acting policy, against regression: both approach the same returns."""
    task = catalogue.find_task("bandit")
    ours, theirs = (Loop(recipe, task, seed=0, num_steps=60) for recipe in (hl_gauss(TABLE), recipes.ppo(TABLE)))
    assert ours.recipe.stages[1].critic[0] == Td(Column(), CrossEntropy(), OfState())
    for loop in (ours, theirs):
        for _ in range(60):
            loop.step()
    context = {"state": torch.zeros(1, 1, dtype=torch.long)}
    values = [float(loop.engine.models["value"](context).detach()) for loop in (ours, theirs)]
    assert values[0] == pytest.approx(values[1], abs=0.1)


# ------------------------------------------------------------------------------------------------- mirror descent
def test_mirror_descent_is_reinforce_at_ratio_one_and_pulls_back_elsewhere() -> None:
    logp = torch.tensor([[-1.0, -2.0, -0.5]], dtype=torch.float64).requires_grad_()
    advantage = torch.tensor([[1.0, -2.0, 0.0]], dtype=torch.float64)
    slopes = [
        torch.autograd.grad(trust(logp - logp.detach(), advantage, logp)[0].sum(), logp)[0]
        for trust in (MirrorDescent(0.3), NoTrust())
    ]
    torch.testing.assert_close(*slopes)
    loss, _ = MirrorDescent(0.5)(logp - logp.detach() + 0.4, torch.zeros_like(advantage), logp)
    (slope,) = torch.autograd.grad(loss.sum(), logp)
    torch.testing.assert_close(slope, torch.full_like(slope, math.exp(0.4) * 0.4 / 0.5))


def test_the_proximity_of_gaussians_is_their_kl() -> None:
    """Averaged over the acting policy by quadrature: the same part, for torques."""
    action = torch.linspace(-14.0, 14.0, 40001, dtype=torch.float64)
    old, new = torch.distributions.Normal(0.3, 1.1), torch.distributions.Normal(-0.4, 0.8)
    log_ratio = new.log_prob(action) - old.log_prob(action)
    loss, cut = MirrorDescent(1.0)(log_ratio, torch.zeros_like(action), new.log_prob(action))
    found = torch.trapezoid(loss * old.log_prob(action).exp(), action)
    assert float(found) == pytest.approx(float(torch.distributions.kl_divergence(new, old)), abs=1e-6)
    assert bool((loss >= 0).all())
    assert not bool(cut.any())


def test_mirror_descent_steps_converge_to_the_closed_form() -> None:
    old, advantage = torch.tensor([0.2, -0.3, 0.5]).double(), torch.tensor([1.0, -1.0, 0.3]).double()
    logits, prob_old = old.clone().requires_grad_(), old.softmax(-1)
    for _ in range(3000):
        log_ratio = logits.log_softmax(-1) - old.log_softmax(-1)
        loss, _ = MirrorDescent(0.7)(log_ratio, advantage, logits.log_softmax(-1))
        (slope,) = torch.autograd.grad((prob_old * loss).sum(), logits)
        logits = (logits - 0.5 * slope).detach().requires_grad_()
    torch.testing.assert_close(logits.softmax(-1), (old + 0.7 * advantage).softmax(-1), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "bandit", "addition-1"])
def test_the_step_size_falls_from_one_to_one_over_the_number_of_steps(name: str) -> None:
    recipe = catalogue.recipe_for("mdpo", catalogue.find_task(name), {})
    at = [recipe.at(Progress(step=step, num_steps=4)).stages[0].objective[0].trust.step_size for step in range(4)]
    assert at == pytest.approx([1.0, 0.75, 0.5, 0.25])


# ------------------------------------------------------------------------------------------------- sources as arms
def reference_shares(state: dict, temperature: float) -> list[float]:
    total = sum(state["count"])
    bounds = []
    for recent, count in zip(state["recent"], state["count"], strict=True):
        mean = sum(recent) / len(recent) if recent else 0.0
        bounds.append(mean + math.sqrt(2 * math.log(max(1, total) + 1) / (count + 1)))
    weights = [math.exp(bound / temperature) for bound in bounds]
    return [weight / sum(weights) for weight in weights]


def test_shares_are_softmax_of_upper_confidence_bounds() -> None:
    state = {"next": [0] * 3, "recent": [[0.1, 0.9], [], [0.4]], "count": [20, 0, 3]}
    np.testing.assert_allclose(SourceBandit().probabilities(state), reference_shares(state, 0.1), atol=1e-12)


THREE = Scene(mixture("three", [sorting(level) for level in (3, 4, 5)]))


def test_starts_are_the_next_ones_of_their_source_each_once() -> None:
    bandit = SourceBandit()
    state = bandit.init(THREE)
    starts = np.concatenate([bandit(THREE.given(num_starts=50, draw=Draw(1, (step,))), state) for step in range(4)])
    for source in range(3):
        mine = starts[starts % 3 == source]
        assert mine.tolist() == [source + 3 * place for place in range(len(mine))]
    assert len(set(starts.tolist())) == 200


def test_sources_are_drawn_at_their_shares() -> None:
    bandit = SourceBandit(temperature=1.0)
    state = bandit.init(THREE) | {"recent": [[0.0], [1.0], [2.0]], "count": [9, 9, 9]}
    shares = bandit.probabilities(state)
    drawn = np.bincount(bandit(THREE.given(num_starts=20_000, draw=Draw(2)), state) % 3, minlength=3) / 20_000
    np.testing.assert_allclose(drawn, shares, atol=0.012)


def test_two_calls_of_one_step_draw_differently() -> None:
    bandit = SourceBandit()
    state = bandit.init(THREE)
    first, second = (bandit(THREE.given(num_starts=40, draw=Draw(1, (3,))), state) % 3 for _ in range(2))
    assert first.tolist() != second.tolist()


def test_the_bandit_remembers_the_size_of_mean_advantages_of_rows_with_decisions() -> None:
    batch = build(TOKENS, RAGGED)
    bandit = SourceBandit(window=2)
    state = bandit.init(THREE)
    bandit.observe(batch, THREE, state)
    expected: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for row in range(len(batch)):
        if bool(batch.mask[row].any()):
            size = batch.column("advantage")[row][batch.mask[row]].mean().abs()
            expected[int(batch.column("start")[row]) % 3].append(float(size))
    assert state["count"] == [len(expected[source]) for source in range(3)]
    for source in range(3):
        assert state["recent"][source] == pytest.approx(expected[source][-2:])


def test_nothing_observed_changes_nothing() -> None:
    batch = build(TOKENS, RAGGED)
    bandit = SourceBandit()
    state = bandit.init(THREE)
    bandit.observe(replace(batch, mask=torch.zeros_like(batch.mask)), THREE, state)
    assert state == bandit.init(THREE)


def test_a_mixture_takes_its_sources_in_turn_and_judges_by_the_right_one() -> None:
    task = mixture("three", [sorting(level) for level in (3, 4, 5)])
    items = task.items_of(np.arange(9), 0)
    assert [len(item.answer) for item in items] == [3, 4, 5] * 3
    assert items[4].prompt == sorting(4).items.item(1, 0).prompt
    assert task.demonstrate(np.arange(9), 0).column("score").tolist() == [1.0] * 9
    assert task.verify([""], ["zzz"], [items[0]])[0] == sorting(3).verify([""], ["zzz"], [items[0]])[0]


def test_no_problem_of_a_mixture_is_in_both_splits() -> None:
    task = catalogue.find_task("addition-1-to-4")
    kinds = [{tuple(sorted(item.facts["terms"])) for item in task.items_of(np.arange(400), split)} for split in (0, 1)]
    assert not kinds[0] & kinds[1]


def test_an_empty_mixture_is_refused() -> None:
    with pytest.raises(AssayError, match="no sources"):
        Mixture(())


def test_the_curriculum_sees_the_credit_and_learns_which_source_pays() -> None:
    """The loop hands credit on, and rows are counted under their source."""
    task = catalogue.find_task("levels")
    recipe = catalogue.recipe_for("dump", task, {}).set("actor.width", 16).set("rollout.num_starts", 4)
    loop = Loop(recipe, task, seed=0, num_steps=3)
    for _ in range(3):
        loop.step()
    assert sum(loop.states["curriculum"]["count"]) == 3 * 32


def test_a_file_with_a_field_source_has_sources_and_one_without_is_refused(tmp_path: Path) -> None:
    with_field, without, some = (tmp_path / f"{name}.jsonl" for name in ("with", "without", "some"))
    rows = [{"prompt": f"{k} of {k % 3}?", "answer": "yes"} for k in range(40)]
    with_field.write_text("\n".join(json.dumps(row | {"source": "abc"[k % 3]}) for k, row in enumerate(rows)))
    without.write_text("\n".join(map(json.dumps, rows)))
    some.write_text("\n".join(json.dumps(row | ({"source": "a"} if k % 2 else {})) for k, row in enumerate(rows)))
    task = textfile(str(with_field))
    assert task.source_names == ("a", "b", "c")
    for source, place in itertools.product(range(3), range(40)):
        start = task.start_in(source, place)
        assert task.source_of(start) == source
        assert task.items.item(start, 0).facts["source"] == "abc"[source]
    assert len({task.start_in(source, place) for source in range(3) for place in range(40)}) == 120
    with pytest.raises(AssayError, match="has none. Add a field `source`"):
        SourceBandit().init(Scene(textfile(str(without))))
    with pytest.raises(AssayError, match="have no field 'source'"):
        SourceBandit().init(Scene(textfile(str(some))))
