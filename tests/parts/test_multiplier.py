"""Constraints on several channels of cost: each has a multiplier and metrics of its own."""

from __future__ import annotations

from dataclasses import replace

import torch

from assay.claims import probes
from assay.core.slots import ALONE
from assay.parts.constraints.multiplier import Ascent, Multiplier


def test_two_channels_move_apart_and_are_reported_apart() -> None:
    data = probes.sequences(num=8)
    cost = torch.stack((torch.full_like(data.reward, 0.1), torch.ones_like(data.reward)), -1)
    data = replace(data, cost=cost).add({"advantage": torch.ones_like(data.reward)})
    length = data.mask[data.mask.any(1)].sum(1).double().mean()
    scene, parts = ALONE.given(metrics={}), [Multiplier(1.0, Ascent(0.5), channel=place) for place in (0, 1)]
    for part in parts:
        state = part.init(scene)
        part(data, scene, state)
        wanted = max(0.0, 0.5 * float(length * (0.1, 1.0)[part.channel] - 1.0))
        assert abs(state["multiplier"] - wanted) < 1e-6
    assert scene.metrics.keys() == {"cost", "multiplier", "cost_1", "multiplier_1"}
    assert scene.metrics["multiplier"][0][0] == 0.0 < scene.metrics["multiplier_1"][0][0]
    assert [one.name for one in parts[1].watches] == ["cost_1", "multiplier_1"]
