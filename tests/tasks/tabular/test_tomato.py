"""tomato: what a decision looks worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw
from assay.core.slots import Scene
from assay.methods.orpo_occupancy import SeenReward
from assay.tasks.control.stepping import Scripted
from assay.tasks.tabular.tomato import tomato


def test_a_decision_looks_worth_the_share_of_tomatoes_that_look_wet_after_it() -> None:
    """On a walk past tomatoes and sprinkler."""

    around = torch.tensor([1, 1, 2, 0, 3, 2, 1, 0, 3])  # from the middle to the left, then clockwise

    def walk(context: Any) -> Tensor:
        return around[context["state"] // 8]

    task, first = tomato(), np.zeros(1, np.int64)
    played = task.play(Scripted(walk), first, first, Draw(0), split=0, greedy=True)
    found = SeenReward()(played, Scene(task)).reward[0]
    state, wanted = played.context["state"][0].tolist(), []
    for place, is_there in enumerate(played.mask[0].tolist()):
        cell, wet = divmod(state[place + 1], 8) if is_there else (0, 0)
        wanted.append(1.0 if cell == 5 else bin(wet).count("1") / 3)
    assert len({round(one, 6) for one in wanted}) > 2
    assert np.allclose(found.numpy(), wanted)
