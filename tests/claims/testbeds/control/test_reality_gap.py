"""A simulator that is not quite right: what differs, which side is which, and the dataset of a draw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.reality_gap import Simulated, reality_gap
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.tasks.control.pendulum import Pendulum, pendulum, swing_up
from assay.tasks.control.stepping import Scripted

STATE = np.array([[0.5, -2.0, 3.0], [1.0, -0.5, 7.9]])
TORQUE = torch.tensor([[2.0], [-1.0], [0.5]])


def test_a_step_of_the_simulator_has_half_the_gravity_and_the_same_reward() -> None:
    moved, reward, _ = Simulated(0.5).step(STATE, TORQUE.numpy(), None)
    pulled = 15.0 * 0.5 * np.sin(STATE[0]) + 3.0 * TORQUE[:, 0].numpy()
    np.testing.assert_allclose(moved[1], (STATE[1] + 0.05 * pulled).clip(-8.0, 8.0))
    np.testing.assert_allclose(moved[0], STATE[0] + 0.05 * moved[1])
    np.testing.assert_array_equal(reward, Pendulum().step(STATE, TORQUE.numpy(), None)[1])


def test_with_all_its_gravity_it_is_the_pendulum() -> None:
    for mine, real in zip(Simulated(1.0).step(STATE, TORQUE.numpy(), None),
                          Pendulum().step(STATE, TORQUE.numpy(), None), strict=True):
        np.testing.assert_array_equal(mine, real)


def test_held_out_episodes_and_the_dataset_are_of_the_real_system() -> None:
    task: Any = reality_gap(noise=0.0, episodes=3)
    starts, actor = np.arange(5), Scripted(swing_up)
    played = [each.play(actor, starts, 0 * starts, Draw(0), split=1, greedy=True) for each in (task, pendulum())]
    assert torch.equal(played[0].reward, played[1].reward)
    trained = [each.play(actor, starts, 0 * starts, Draw(0), split=0, greedy=True) for each in (task, pendulum())]
    assert not torch.equal(trained[0].reward, trained[1].reward)
    data = task.logged(Draw(4))
    seen = data.context["observation"].double().numpy()
    state = np.stack((np.arctan2(seen[:, 0, 1], seen[:, 0, 0]), seen[:, 0, 2]))
    after = Pendulum().step(state, data.action[:, 0].numpy(), None)[0]
    np.testing.assert_allclose(seen[:, 1, 2], after[1], atol=1e-4)


def test_datasets_belong_to_the_draw_and_wrong_dials_are_refused() -> None:
    task: Any = reality_gap(episodes=2)
    assert torch.equal(task.logged(Draw(1)).action, task.logged(Draw(1)).action)
    assert not torch.equal(task.logged(Draw(1)).action, task.logged(Draw(2)).action)
    with pytest.raises(AssayError, match="gravity=-1 is below 0"):
        reality_gap(-1.0)
    with pytest.raises(AssayError, match="noise=2 is not a share"):
        reality_gap(noise=2.0)
