"""Sensors that fail: which ones, in which episodes, and what a policy that lacks their tokens does with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from assay.claims.testbeds.control.failing_sensors import SENSORS, failed_sensors, failing_sensors
from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.tasks.control.pendulum import pendulum
from assay.tasks.control.stepping import Scripted

TORQUE = torch.ones(30, 1)


def constant(context: Any) -> torch.Tensor:
    return torch.ones(len(context["observation"]), 1)


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_as_many_sensors_fail_as_asked_and_each_of_them_in_some_episodes(failing: int) -> None:
    failed = failed_sensors(np.arange(300), failing)
    assert (failed.sum(1) == failing).all()
    shares = failed.float().mean(0) * SENSORS
    assert torch.allclose(shares, torch.full((SENSORS,), float(failing)), atol=0.3)


def test_only_held_out_episodes_lack_numbers_and_they_go_on_as_the_pendulum() -> None:
    starts = np.arange(20)
    seen = [
        task.play(Scripted(constant), starts, 0 * starts, Draw(0), split=split, greedy=True)
        for task in (failing_sensors(), pendulum())
        for split in (0, 1)
    ]
    whole, failing, *plain = (one.context["observation"] for one in seen)
    assert torch.equal(whole, plain[0])
    missing = failing.isnan()
    assert (missing.sum(2) == 1).all()
    assert (missing == missing[:, :1]).all()
    assert torch.equal(failing[~missing], plain[1][~missing])
    assert torch.equal(seen[1].reward, seen[3].reward)


def test_a_snapshot_brings_back_what_failed() -> None:
    one, two = (failing_sensors().of_split(30, 1) for _ in range(2))
    one.reset(np.arange(100, 130))
    two.restore(one.snapshot())
    for first, second in zip(one.step(TORQUE)[0].values(), two.step(TORQUE)[0].values(), strict=True):
        assert torch.equal(first.nan_to_num(9.0), second.nan_to_num(9.0))


def test_more_sensors_than_there_are_are_refused() -> None:
    with pytest.raises(AssayError, match="failing=4 of 3 sensors"):
        failing_sensors(4)
