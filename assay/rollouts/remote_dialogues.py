"""Conversations with an actor whose tokens another process samples: a turn is a call with all tokens so far.

Axes: B rows, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from assay.core.spaces import Vocabulary
from assay.ops.decoded import Ended, Written
from assay.rollouts.completions import Ends, Remote
from assay.rollouts.reread_sessions import TokenRows


class RemoteSession(TokenRows):
    """Rows of a remote actor from turn to turn. Row n has the start and the seed at n, and its next decision is number
    `elapsed` at n of its episode.
    """

    def __init__(
        self, actor: Remote, starts: np.ndarray, seeds: np.ndarray, elapsed: np.ndarray, vocabulary: Vocabulary
    ) -> None:
        super().__init__()
        self.actor, self.starts, self.seeds, self.elapsed = actor, starts, seeds, elapsed.copy()
        self.vocabulary = vocabulary

    def sample(
        self, rows: Sequence[int], uniform_BN: Tensor | None, limit_B: Tensor, way: Any, *, ended: Ended | None = None
    ) -> Written:
        """Returns an utterance of each row, cut at its limit. Random numbers are those of (seed, time). All utterances
        come at once: `ended` hears of none before.
        """
        where, ends = np.array(rows), Ends(int(limit_B.max()), self.vocabulary)
        prompts, since = [self.rows[row] for row in rows], self.elapsed[where]
        found = self.actor.answers(
            prompts, self.starts[where], self.seeds[where], ends, greedy=way.is_greedy, narrowing=way.narrowing,
            since=since,
        )  # fmt: skip
        appended = self.append(rows, found, limit_B)
        self.elapsed[where] += appended.length.numpy()
        return appended
