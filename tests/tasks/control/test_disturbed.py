"""Noise of the system and of actions: what is done, what is recorded; a snapshot goes on with the same noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.detour import STEP, detour
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.tasks.control.disturbed import demonstrated, disturbed
from assay.tasks.control.pendulum import pendulum

STARTS = np.arange(20)


def moves(data: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what was recorded and what was done, where nothing was clipped."""
    seen, mask = data.context["observation"], data.mask[:, :-1] & data.mask[:, 1:]
    done = (seen[:, 1:] - seen[:, :-1])[:, : mask.shape[1]] / STEP
    return data.action[:, : mask.shape[1]][mask], done[mask]


@pytest.mark.parametrize(("action", "system"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3)])
def test_what_is_recorded_is_done_unless_the_system_has_noise(action: float, system: float) -> None:
    recorded, done = moves(demonstrated(detour(), STARTS, action, system, Draw(0)))
    assert torch.allclose(recorded, done, atol=1e-5) == (system == 0.0)
    gap = (done - recorded).square().mean().sqrt()
    assert gap == pytest.approx(system, abs=0.05)


def test_noise_is_a_function_of_the_seed_and_goes_on_after_a_snapshot() -> None:
    task, torque = disturbed(pendulum(), 0.5), torch.zeros(5, 1)
    one, two = (task.simulate(5) for _ in range(2))
    one.reset(np.arange(5))
    one.step(torque)
    two.restore(one.snapshot())
    first, second = (each.step(torque)[0]["observation"] for each in (one, two))
    assert torch.equal(first, second)
    one.reset(np.arange(5))
    one.step(torque)
    assert torch.equal(one.step(torque)[0]["observation"], first)
    assert len(first[:, 2].unique()) == 5


def test_without_noise_it_is_the_task() -> None:
    assert disturbed(task := pendulum(), 0.0) is task


def test_held_out_episodes_of_the_detour_have_noise_and_those_of_training_have_none() -> None:
    task = detour()
    trained, held_out = (task.of_split(9, split) for split in (0, 1))
    ahead = torch.tensor([[0.5, 0.0]]).expand(9, 2)
    moved = []
    for simulation in (trained, held_out):
        first = simulation.reset(np.arange(9))["observation"]
        moved.append((simulation.step(ahead)[0]["observation"] - first) / STEP)
    assert torch.allclose(moved[0], ahead, atol=1e-5)
    assert not torch.isclose(moved[1], ahead, atol=1e-3).any()
    with pytest.raises(AssayError, match="noise=-1 is below 0"):
        detour(-1.0)
