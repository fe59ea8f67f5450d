"""The state of conversations: utterances so far, pending replies, remaining decisions.

Axes: B rows. A turn is one utterance: it ends with the end token or at its limit; then the partner answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Heard(NamedTuple):
    """The tokens of a reply; or that the episode is over, and whether it was truncated."""

    tokens: list[int]
    is_over: bool = False
    is_cut: bool = False


Answer = Callable[[int, Sequence[list[int]]], Heard]
"""(row, its utterances so far) -> the partner's reply."""


@dataclass(frozen=True)
class Limits:
    """Maximum turns of an episode, tokens of an utterance (the end token included), and tokens of a reply."""

    turns: int
    tokens: int
    reply: int
    not_a_part: ClassVar[str] = "limits of a task"

    @property
    def columns(self) -> int:
        """The length of the longest conversation after the prompt."""
        return self.turns * (self.tokens + self.reply)


def utterances(tokens: Sequence[int], told: Sequence[bool], turn: Sequence[int]) -> list[list[int]]:
    """Returns the decided tokens of one row, turn by turn."""
    found: dict[int, list[int]] = {}
    for token, is_told, place in zip(tokens, told, turn, strict=True):
        if is_told:
            found.setdefault(place, []).append(token)
    return [found[place] for place in sorted(found)]


class Conversations:
    """B conversations. `said` holds finished utterances, `open` and `spoken` the one that is being decided; of the
    reply in `queue` the first `heard` of `waiting` tokens have been fed.
    """

    def __init__(self, num: int, limits: Limits, eos: int, limit: int) -> None:
        self.limits, self.eos = limits, eos
        self.said: list[list[list[int]]] = [[] for _ in range(num)]
        self.open = torch.zeros(num, limits.tokens, dtype=torch.long)
        self.queue = torch.zeros(num, max(1, limits.reply), dtype=torch.long)
        self.turn, self.spoken, self.heard, self.waiting, self.elapsed = torch.zeros(5, num, dtype=torch.long).unbind()
        self.room = torch.full((num,), limit)
        self.over, self.cut, self.done = torch.zeros(3, num, dtype=torch.bool).unbind()

    def begin(self, row: int, said: list[list[int]], has_reply: bool, answer: Answer) -> None:
        """Continues a row where its tokens stop: inside an utterance, before a reply, or after it."""
        last = said[-1] if said else []
        is_finished = len(last) == self.limits.tokens or (len(last) > 0 and last[-1] == self.eos)
        self.elapsed[row] = sum(map(len, said))
        self.said[row] = said if is_finished else said[:-1]
        self.turn[row] = len(self.said[row])
        if not is_finished:
            self.spoken[row] = len(last)
            self.open[row, : len(last)] = torch.tensor(last, dtype=torch.long)
        elif not has_reply:
            self.hear(row, answer)

    def hear(self, row: int, answer: Answer) -> None:
        """Queues the reply to the last utterance for the row, or ends the episode."""
        tokens, self.over[row], self.cut[row] = answer(row, self.said[row])
        self.done[row] |= self.over[row]
        self.heard[row], self.waiting[row] = 0, len(tokens)
        self.queue[row, : len(tokens)] = torch.tensor(tokens, dtype=torch.long)

    def advance(self, rows: Tensor, chosen: Tensor, answer: Answer) -> tuple[Tensor, Tensor]:
        """Returns (token, whether the row decided it): the next token of a pending reply, else the chosen one."""
        heard = self.heard[rows]
        listens = heard < self.waiting[rows]
        token = torch.where(listens, self.queue[rows, heard.clamp(max=self.queue.shape[1] - 1)], chosen)
        self.heard[rows] = heard + listens.long()
        speakers, words = rows[~listens], token[~listens]
        self.open[speakers, self.spoken[speakers]] = words
        self.spoken[speakers] += 1
        self.elapsed[speakers] += 1
        self.room[speakers] -= 1
        self.done[speakers] |= self.room[speakers] == 0
        ends = (words == self.eos) | (self.spoken[speakers] == self.limits.tokens)
        for row in speakers[ends].tolist():
            self.said[row].append(self.open[row, : self.spoken[row]].tolist())
            self.turn[row], self.spoken[row] = len(self.said[row]), 0
            self.hear(row, answer)
        return token, ~listens
