"""Conversations with an actor that has only its own cache: a turn reads all tokens so far again.

Axes: B rows, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Vocabulary
from assay.decoding.decode import decode_together, neighbours, same_texts
from assay.ops.decoded import Ended, Written
from assay.rollouts.token_rows import TokenRows


class RereadSession(TokenRows):
    """Rows of an actor from turn to turn. Rows with equal tokens share their prefill."""

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
