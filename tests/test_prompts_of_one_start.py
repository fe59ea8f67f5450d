"""Rows of one start may have different prompts: each is completed from its own."""

from __future__ import annotations

import numpy as np
import torch

from assay.core.record import Draw, Need
from assay.engine.loop import Loop
from assay.recipes import grpo
from assay.tasks.language.judging import judging


def test_rows_of_one_start_are_completed_from_their_own_prompts() -> None:
    task = judging()
    actor = Loop(grpo(), task, seed=0, num_steps=1).actor
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.mul_(3.0)
    prompts, starts = ["aaaa|bbbb=", "bbbb|aaaa=", "aaaa|bbbb="], np.array([0, 0, 0])
    played = task.play_prompts(actor, prompts, starts, np.arange(3), Draw(1), split=0)
    with torch.no_grad():
        logp = actor.score(played, frozenset({Need.LOGP})).logp
    assert torch.allclose(logp, played.logp, atol=1e-4)
