"""Classified values: labels, bins and their gradient, against slow references."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from assay import recipes
from assay.claims.laws.cases import FRAGMENTS, NUMBERED, RAGGED, TOKENS, TORQUES, build
from assay.core.errors import AssayError
from assay.core.spaces import Box, Discrete, MultiDiscrete, Spec
from assay.engine.loop import Loop
from assay.methods.hl_gauss import (
    BinsOfData,
    CrossEntropy,
    HlGauss,
    classified_cql,
    cross_entropy,
    gaussian_labels,
)
from assay.methods.hl_gauss import (
    recipe as hl_gauss,
)
from assay.models.bodies.perceptron import Perceptron
from assay.models.bodies.table import Table
from assay.models.bodies.transformer import Transformer
from assay.models.heads.bins import Bins, decoded, two_hot_labels
from assay.models.heads.value import Greedy, Value
from assay.models.model import Critic, Policy
from assay.parts.critics.td import Td
from assay.parts.predictions import OfState
from assay.parts.targets.recorded import Column
from assay.recipes.presets import CONTINUOUS, CONTROL, LANGUAGE, TABLE
from assay.recipes.value_range import Uniform, reach_of
from assay.runs import catalogue
from assay.runs.plan import make_plan
from assay.tasks.control.pendulum import pendulum

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
    ours, theirs = (Loop(recipe, task, seed=0, num_steps=30) for recipe in (hl_gauss(TABLE), recipes.ppo(TABLE)))
    assert ours.recipe.stages[1].critic[0] == Td(Column(), CrossEntropy(), OfState())
    for loop in (ours, theirs):
        for _ in range(30):
            loop.step()
    context = {"state": torch.zeros(1, 1, dtype=torch.long)}
    values = [float(loop.engine.models["value"](context).detach()) for loop in (ours, theirs)]
    assert values[0] == pytest.approx(values[1], abs=0.1)


def test_the_range_is_that_of_the_task() -> None:
    """The pendulum's values are -1,400 at worst."""
    reach = reach_of(pendulum(), 0.99)
    assert 1_000.0 < reach < 1_500.0
    plan = make_plan("hl-gauss", "pendulum")
    assert plan.recipe.critics["q"].head.bins.high == reach
    assert plan.recipe.critics["q"].head.bins.low == -reach


def test_a_range_that_is_set_stays() -> None:
    plan = make_plan("hl-gauss", "cartpole", settings={"bins.low": "-5", "bins.high": "7"})
    assert (plan.recipe.actor.head.bins.low, plan.recipe.actor.head.bins.high) == (-5.0, 7.0)


def test_a_task_that_pays_nothing_is_refused_with_the_setting_and_trains_with_it() -> None:
    with pytest.raises(AssayError, match=r"--set bins\.low=-X --set bins\.high=X"):
        make_plan("hl-gauss", "peg")
    assert make_plan("hl-gauss", "peg", settings={"bins.low": "-2", "bins.high": "2"}).recipe.name == "hl-gauss"


def test_bins_without_a_range_are_refused_before_a_network_is_built() -> None:
    with pytest.raises(AssayError, match=r"bins\.low=0 is not below bins\.high=0"):
        Policy(head=Greedy(Bins(0.0, 0.0, 11))).build(Spec(Box((0.0,), (1.0,)), Discrete(4), 5))


def test_uniform_choices_are_allowed_ones_and_all_of_them() -> None:
    mask = torch.tensor([[True, False, True, True]]).expand(999, 4)
    action, _ = Uniform(Spec(Box((0.0,), (1.0,)), Discrete(4), 5)).act(
        {"action_mask": mask}, torch.rand(999, 1, generator=torch.Generator().manual_seed(0))
    )
    assert sorted(action.unique().tolist()) == [0, 2, 3]
    counts = torch.bincount(action, minlength=4).float() / 999
    torch.testing.assert_close(counts, torch.tensor([1 / 3, 0.0, 1 / 3, 1 / 3]), atol=0.07, rtol=0)


def test_uniform_options_of_several_choices_obey_the_mask_of_each() -> None:
    mask = torch.tensor([[True, False, False, True, True]]).expand(999, 5)
    action, _ = Uniform(Spec(Box((0.0,), (1.0,)), MultiDiscrete((2, 3)), 5)).act(
        {"action_mask": mask}, torch.rand(999, 2, generator=torch.Generator().manual_seed(0))
    )
    assert sorted(set(map(tuple, action.tolist()))) == [(0, 1), (0, 2)]
    assert float(action[:, 1].float().mean()) == pytest.approx(1.5, abs=0.05)


def test_offline_bins_reach_beyond_the_returns_of_the_data() -> None:
    reward, is_last = torch.tensor([1.0, 1.0, -6.0, 2.0]), torch.tensor([False, True, False, True])
    bins = BinsOfData(discount=0.5).of_rewards(reward, is_last)
    assert (bins.low, bins.high) == (-1.25 * 5.0, 1.25 * 5.0)
    assert not bins.needs_rewards
    with pytest.raises(AssayError, match="all rewards of the data are 0"):
        BinsOfData().of_rewards(0.0 * reward, is_last)


@pytest.mark.parametrize("task", ["cartpole", "pendulum"])
def test_offline_values_over_bins_have_the_range_of_the_data(task: str) -> None:
    plan = make_plan("hl-gauss:offline", task)
    head = (plan.recipe.critics.get("q") or plan.recipe.actor).head
    assert head.bins.high == -head.bins.low > 0.0
    assert classified_cql(CONTROL).rollout is None
