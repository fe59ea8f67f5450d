"""Results of decoding and their stop conditions; the same for a paged sampler and for an actor's own cache.

Axes: B results, N tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from torch import Tensor

from assay.core.errors import AssayError

Ended = Callable[[int, list[int]], None]
"""(number of a result, its tokens): told as soon as a result has ended, while others are still being written."""


class Written(NamedTuple):
    """B completions of up to N tokens: tokens and their log-probabilities [B, N], number of tokens [B], and whether
    each ended by its own decision (end token, stop string) and not at its limit [B]. If sampling is truncated (top-k,
    top-p), also the log-probabilities under the model itself [B, N]; if weights may change meanwhile, also the version
    that decided each token [B, N]; if layers have experts, those chosen plus one by each token of prompt and completion
    [B, T, E], 0 for tokens that were not read.
    """

    tokens: Tensor
    logp: Tensor
    length: Tensor
    has_ended: Tensor
    logp_model: Tensor | None = None
    version: Tensor | None = None
    experts: Tensor | None = None

    def rows(self, index: Tensor) -> Written:
        """Returns the completions at `index`."""
        return Written(*(None if column is None else column[index] for column in self))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Stop:
    """A completion ends with the first token after which the text of its last `reach` tokens contains one of
    `strings`.

    So the end depends on the completion's own tokens alone, not on how often it is checked. Assumes that every token
    adds to the text (a special token inside a stop string hides it) and that text is decoded piece by piece, up to
    broken characters at the ends. Without strings nothing stops.
    """

    decode: Callable[[Sequence[int]], str]
    strings: tuple[str, ...]
    not_a_part: ClassVar[str] = "how a task's results end"

    def __post_init__(self) -> None:
        if not all(self.strings):
            raise AssayError(f"stop strings are {self.strings}: an empty one would end every completion. Remove it")

    @cached_property
    def reach(self) -> int:
        """The most tokens that a stop string can take, one per byte, plus one before it."""
        return 1 + max((len(string.encode()) for string in self.strings), default=0)

    def is_in(self, tokens: Sequence[int]) -> bool:
        """Returns whether their text contains a stop string."""
        text = self.decode(tokens)
        return any(string in text for string in self.strings)

    def first(self, tokens: Sequence[int], since: int = 0) -> int | None:
        """Returns the number of tokens at which a stop string is first complete, after `since` of them."""
        if len(tokens) <= since or not self.is_in(tokens[max(0, since - self.reach) :]):
            return None
        ends = range(since + 1, len(tokens) + 1)
        return next((end for end in ends if self.is_in(tokens[max(0, end - self.reach) : end])), None)
