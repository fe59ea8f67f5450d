"""Games that tests play, in both forms, and who plays them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from assay.core.record import Draw, Experience
from assay.core.slots import GameTask
from assay.recipes.presets import preset_for
from assay.runs import catalogue
from assay.tasks.games.repeated import TokenGame

STARTS, SAMPLES = np.array([3, 3, 8, 8, 8]), np.array([0, 1, 0, 1, 2])
FORMS = ["prisoners-dilemma", "prisoners-dilemma-vector", "prisoners-dilemma-tokens", "matching-pennies-tokens"]


def actor_for(task):
    torch.manual_seed(5)
    actor = preset_for(task).actor.build(task.spec)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return actor


def played(name: str, split: int = 0, rounds: int = 5, continuation: float = 1.0) -> tuple[GameTask, Experience]:
    task = catalogue.find_task(name)
    task = replace(task, rules=replace(task.rules, rounds=rounds, continuation=continuation))
    actor = actor_for(task)
    return task, task.judge(task.play(actor, STARTS, SAMPLES, Draw(1), split=split, greedy=False), split)


def moves_of(task, fresh: Experience) -> list[list[int]]:
    token = fresh.action - 2 if isinstance(task, TokenGame) else fresh.action
    return [row[there].tolist() for row, there in zip(token, fresh.mask, strict=True)]
