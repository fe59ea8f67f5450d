"""A gamble: what a win says about the choice, what the best choice earns, and the dataset of a draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.gamble import gamble, wheel
from assay.core.errors import AssayError
from assay.core.record import Draw


def test_the_best_choice_earns_its_chance_and_a_coin_half() -> None:
    finite = wheel(0.1, 2)
    assert finite.values().max(1)[0] == pytest.approx(1.8)
    coin = np.full(finite.reward.shape, 0.5)
    assert finite.policy_value(coin)[0] == pytest.approx(1.0)
    assert gamble(0.1, 2).scale == pytest.approx(0.8)
    np.testing.assert_allclose(finite.gaps[::3], [[0.0, 0.8]] * 2, atol=1e-9)


def test_whoever_won_chose_either_way_and_the_rest_chose_badly() -> None:
    task: Any = gamble(0.1, episodes=20_000)
    data = task.logged(Draw(3))
    first, won = data.action[:, 0] == 0, data.reward.sum(1) > 0
    assert float(first.double().mean()) == pytest.approx(0.1, abs=0.01)
    assert float(won.double().mean()) == pytest.approx(0.18, abs=0.01)
    assert float(first[won].double().mean()) == pytest.approx(0.5, abs=0.03)
    assert torch.equal(data.mask.sum(1), torch.full((20_000,), 2))


def test_datasets_belong_to_the_draw_and_wrong_dials_are_refused() -> None:
    task: Any = gamble(episodes=50)
    assert torch.equal(task.logged(Draw(1)).action, task.logged(Draw(1)).action)
    assert not torch.equal(task.logged(Draw(1)).action, task.logged(Draw(2)).action)
    with pytest.raises(AssayError, match="luck=2 is not a share"):
        gamble(2.0)
    with pytest.raises(AssayError, match="rounds=0 is below 1"):
        gamble(rounds=0)
