"""Chunked decoding of the trained policy: its contexts are those of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Wrapper
from assay.playing.narrowing import Decodes

SMALLEST = 4


def sizes(chunk: int, carry: int, limit: int) -> tuple[int, int]:
    """Returns (chunk, carry) for answers of at most `limit` tokens: for a chunk of 0 a quarter of the limit, at
    least SMALLEST, and for a negative carry half of the chunk. AssayError if the carry leaves no room in a chunk.
    """
    chunk = chunk or max(SMALLEST, limit // 4)
    carry = chunk // 2 if carry < 0 else carry
    if carry >= chunk:
        raise AssayError(f"carry {carry} leaves no room in a chunk of {chunk}. Use less than {chunk}")
    return chunk, carry


@dataclass(frozen=True)
class InChunks(Wrapper):
    """Decodes completions as the rollout `Chunks` does: `chunk` tokens after the prompt, then repeatedly `chunk` -
    `carry` tokens after the prompt and the last `carry` tokens; 0 and -1 derive them from the limit of the answer.

    A policy trained with resets has never seen a longer context or later positions: on undivided answers it is
    another policy. A chunk as long as the answers changes nothing. The number of chunks is not limited as in
    training: an answer ends by itself, or at the task's limit.
    """

    chunk: int = 0
    carry: int = -1
    actor: ClassVar[str] = "actor"
    reads: ClassVar[tuple[str, ...]] = ("actor",)

    def around(self, models: Mapping[str, Any]) -> Any:
        """Returns the actor that is evaluated and exported."""
        if not isinstance(models["actor"], Decodes):
            raise AssayError(f"InChunks needs an actor of tokens; this is {type(models['actor']).__name__}. Drop it")
        return ChunkedActor(models["actor"], self)


class ChunkedActor:
    """A token actor that wraps another and decodes in chunks with its cache; rows advance in step, and their context
    is rebuilt after every chunk.
    """

    def __init__(self, actor: Any, size: InChunks) -> None:
        self.actor, self.size = actor, size

    def decoder(self, prompts: Sequence[Sequence[int]], repeats: Sequence[int], num_new: int) -> ChunkedDecoder:
        """Returns a decoder of rows that decode together, `repeats` of each prompt."""
        return ChunkedDecoder(self.actor, prompts, repeats, *sizes(self.size.chunk, self.size.carry, num_new))


class ChunkedDecoder:
    """Has the decoder's interface; at the end of a chunk it reads the prompts and tails again."""

    def __init__(
        self, actor: Any, prompts: Sequence[Sequence[int]], repeats: Sequence[int], chunk: int, carry: int
    ) -> None:
        self.actor, self.chunk, self.carry, self.left = actor, chunk, carry, chunk
        self.prompts = [list(prompt) for prompt, many in zip(prompts, repeats, strict=True) for _ in range(many)]
        self.tails: list[list[int]] = [[] for _ in self.prompts]
        self.decoder = actor.decoder(prompts, repeats, chunk)

    def logits(self) -> Tensor:
        """Returns the logits of the next token, [N, V]."""
        logits: Tensor = self.decoder.logits()
        return logits

    def push(self, tokens: Tensor) -> None:
        """Appends one token to each row."""
        for tail, token in zip(self.tails, tokens.tolist(), strict=True):
            tail.append(token)
            del tail[: max(0, len(tail) - self.carry)]
        self.left -= 1
        if self.left:
            self.decoder.push(tokens)
            return
        self.left = self.chunk - self.carry
        seen = [prompt + tail for prompt, tail in zip(self.prompts, self.tails, strict=True)]
        self.decoder = self.actor.decoder(seen, [1] * len(seen), self.left)

    def keep(self, rows: Tensor) -> None:
        """Keeps only these rows."""
        self.prompts = [self.prompts[row] for row in rows.tolist()]
        self.tails = [list(self.tails[row]) for row in rows.tolist()]
        self.decoder.keep(rows)
