"""Distributions through their inverse distribution functions, against torch's own and against counting."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, Independent, Normal

from assay.core.errors import AssayError
from assay.ops import distributions

logit = st.one_of(st.floats(-8, 8), st.just(-math.inf), st.just(-1e9))


@given(logits=st.lists(logit, min_size=1, max_size=6).filter(lambda row: max(row) > -100), uniform=st.floats(0, 1))
def test_a_category_of_probability_zero_is_never_drawn(logits: list[float], uniform: float) -> None:
    for dtype in (torch.float32, torch.float64):
        row = torch.tensor([logits], dtype=dtype)
        number = torch.tensor([uniform], dtype=torch.float32).clamp(2.0**-25, 1 - 2.0**-24)
        drawn = int(distributions.categorical_sample(row, number))
        assert 0 <= drawn < len(logits)
        assert float(row.softmax(-1)[0, drawn]) > 0.0


def test_the_share_of_uniform_numbers_that_choose_a_category_is_its_probability() -> None:
    """On an even grid of N numbers each category gets N p of them, give or take one."""
    logits = torch.tensor([0.3, -1.2, 2.0, -math.inf, 0.0], dtype=torch.float64)
    num = 10_000
    grid = (torch.arange(num, dtype=torch.float64) + 0.5) / num
    drawn = distributions.categorical_sample(logits.expand(num, 5), grid)
    counts = torch.bincount(drawn, minlength=5).double()
    assert float((counts - num * logits.softmax(-1)).abs().max()) <= 1.0
    assert bool((drawn[1:] >= drawn[:-1]).all()), "the inverse distribution function does not fall"


def test_intervals_contain_their_lower_end() -> None:
    even = torch.zeros(3, 2)
    assert distributions.categorical_sample(even, torch.tensor([0.25, 0.5, 0.75])).tolist() == [0, 1, 1]


@given(logits=st.lists(st.floats(-30, 30), min_size=2, max_size=6), action=st.integers(0, 1))
def test_categorical_against_torch(logits: list[float], action: int) -> None:
    row = torch.tensor(logits, dtype=torch.float64)
    theirs = Categorical(logits=row)
    assert float(distributions.categorical_logp(row, torch.tensor(action))) == pytest.approx(
        float(theirs.log_prob(torch.tensor(action))), abs=1e-10
    )
    assert float(distributions.categorical_entropy(row)) == pytest.approx(float(theirs.entropy()), abs=1e-10)


def test_entropy_of_impossible_categories_is_finite_with_finite_gradient() -> None:
    for impossible in (-1e9, -math.inf):
        row = torch.tensor([0.0, 0.0, impossible], requires_grad=True)
        entropy = distributions.categorical_entropy(row)
        entropy.backward()
        assert float(entropy.detach()) == pytest.approx(math.log(2))
        assert row.grad is not None
        assert bool(row.grad.isfinite().all())


def test_normal_numbers_are_quantiles() -> None:
    uniform = torch.tensor([0.5, 0.975, 0.025, 0.8413447460685429], dtype=torch.float64)
    expected = [0.0, 1.959963984540054, -1.959963984540054, 1.0]
    assert distributions.normal_sample(uniform).tolist() == pytest.approx(expected, abs=1e-12)
    extreme = distributions.normal_sample(torch.tensor([2.0**-25, 1 - 2.0**-24]))
    assert extreme.dtype == torch.float32
    assert bool(extreme.isfinite().all())


@given(value=st.floats(-5, 5), mean=st.floats(-5, 5), log_std=st.floats(-3, 3))
def test_normal_density_against_torch(value: float, mean: float, log_std: float) -> None:
    one = torch.tensor([value, -value], dtype=torch.float64)
    two, three = torch.tensor([mean, 0.5], dtype=torch.float64), torch.tensor([log_std, 0.1], dtype=torch.float64)
    theirs = Independent(Normal(two, three.exp()), 1).log_prob(one)
    assert float(distributions.normal_logp(one, two, three)) == pytest.approx(float(theirs), rel=1e-10, abs=1e-10)


def test_slope_of_tanh_is_right_where_the_naive_form_is_and_stable_beyond() -> None:
    near = torch.linspace(-3, 3, 61, dtype=torch.float64)
    assert torch.allclose(distributions.log_tanh_slope(near), (1 - near.tanh().square()).log(), atol=1e-12)
    far = torch.tensor([-60.0, 60.0], requires_grad=True)
    slope = distributions.log_tanh_slope(far)
    slope.sum().backward()
    assert slope.tolist() == pytest.approx([2 * math.log(2) - 120.0] * 2)
    assert far.grad is not None
    assert far.grad.tolist() == pytest.approx([2.0, -2.0])


def test_nothing_of_probability_zero_is_drawn_at_either_end() -> None:
    logits = torch.full((4000, 9), -math.inf)
    logits[:, 2:5] = 3.0 * torch.randn(4000, 3, generator=torch.Generator().manual_seed(0))
    for number in (0.0, 1.0 - 2.0**-24):
        drawn = distributions.categorical_sample(logits, torch.full((4000,), number))
        assert bool(((drawn >= 2) & (drawn < 5)).all())


@pytest.mark.parametrize("row", [[math.nan, 0.0], [0.0, math.inf], [-math.inf, -math.inf]])
def test_a_row_without_a_distribution_is_refused_and_no_category_beyond_the_last_is_drawn(row: list[float]) -> None:
    with pytest.raises(AssayError, match="logits are NaN or infinite"):
        distributions.categorical_sample(torch.tensor([[0.0, 1.0], row]), torch.tensor([0.5, 0.5]))
