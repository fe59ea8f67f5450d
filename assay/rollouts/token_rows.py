"""Rows of a conversation whose cache is elsewhere, or nowhere: all that is kept of each is its tokens so far.

Axes: B rows, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from assay.ops.decoded import Written


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
