"""Control tasks with costs: they resume where they stopped, and the straight way costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.core.record import Draw
from assay.core.spaces import Discrete
from assay.tasks.control.costs import slow_pendulum
from assay.tasks.control.hazards import hazards


@pytest.mark.parametrize("task", [hazards(), slow_pendulum()], ids=lambda one: one.name)
def test_simulations_with_costs_go_on_where_they_stopped(task: Any) -> None:
    first, second = task.simulate(4), task.simulate(4)
    first.reset(np.arange(4))
    num = 5 if isinstance(task.spec.action, Discrete) else 1

    def act(t: int) -> Tensor:
        return torch.arange(4).add(t).remainder(num) if num > 1 else torch.full((4, 1), 2.0 * (-1) ** (t // 9))

    for t in range(30):
        first.step(act(t))
    second.restore(first.snapshot())
    for t in range(30, 80):
        for mine, other in zip(first.step(act(t)), second.step(act(t)), strict=True):
            both = (mine, other) if isinstance(mine, Tensor) else (mine["observation"], other["observation"])
            assert torch.equal(*both)


def test_the_straight_way_costs_and_the_way_around_does_not() -> None:
    task = hazards()
    shown = task.demonstrate(np.arange(16), 0)
    assert shown.terminal.any(1).all()
    assert shown.cost is not None
    assert float(shown.cost.sum()) == 0.0

    @dataclass
    class Straight:
        num_draws: int = 0

        def act(self, context: Any, uniform: Any) -> tuple[Tensor, Tensor]:
            return torch.ones(len(context["observation"]), dtype=torch.long), torch.zeros(len(context["observation"]))

    straight = task.play(Straight(), np.arange(16), np.zeros(16, np.int64), Draw(0), split=0, greedy=True)
    assert straight.cost is not None
    assert float((straight.cost.sum((1, 2)) > 0).float().mean()) >= 0.5
    assert not straight.cost[~straight.mask].any()
