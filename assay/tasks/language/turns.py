"""Demonstrated conversations as experience: all replies that are trained are decisions. Axes: B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.rollouts import text
from assay.rollouts.text import Said, Tokenizer

Pieces = list[tuple[list[int], bool]]
"""A sequence in pieces: tokens, and whether they are decisions."""


@runtime_checkable
class TurnTokenizer(Tokenizer, Protocol):
    """A tokenizer that writes conversations in a chat template of its own, where the model has one."""

    @property
    def frame(self) -> tuple[str, str]:
        """The text that the template writes before and after a prompt; empty without a template."""

    def pieces(self, prompt: str, said: Said) -> Pieces:
        """Returns the tokens of a conversation up to its last trained reply."""


def trains_turns(prompt: str, said: str) -> bool:
    """Returns whether other decisions than the demonstration alone are trained."""
    earlier = getattr(prompt, "messages", ())
    return isinstance(said, Said) and (any(one.trained for one in earlier) or not said.message.trained)


def pieces_of(tokenizer: Tokenizer, prompt: str, said: str) -> Pieces:
    """Returns the tokens of a conversation in pieces, none if the demonstration alone is trained.

    Without a chat template the prompt has the same text as ever, every message after its role; replies in it are
    trained where they stand, without an end token, and the last one with it.
    """
    if not isinstance(said, Said) or not trains_turns(prompt, said):
        return []
    if isinstance(tokenizer, TurnTokenizer) and any(tokenizer.frame):
        return tokenizer.pieces(prompt, said)
    tools: str = getattr(prompt, "tools", "")
    context, pieces = f"tools: {tools}" if tools else "", list[tuple[str, bool]]()
    for message in getattr(prompt, "messages", ()):
        context += ("\n\n" if context or pieces else "") + f"{message.role}: "
        if message.trained:
            pieces += [(context, False), (message.shown, True)]
        context = "" if message.trained else context + message.shown
    pieces.append((context, False))
    found = [(tokenizer.encode(words), decided) for words, decided in pieces if words]
    found[0][0].insert(0, tokenizer.vocabulary.bos)
    last = [*tokenizer.encode(said), tokenizer.vocabulary.eos]
    return [*found, *([(last, True)] if said.message.trained else [])]


def with_pieces(rows: Sequence[Pieces], start_B: Tensor, filler: int) -> Experience:
    """Returns rows of pieces as experience: reward 0, `mask` on the decisions, `terminal` on the last of them."""
    whole = [[token for ids, _ in pieces for token in ids] for pieces in rows]
    record = text.written(whole, [[] for _ in rows], start_B, filler)
    mask_BT = torch.zeros_like(record.mask)
    for row, pieces in enumerate(rows):
        decided = [is_decided for ids, is_decided in pieces for _ in ids]
        mask_BT[row, : len(decided)] = torch.tensor(decided)
    return replace(record, mask=mask_BT, terminal=text.is_last_true(mask_BT))
