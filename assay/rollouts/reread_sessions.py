"""Conversations whose rows have no cache between turns: all tokens so far are kept, and read again at each turn.

Axes: B rows, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Vocabulary
from assay.decoding.decode import decode_together, neighbours, same_texts
from assay.ops.decoded import Ended, Written


class TokenRows:
    """Rows from turn to turn, by the rules of `assay.decoding.sessions.Session`; a kind of rows adds `sample`."""

    def __init__(self) -> None:
        self.rows = list[list[int]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rows = []

    def open(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int]) -> list[int]:
        """Opens `repeats` rows of each prompt."""
        self.rows = [list(prompt) for prompt, many in zip(prompts, repeats, strict=True) for _ in range(many)]
        return list(range(len(self.rows)))

    def extend(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Appends context that rows read next."""
        for row, more in zip(rows, tokens, strict=True):
            self.rows[row] += more

    def append(self, rows: Sequence[int], found: Written, limit_B: Tensor) -> Written:
        """Appends an utterance to each of the rows, cut at its limit, and returns what was appended."""
        length = torch.minimum(found.length, limit_B)
        for place, row in enumerate(rows):
            self.rows[row] += found.tokens[place, : int(length[place])].tolist()
        return found._replace(length=length, has_ended=found.has_ended & (found.length <= limit_B))

    def close(self, rows: Sequence[int]) -> None:
        """Does nothing: no row has a cache here."""


class RereadSession(TokenRows):
    """Rows of an actor that has only its own cache. Rows with equal tokens share their prefill."""

    def __init__(self, actor: Any, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.actor, self.vocabulary = actor, vocabulary

    def sample(
        self, rows: Sequence[int], uniform_BN: Tensor | None, limit_B: Tensor, way: Any, *, ended: Ended | None = None
    ) -> Written:
        """Returns an utterance of each row, cut at its limit; `ended` hears of each as soon as it has ended."""
        given = [self.rows[row] for row in rows]
        order, distinct, repeats = neighbours(same_texts(np.zeros(len(given), dtype=np.int64), given))
        shown, most = [given[place] for place in distinct], int(limit_B.max())
        found = decode_together(
            self.actor, shown, repeats, torch.tensor(order), uniform_BN, most, self.vocabulary, ended=ended
        )
        return self.append(rows, found, limit_B)
