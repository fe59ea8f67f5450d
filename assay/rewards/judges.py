"""A pairwise judge that is a model: a transformer that scores completions, read from a file. Axes: B, T, M matches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from assay.networks.score import TransformerScore, load_score
from assay.slots import Task
from assay.types import AssayError, Experience

DECIMALS = 4
"""Scores are rounded to so many, so that equal texts tie, whatever rows they are computed with."""


@lru_cache(maxsize=4)
def judge_of(path: str, hash: str, changed_at: int) -> TransformerScore:
    """The model of a file, read once for each state of the file."""
    return load_score(path, hash)


@dataclass(frozen=True)
class ModelJudge:
    """Two scores a match, by the transformer in `path` (see `critics.score`); other weights than `hash` are refused.

    A completion is scored by itself, so the order of a pair cannot matter. P(first wins) = sigmoid(difference).
    """

    path: str
    hash: str = ""
    not_a_part: ClassVar[str] = "a setting of Arena"

    def __call__(self, experience: Experience, task: Task, first_M: Tensor, second_M: Tensor) -> Tensor:
        """Two scores a match."""
        if not Path(self.path).is_file():
            raise AssayError(f"there is no file '{self.path}' with the weights of a judge")
        model = judge_of(self.path, self.hash, Path(self.path).stat().st_mtime_ns)
        if model.vocabulary != task.spec.observation:
            raise AssayError(f"the judge in {self.path} reads {model.vocabulary}, task '{task.name}' has other tokens")
        rows, place = torch.unique(torch.stack((first_M, second_M), 1), return_inverse=True)
        return self.scores(model, experience.rows(rows).trim())[place]

    @torch.no_grad()
    def scores(self, model: TransformerScore, rows: Experience) -> Tensor:
        """The score of each row at its last decision, [B], float64."""
        values = model({name: column.cpu() for name, column in rows.context.items()})
        columns = torch.arange(rows.num_columns)
        last = torch.where(rows.mask.cpu(), columns, 0).amax(1)
        return values.gather(1, last.unsqueeze(1)).squeeze(1).double().round(decimals=DECIMALS)
