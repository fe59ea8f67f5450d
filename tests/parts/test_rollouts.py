"""Rollouts around others, and rows rewritten onto another prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from assay.core.slots import frame_of
from assay.methods.delethink import Chunks
from assay.methods.rl_plus import WithDemonstrations
from assay.parts.rollouts.episodes import Episodes
from assay.parts.rollouts.narrowed import Narrowed
from assay.tasks.language.addition import addition

TASK = addition(1)


def test_rows_keep_their_log_probabilities_on_another_prompt() -> None:
    shown = TASK.demonstrate(np.arange(2), 0)
    recorded = shown.with_columns(logp=torch.where(shown.mask, -torch.rand(shown.mask.shape), 0.0))
    moved = TASK.onto(recorded, ["9+9+9+9=", "1="])
    for row in range(2):
        assert torch.equal(moved.logp[row][moved.mask[row]], recorded.logp[row][recorded.mask[row]])
        assert torch.equal(moved.action[row][moved.mask[row]], recorded.action[row][recorded.mask[row]])


def test_a_rollout_around_another_keeps_its_starts_and_its_frame() -> None:
    inner = Chunks(num_starts=5)
    for around in (Narrowed(inner), WithDemonstrations(inner)):
        assert around.num_starts == 5
        assert frame_of(around) == inner.frame
        assert frame_of(replace(around, gather=Episodes())) is None
