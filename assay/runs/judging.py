"""Training a judge on preference pairs, for rewards that only a judge can give (`rewards.arena`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.core.slots import PairedTask
from assay.engine.loop import Loop
from assay.engine.machine import tuned
from assay.models.heads.score import TransformerScore, save_score
from assay.parts.rewards.judges import ModelJudge
from assay.recipes.judges import preference_score

SCORE = "score"


def fit_judge(
    task: PairedTask, path: str | Path, *, steps: int | None = None, seed: int = 0, recipe: Recipe | None = None
) -> ModelJudge:
    """Trains a scorer on the task's pairs, writes it to `path`, and returns the judge that reads it."""
    chosen = preference_score() if recipe is None else recipe
    num_steps = chosen.steps if steps is None else steps
    loop = Loop(chosen, task, seed=seed, num_steps=num_steps)
    model: Any = loop.engine.models.get(SCORE)
    if not isinstance(model, TransformerScore):
        raise AssayError(
            f"recipe '{chosen.name}' has no critic '{SCORE}' with a head TextScore(). See preference_score()"
        )
    with tuned(sum(flat.values.numel() for flat in loop.engine.flats.values())):
        for _ in range(num_steps):
            loop.step()
    return ModelJudge(str(Path(path).resolve()), save_score(model, path))


def pair_accuracy(judge: ModelJudge, task: PairedTask, num: int = 256) -> float:
    """Returns share of held-out pairs whose chosen completion the judge scores higher; a tie counts a half."""
    pairs = task.pairs(np.arange(num, dtype=np.int64), 1)
    even = torch.arange(0, 2 * num, 2)
    scores = judge(pairs, task, even, even + 1)
    return float(np.mean(wins(scores.tolist())))


def wins(scores: Sequence[Sequence[float]]) -> list[float]:
    """Returns 1 for each match that the first wins, 1/2 for a tie."""
    return [0.5 * ((one > other) + (one >= other)) for one, other in scores]
