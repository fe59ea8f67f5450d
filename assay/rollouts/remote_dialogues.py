"""Conversations with an actor whose tokens another process samples: a turn is a call with all tokens so far.

Axes: B rows, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.spaces import Vocabulary
from assay.ops.decoded import Ended, Written
from assay.rollouts.completions import Ends, Remote


class RemoteSession:
    """Rows of a remote actor from turn to turn, by the rules of `assay.decoding.sessions.Session`. Row n has the start
    and the seed at n, and its next decision is number `elapsed` at n of its episode.
    """

    def __init__(
        self, actor: Remote, starts: np.ndarray, seeds: np.ndarray, elapsed: np.ndarray, vocabulary: Vocabulary
    ) -> None:
        self.actor, self.starts, self.seeds, self.elapsed = actor, starts, seeds, elapsed.copy()
        self.vocabulary, self.rows = vocabulary, list[list[int]]()

    def __enter__(self) -> RemoteSession:
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
        length = torch.minimum(found.length, limit_B)
        for place, row in enumerate(rows):
            self.rows[row] += found.tokens[place, : int(length[place])].tolist()
        self.elapsed[where] += length.numpy()
        return found._replace(length=length, has_ended=found.has_ended & (found.length <= limit_B))

    def close(self, rows: Sequence[int]) -> None:
        """Does nothing: the other process keeps no rows."""
