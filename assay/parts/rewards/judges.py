"""A pairwise judge that is a model: a transformer that scores completions, read from a file. Axes: B, T, M matches."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Task
from assay.models.heads.score import TransformerScore, load_score

DECIMALS = 4
"""Scores are rounded to so many, so that equal texts tie, whatever rows they are computed with."""
AT_ONCE = 256
"""Rows that go through the judge together."""


@lru_cache(maxsize=4)
def judge_of(path: str, hash: str, changed_at: int) -> TransformerScore:
    """The model of a file, read once for each state of the file."""
    return load_score(path, hash)


@dataclass(frozen=True)
class ModelJudge:
    """Two scores a match, by the transformer in `path` (see `critics.score`); other weights than `hash` are refused.

    A completion is scored by itself, so the order of a pair cannot matter. P(first wins) = sigmoid(difference).
    One that was cut is scored as if it ended there.
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
        score = scores_of(model, experience).double().round(decimals=DECIMALS)
        return score[torch.stack((first_M, second_M), 1).cpu()]


class Latest:
    """What was asked about last, and its scores: a tournament asks about the same rows many times."""

    model: TransformerScore | None = None
    asked: tuple[weakref.ref[Tensor], ...] = ()
    scores: Tensor | None = None


def scores_of(model: TransformerScore, experience: Experience) -> Tensor:
    """The score of each row's text, [B]; computed once for the same tensors."""
    asked = (experience.context["tokens"], experience.mask)
    known = [reference() for reference in Latest.asked]
    is_same = Latest.model is model and len(known) == 2 and known[0] is asked[0] and known[1] is asked[1]
    if not is_same or Latest.scores is None:
        texts, last = finished_texts(model, *(column.cpu() for column in asked))
        with torch.no_grad():
            parts = [model({"tokens": rows}) for rows in texts.split(AT_ONCE)]
        Latest.model, Latest.asked = model, tuple(map(weakref.ref, asked))
        Latest.scores = torch.cat(parts).gather(1, last.unsqueeze(1)).squeeze(1)
    return Latest.scores


def finished_texts(model: TransformerScore, tokens_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Each row up to its last decision and an end of text after it, [B, T + 1], and where that end stands, [B].

    A completion that was cut has no end of its own. A judge learned from whole texts knows nothing of others, and a
    policy would soon find what it wrongly likes among them.
    """
    last = torch.where(mask_BT, torch.arange(mask_BT.shape[1]), 0).amax(1)
    end = last + (tokens_BT.gather(1, last.unsqueeze(1)).squeeze(1) != model.vocabulary.eos)
    texts = torch.nn.functional.pad(tokens_BT, (0, 1), value=model.vocabulary.pad)
    return texts.scatter(1, end.unsqueeze(1), model.vocabulary.eos), end
