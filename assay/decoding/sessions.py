"""Texts that are written in several turns with one cache: tokens read or written before are not computed again.

Axes: B results, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from torch import Tensor

from assay.core.errors import AssayError
from assay.decoding.pages import CachedRow, Prompt, Way
from assay.decoding.scheduler import Sampler
from assay.ops.decoded import Ended, Stop, Written


class Session:
    """Rows of a sampler whose pages are kept between turns, numbered in the order of opening.

    Use it in a `with` block, during which only `newest` may change the weights: kept pages stay as they were computed.
    Without it results do not depend on whether pages are kept: if pages run out, or when the sampler is released, idle
    rows lose theirs and are read again when they resume.
    """

    def __init__(self, sampler: Sampler, newest: Callable[[], int] | None = None) -> None:
        self.sampler, self.newest = sampler, newest
        self.rows: list[CachedRow] = []
        self.is_open = False

    def __enter__(self) -> Session:
        self.is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(range(len(self.rows)))  # after the block weights may change, and the pages would be stale
        self.is_open = False

    def check(self) -> None:
        """Raises AssayError outside of its block, where nothing is kept."""
        if not self.is_open:
            raise AssayError("this session is closed, and its pages may be stale. Use it inside `with`")

    def open(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int]) -> list[int]:
        """Opens `repeats` rows of each prompt, which they share."""
        self.check()
        first = len(self.rows)
        for tokens, many in zip(prompts, repeats, strict=True):
            shared = Prompt(list(tokens), many)
            self.rows += [CachedRow(shared, is_kept=True) for _ in range(many)]
        return list(range(first, len(self.rows)))

    def extend(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> None:
        """Appends context that rows read next: replies, forced beginnings. It is computed when they resume."""
        self.check()
        for row, more in zip(rows, tokens, strict=True):
            self.rows[row].own += more  # read together with other rows' at the next `sample`: one pass for all

    def sample(
        self,
        rows: Sequence[int],
        uniform_BN: Tensor | None,
        limit_B: Tensor,
        way: Way,
        stop: Stop | None = None,
        *,
        ended: Ended | None = None,
    ) -> Written:
        """Returns a result of each of these distinct rows; computes only the tokens that a row has not read yet.
        `ended` hears of each result as soon as it has ended.
        """
        self.check()
        if len(set(rows)) < len(rows) or not all(self.rows[row].is_kept for row in rows):
            raise AssayError(f"rows {list(rows)} contain a closed or repeated row. Name open rows, each once")
        # A row twice in one call would write its tokens into the same pages.
        some = [self.rows[row] for row in rows]
        return self.sampler.write(some, uniform_BN, limit_B, way, stop, newest=self.newest, ended=ended)

    def tokens(self, row: int) -> list[int]:
        """Returns all tokens of a row: its prompt, and those it read and wrote."""
        return self.rows[row].prompt.tokens + self.rows[row].own

    def close(self, rows: Sequence[int]) -> None:
        """Closes these rows and frees their pages."""
        for row in rows:
            if self.rows[row].is_kept:
                self.sampler.ledger.leave(self.rows[row])
                self.rows[row].is_kept = False
