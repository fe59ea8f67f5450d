"""A pairwise judge model: a transformer that scores completions, read from a file. Axes: B, T, M matches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Experience
from assay.core.slots import Choice, Task
from assay.models.heads.score import TransformerScore, load_score

DECIMALS = 4
"""Scores are rounded to this many decimals, so that equal texts tie in whatever batch they are scored."""
AT_ONCE = 256
"""Rows per forward pass of the judge."""


@dataclass(frozen=True)
class ModelJudge(Choice):
    """Scores pairs of completions with the transformer in the file `path`; raises AssayError if its hash is not
    `hash`.

        P(first wins) = sigmoid(score(first) - score(second))

    Each completion is scored on its own, so the order of a pair does not matter. A truncated completion is scored as
    if it ended there. Degenerate: two equal texts tie, with probability 1/2.
    """

    path: str
    hash: str = ""

    def scores(self, experience: Experience, task: Task) -> Callable[[Tensor, Tensor], Tensor]:
        """Reads the file and scores every row once; returns a function that looks up the scores of pairs."""
        if not Path(self.path).is_file():
            raise AssayError(f"there is no judge file '{self.path}'. Give the path of a judge's weights")
        model = load_score(self.path, self.hash)
        if model.vocabulary != task.spec.observation:
            raise AssayError(f"the judge in {self.path} reads {model.vocabulary}; task '{task.name}' has other tokens")
        score_B = text_scores(model, experience).double().round(decimals=DECIMALS)
        return lambda first_M, second_M: score_B[torch.stack((first_M, second_M), 1).cpu()]

    def __call__(self, experience: Experience, task: Task, first_M: Tensor, second_M: Tensor) -> Tensor:
        """Returns the scores [M, 2] of pairs of rows."""
        return self.scores(experience, task)(first_M, second_M)


def text_scores(model: TransformerScore, experience: Experience) -> Tensor:
    """Returns the score of each row's text, [B]."""
    texts, last = finished_texts(model, experience.context["tokens"].cpu(), experience.mask.cpu())
    with torch.no_grad():
        parts = [model({"tokens": rows}) for rows in texts.split(AT_ONCE)]
    return torch.cat(parts).gather(1, last.unsqueeze(1)).squeeze(1)


def finished_texts(model: TransformerScore, tokens_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each row up to its last decision with an end-of-text token after it, [B, T + 1], and that token's
    index, [B].

    A truncated completion has no end of its own. A judge trained on complete texts is undefined on others, and a
    policy would learn to exploit its errors there.
    """
    last = torch.where(mask_BT, torch.arange(mask_BT.shape[1]), 0).amax(1)
    end = last + (tokens_BT.gather(1, last.unsqueeze(1)).squeeze(1) != model.vocabulary.eos)
    texts = torch.nn.functional.pad(tokens_BT, (0, 1), value=model.vocabulary.pad)
    return texts.scatter(1, end.unsqueeze(1), model.vocabulary.eos), end
