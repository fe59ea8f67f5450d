"""Off-policy evaluation on a task whose values are known, and on data that do not suffice."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import assay
from assay.cli import main as cli
from assay.core.errors import AssayError
from assay.core.record import Experience, Scored
from assay.core.spaces import Box, Discrete, Spec
from assay.datasets.agents import played
from assay.datasets.dataset import Dataset
from assay.datasets.files import read, write
from assay.datasets.ope import ESTIMATORS, Fqe, effective, evaluated, shares, weights
from assay.runs.options import scoring
from assay.runs.run import load

SPEC, DISCOUNT, LENGTH = Spec(Box((0.0,), (1.0,)), Discrete(2), 4), 0.9, 4
SMALL = Fqe(hidden=(32,), updates=700, batch=64, learning_rate=3e-3, rate=0.05)


@dataclass(frozen=True)
class Coin:
    """Takes action 1 with a chance, whatever it sees."""

    chance: float
    num_draws: int = 1

    def act(self, context: Any, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        assert uniform is not None
        action = (uniform[:, 0] < self.chance).long()
        return action, self.logp(action)

    def logp(self, action: Tensor) -> Tensor:
        return torch.where(action == 1, self.chance, 1.0 - self.chance).log()

    def score(self, batch: Experience, needs: Any) -> Scored:
        return Scored(self.logp(batch.action))


def recorded(chance: float, episodes: int = 400) -> Dataset:
    """Episodes of four decisions; action 1 pays 1, the last decision is terminal."""
    draw = torch.Generator().manual_seed(1)
    action = (torch.rand(episodes * LENGTH, generator=draw) < chance).long()
    place = torch.arange(LENGTH).repeat(episodes)
    seen = (place / LENGTH).unsqueeze(1)
    ends, logp = place == LENGTH - 1, Coin(chance).logp(action)
    return Dataset(seen, action, action.float(), ends, torch.zeros_like(ends), seen + 1 / LENGTH, logp=logp)


def true_value(chance: float) -> float:
    return float(chance * (DISCOUNT ** np.arange(LENGTH)).sum())


@pytest.mark.parametrize("estimator", ["fqe", "dr", "wis"])
@pytest.mark.parametrize("chance", [0.5, 0.8])
def test_the_value_of_another_policy_is_found(estimator: str, chance: float) -> None:
    found = evaluated(estimator, Coin(chance), recorded(0.5), SPEC, DISCOUNT, SMALL)
    assert found.value == pytest.approx(true_value(chance), abs=0.15)
    if estimator != "fqe":
        assert found.low < true_value(chance) < found.high


def test_doubly_robust_is_right_where_the_critic_is_wrong() -> None:
    untrained = replace(SMALL, updates=0)
    far = evaluated("fqe", Coin(0.8), recorded(0.5), SPEC, DISCOUNT, untrained).value
    near = evaluated("dr", Coin(0.8), recorded(0.5), SPEC, DISCOUNT, untrained).value
    assert abs(far - true_value(0.8)) > 1.0
    assert near == pytest.approx(true_value(0.8), abs=0.2)


def test_of_the_behaviour_policy_all_weights_are_one() -> None:
    data = recorded(0.5, 20)
    assert all(np.allclose(one, 0.0) for one in weights(Coin(0.5), data, SPEC))
    plain = evaluated("wis", Coin(0.5), data, SPEC, DISCOUNT)
    powers = DISCOUNT ** np.arange(LENGTH)
    assert plain.value == pytest.approx(float((data.reward.view(20, LENGTH).double().numpy() @ powers).mean()))
    assert plain.effective == pytest.approx(20.0)


def test_effective_numbers_and_shares_of_weights() -> None:
    never = -np.inf
    assert effective(np.array([0.0, 0.0, never, never])) == 2.0
    assert effective(np.full(3, never)) == 0.0
    assert shares(np.array([[0.0], [np.log(3.0)]])).ravel() == pytest.approx([0.5, 1.5])
    assert shares(np.array([2_000.0, 2_000.0 + np.log(3.0)])) == pytest.approx([0.5, 1.5])  # exp(2000) is infinite


def test_a_ratio_is_at_most_e_to_the_fourth() -> None:
    """Four decisions of chance 0.001 that the policy takes always: ratios of 1000, bounded."""
    data = recorded(0.5, 1)
    rare = replace(data, action=torch.ones_like(data.action), logp=torch.full((LENGTH,), math.log(0.001)))
    assert weights(Coin(1.0 - 1e-9), rare, SPEC)[0] == pytest.approx([4.0, 8.0, 12.0, 16.0])


def test_a_cut_episode_goes_on_for_fitted_values_and_ends_for_weights() -> None:
    """Cut after two of four decisions of the behaviour policy: the weighted return is that of two."""
    data = recorded(0.5, 400)
    place = torch.arange(len(data)) % LENGTH
    both: dict[str, Any] = {name: column[place < 2] for name, column in data.columns()}
    short = Dataset(**both | {"truncated": place[place < 2] == 1})
    found = evaluated("wis", Coin(0.5), short, SPEC, DISCOUNT)
    assert found.low < 0.5 * (1 + DISCOUNT) < found.high
    with_rest = evaluated("dr", Coin(0.5), short, SPEC, DISCOUNT, SMALL).value
    assert with_rest > found.high, "what follows the cut is estimated"


@dataclass(frozen=True)
class Still(Coin):
    """Always the same bounded action, with the score of a clone's squared error."""

    def act(self, context: Any, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = len(context["observation"])
        return torch.zeros(rows, 1), torch.zeros(rows)

    def score(self, batch: Experience, needs: Any) -> Scored:
        return Scored(-0.5 * batch.action.square().sum(-1))


@dataclass(frozen=True)
class Elsewhere(Coin):
    """Decides with another chance than it scores."""

    def score(self, batch: Experience, needs: Any) -> Scored:
        return Scored(Coin(0.9 * self.chance).logp(batch.action))


def test_what_does_not_suffice_is_refused() -> None:
    data = recorded(0.5, 5)
    with pytest.raises(AssayError, match="need the log-probabilities"):
        evaluated("wis", Coin(0.8), replace(data, logp=None), SPEC, DISCOUNT)
    with pytest.raises(AssayError, match="--ope is 'magic'"):
        evaluated("magic", Coin(0.8), data, SPEC, DISCOUNT)
    with pytest.raises(AssayError, match="the data have no rewards"):
        evaluated("fqe", Coin(0.8), replace(data, about={"rewards": False}), SPEC, DISCOUNT)
    with pytest.raises(AssayError, match="scores others than it takes"):
        evaluated("dr", Elsewhere(0.8), data, SPEC, DISCOUNT)
    with pytest.raises(AssayError, match="takes the actions of no episode"):
        evaluated("wis", Coin(0.0), replace(data, action=torch.ones_like(data.action)), SPEC, DISCOUNT)
    box = replace(SPEC, action=Box((-1.0,), (1.0,)))
    with pytest.raises(AssayError, match="always takes the same one"):
        evaluated("wis", Still(0.5), replace(data, action=torch.zeros(len(data), 1)), box, DISCOUNT)
    with pytest.raises(AssayError, match="has goals"):
        evaluated("fqe", Coin(0.8), data, replace(SPEC, goal=Box((0.0,), (1.0,))), DISCOUNT)


def test_the_command_line_names_the_same_estimators() -> None:
    assert tuple(ESTIMATORS) == scoring.ESTIMATORS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A policy of one step on cartpole, and six of its own episodes."""
    folder = tmp_path_factory.mktemp("ope")
    assert cli.main(["train", "ppo", "--task", "cartpole", "--steps", "1", "--out", str(folder / "run"), "--json"]) == 0
    policy, plan, _ = load(folder / "run")
    write(played(plan.task, policy, 6, 0, {}), folder / "own.safetensors")
    return folder / "run", folder / "own.safetensors"


def test_the_command_estimates_from_its_own_episodes_their_discounted_return(
    run: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder, file = run
    capfd.readouterr()
    assert cli.main(["evaluate", str(folder), "--ope", "wis", "--data", str(file), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    lengths = [last - first for first, last in read(str(file)).bounds]
    by_hand = np.mean([(0.99 ** np.arange(length)).sum() for length in lengths])  # every decision pays 1
    assert found["mean"] == pytest.approx(by_hand, rel=1e-4)
    assert found["effective"] == pytest.approx(6.0, rel=1e-3)
    assert found["discount"] == 0.99
    same = assay.evaluate(folder, ope="wis", data=str(file))
    assert "of sampled actions, discount 0.99, from 6 episodes, of which 6.0 carry it" in str(same)


def test_what_contradicts_an_estimate_is_refused(run: tuple[Path, Path]) -> None:
    folder, file = run
    for told, match in (
        ({"ope": "magic", "data": str(file)}, "--ope is 'magic'"),
        ({"ope": "fqe"}, "Add --data FILE"),
        ({"data": str(file)}, "--data names the data"),
        ({"ope": "fqe", "data": str(file), "device": "cuda"}, "computes on the CPU"),
        ({"ope": "fqe", "data": str(file), "video": 1}, "plays nothing"),
    ):
        with pytest.raises(AssayError, match=match):
            assay.evaluate(folder, **told)
