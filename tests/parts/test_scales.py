"""Rewards of offline data in units of the range of returns."""

from __future__ import annotations

import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.method import CONTINUOUS, iql
from assay.parts.sources.logged import Log
from assay.parts.sources.scales import ReturnRange, returns_of
from assay.recipes.presets import D4RL
from assay.runs import catalogue
from assay.tasks.control.pendulum import pendulum


def data(rewards: list[float], ends: list[int], cut: list[int] | None = None) -> dict[str, torch.Tensor]:
    """Transitions of episodes that are terminal at `ends` and truncated at `cut`."""
    flags = {name: torch.zeros(len(rewards), 2, dtype=torch.bool) for name in ("terminal", "truncated")}
    flags["terminal"][ends, 0] = True
    flags["truncated"][cut or [], 0] = True
    reward = torch.tensor([[one, 0.0] for one in rewards])
    return {"reward": reward, "mask": torch.tensor([[True, False]] * len(rewards)), **flags}


def test_returns_are_sums_up_to_each_end_terminal_or_truncated() -> None:
    returns, lengths = returns_of(data([1.0, 2.0, 3.0, 4.0, 5.0], [1], [3]))
    assert returns.tolist() == [3.0, 7.0, 5.0]
    assert lengths.tolist() == [2, 2, 1]


def test_the_factor_is_the_longest_episode_over_the_range() -> None:
    rows = data([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 5])
    assert ReturnRange()([rows]) == pytest.approx(4 / (18 - 3))
    assert ReturnRange(1000)([rows]) == pytest.approx(1000 / (18 - 3))


def test_datasets_have_one_factor() -> None:
    low, high = data([0.0, 0.0], [1]), data([8.0], [0])
    assert ReturnRange()([low, high]) == pytest.approx(2 / 8)


@pytest.mark.parametrize(("rewards", "factor"), [([5.0, 5.0], 1 / 5), ([-2.0, -2.0], 1 / 2), ([0.0, 0.0], 1.0)])
def test_equal_returns_count_by_their_size_and_no_rewards_stay(rewards: list[float], factor: float) -> None:
    assert ReturnRange()([data(rewards, [0, 1])]) == pytest.approx(factor)


def test_a_negative_number_of_decisions_is_refused() -> None:
    with pytest.raises(AssayError, match=r"ReturnRange\.decisions is -1"):
        ReturnRange(-1)


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_rewards_in_other_units_give_iql_the_same_policy(factor: float) -> None:
    plain, other = (
        probes.trained(iql(CONTINUOUS, Log(3, noise=0.5, reward_scale=scale)), pendulum(), 0, 3).engine.models["actor"]
        for scale in (1.0, factor)
    )
    for mine, theirs in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", ["iql", "fisor"])
def test_the_preset_d4rl_has_the_authors_thousand(method: str) -> None:
    recipe = catalogue.methods()[method].recipe(D4RL)
    assert recipe.source.scale == ReturnRange(1000)
    assert recipe.source.batch == 256
