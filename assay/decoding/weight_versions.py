"""Weights that change while rows are decoded: each token is noted with the version that decided it.

Axes: N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from assay.decoding.sampling_parameters import NarrowedDecoder


class VersionedActor:
    """A token actor in place of the inner one. Before each token `newest` may change the weights; it returns their
    version.
    """

    def __init__(self, actor: Any, newest: Callable[[], int]) -> None:
        self.actor, self.newest = actor, newest

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> VersionedDecoder:
        """Returns a decoder of `repeats` rows of each prompt."""
        version = self.newest()
        return VersionedDecoder(self.actor.decoder(prompts, repeats, num_new), self.newest, version)


class VersionedDecoder:
    """Implements the decoder interface. Keys and values stay those of the weights that computed them, so equal weights
    under a new number change no bit; `version` computed the logits.
    """

    def __init__(self, decoder: Any, newest: Callable[[], int], version: int) -> None:
        self.decoder, self.newest, self.version = decoder, newest, version

    def logits(self) -> Tensor:
        """Returns logits [N, V] for the next token."""
        found: Tensor = self.decoder.logits()
        return found

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row, with the newest weights."""
        # Before the push: keys of this token and logits of the next are of one version.
        self.version = self.newest()
        self.decoder.push(tokens)

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self.decoder.keep(rows)


def settled(actor: Any) -> tuple[Any, Callable[[], int] | None]:
    """Returns the actor inside, and what may change its weights; the actor itself if nothing does."""
    return (actor.actor, actor.newest) if isinstance(actor, VersionedActor) else (actor, None)


def versioned(decoder: Any) -> VersionedDecoder | None:
    """Returns the decoder that knows the version of the weights, if this or the one inside it does."""
    inner = decoder.decoder if isinstance(decoder, NarrowedDecoder) else decoder
    return inner if isinstance(inner, VersionedDecoder) else None
