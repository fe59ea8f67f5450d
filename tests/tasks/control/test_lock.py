"""The combination lock: its code opens it, other actions leave for good, and what is seen tells the state but where it
is hidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.runs import catalogue
from assay.tasks.control.lock import BAD, LATENTS, Lock, combination_lock


def states(lock: Lock, step: int, latent: int, num: int = 400) -> np.ndarray:
    """States of one kind, each with another number for what is seen."""
    numbers = (np.arange(num) + 0.5) / num
    return np.stack([np.full(num, float(step)), np.full(num, float(latent)), numbers])


def seen(lock: Lock, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step and the latent state that observations show."""
    clean = lock.observe(state)["observation"].double().numpy() @ lock.mixing
    return clean[:, LATENTS : LATENTS + lock.horizon + 1].argmax(1), clean[:, :LATENTS].argmax(1)


@pytest.mark.parametrize("hidden", [0, 2])
def test_the_code_opens_every_step_and_pays_at_the_last(hidden: int) -> None:
    task = combination_lock(6, 4, hidden)
    shown = task.demonstrate(np.arange(100), 0)
    assert shown.mask.sum(1).tolist() == [6] * 100
    assert bool((shown.reward[:, 5] == 1.0).all())
    assert not shown.reward[:, :5].any()
    assert bool(shown.terminal[:, 5].all())


def test_another_action_leaves_for_good_and_pays_by_a_coin() -> None:
    lock = Lock(6, 4, 0)
    uniform = (np.arange(400) + 0.5) / 400
    for latent in (0, 1):
        right = lock.code[3, latent]
        moved, reward, last = lock.step(states(lock, 3, latent), np.full(400, (right + 1) % 4), uniform)
        assert set(moved[1]) == {BAD}
        assert reward.mean() == pytest.approx(0.05)
        assert not last.any()
        moved, reward, _ = lock.step(states(lock, 3, latent), np.full(400, right), uniform)
        assert moved[1].mean() == pytest.approx(0.5)
        assert set(moved[1]) == {0.0, 1.0}
        assert not reward.any()
    for step, action in ((3, 0), (5, 1)):
        moved, reward, last = lock.step(states(lock, step, BAD), np.full(400, action), uniform)
        assert set(moved[1]) == {BAD}
        assert not reward.any()
        assert bool((last == (step == 5)).all())


def test_uniform_actions_are_hardly_ever_paid_at_the_end() -> None:
    class Uniform:
        num_draws = 1

        def act(self, context: Any, uniform: Any) -> Any:
            return (5 * uniform[:, 0]).long(), torch.zeros(len(uniform))

    task = combination_lock()
    played = task.play(Uniform(), np.arange(2000), np.zeros(2000, np.int64), Draw(0), split=0, greedy=False)
    assert float(played.reward.max()) < 1.0
    assert float(played.reward.sum(1).mean()) == pytest.approx(0.05, abs=0.005)


def test_what_is_seen_tells_the_state_but_for_bad_ones_where_they_are_hidden() -> None:
    lock = Lock(6, 4, 2)
    for step in range(7):
        for latent in range(LATENTS):
            found, shown = seen(lock, states(lock, step, latent))
            assert bool((found == step).all())
            if step == 2 and latent == BAD:
                assert shown.mean() == pytest.approx(0.5)
                assert set(shown) == {0, 1}
            else:
                assert set(shown) == {latent}


def test_observations_have_noise_of_a_deviation_of_a_tenth() -> None:
    lock = Lock(6, 4, 0)
    given = lock.observe(states(lock, 1, 0, 4000))["observation"]
    assert float(given.std(0).mean()) == pytest.approx(0.1, abs=0.003)
    assert given.shape[1] == len(lock.mixing) == 16


@pytest.mark.parametrize("dial", ["horizon=0", "actions=1", "hidden=-1"])
def test_settings_that_make_no_lock_are_refused(dial: str) -> None:
    with pytest.raises(AssayError, match=dial):
        catalogue.find_task(f"combination-lock:{dial}")


def test_dials_are_settings_of_the_name() -> None:
    assert catalogue.find_task("combination-lock:hidden=5").name == "combination-lock-10x5-hidden-5"
