"""Rules of repeated matrix games: payoffs, fixed strategies, length of a game, seats.

Axes: R rows, a row being one player of one game; n games, rows 0..n-1 are their first players and n..2n-1 their second;
T columns, A moves. One policy plays both players; held-out starts set it against itself or against fixed strategies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience
from assay.ops import random

PLAYERS = 2
CHANCE = 13
"""The draw of a game's own chance: how long it lasts."""


@dataclass(frozen=True)
class MatrixGame:
    """Payoffs `first`[a][b] and `second`[a][b] where the first player chose a and the second b."""

    first: tuple[tuple[float, ...], ...]
    second: tuple[tuple[float, ...], ...]
    moves: str = "CD"

    def __post_init__(self) -> None:
        size = len(self.moves)
        if any(len(rows) != size or any(len(row) != size for row in rows) for rows in (self.first, self.second)):
            raise AssayError(f"MatrixGame: {size} moves ({self.moves}) need payoffs of {size} rows of {size} numbers")

    @property
    def is_symmetric(self) -> bool:
        """Returns whether the game is the same for both players."""
        return self.second == tuple(zip(*self.first, strict=True))

    @cached_property
    def payoffs(self) -> Tensor:
        """Returns [player, own move, the other's move]."""
        return torch.stack([torch.tensor(self.first), torch.tensor(self.second).T])


def symmetric(*rows: tuple[float, ...]) -> MatrixGame:
    """Returns a game in which the second player's payoffs are the first's."""
    return MatrixGame(rows, tuple(zip(*rows, strict=True)))


PRISONERS_DILEMMA = symmetric((-1.0, -3.0), (0.0, -2.0))
STAG_HUNT = symmetric((4.0, 1.0), (3.0, 2.0))
CHICKEN = symmetric((3.0, 1.0), (5.0, 0.0))
MATCHING_PENNIES = MatrixGame(((1.0, -1.0), (-1.0, 1.0)), ((-1.0, 1.0), (1.0, -1.0)), moves="HT")


@dataclass(frozen=True)
class Strategy:
    """A fixed player of two moves that remembers one round: the probability of move 0 in the first round and after
    (own, other's) moves 00, 01, 10, 11.
    """

    name: str
    probability: tuple[float, float, float, float, float]


DEFECTOR = Strategy("always defect", (0.0, 0.0, 0.0, 0.0, 0.0))
COOPERATOR = Strategy("always cooperate", (1.0, 1.0, 1.0, 1.0, 1.0))
TIT_FOR_TAT = Strategy("tit for tat", (1.0, 1.0, 0.0, 1.0, 0.0))
ITSELF = None
"""The policy in both seats."""


@dataclass(frozen=True)
class Rules:
    """A game of at most `rounds` rounds; after each it continues with probability `continuation`.

    The length of a start's game is drawn once, so that its copies have one length. If continuation < 1, a game that
    reaches `rounds` is truncated, else it ends there. Held-out start k plays opponents[k mod their number], from the
    first seat and from the second in turn.
    """

    game: MatrixGame
    rounds: int = 16
    continuation: float = 1.0
    opponents: tuple[Strategy | None, ...] = (ITSELF,)

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 < self.continuation <= 1 or not self.opponents:
            raise AssayError(
                f"{self}: a setting is out of range. Use rounds >= 1, 0 < continuation <= 1, and at least one opponent"
            )

    @property
    def num_states(self) -> int:
        """Returns the number of observations: no round yet, or a pair of moves; times two if seats differ."""
        return self.num_memories * (1 if self.game.is_symmetric else PLAYERS)

    @property
    def num_memories(self) -> int:
        """Returns 1 + A^2."""
        return 1 + len(self.game.moves) ** 2

    def length(self, starts: np.ndarray, split: int) -> tuple[Tensor, Tensor]:
        """Returns (rounds of each start's game, whether it is cut)."""
        if self.continuation == 1.0:
            return torch.full((len(starts),), self.rounds), torch.zeros(len(starts), dtype=torch.bool)
        chance = random.uniform(Draw(CHANCE, (split,)), starts[:, None], np.arange(self.rounds)[None])
        stops = torch.from_numpy(chance >= self.continuation)
        length = torch.where(stops.any(1), stops.long().argmax(1) + 1, self.rounds)
        return length, ~stops.any(1)


@dataclass(frozen=True, eq=False)
class Match:
    """n games at once: seats and the last moves. Rows are players, the first players first."""

    rules: Rules
    start: np.ndarray
    sample: np.ndarray
    player: Tensor
    length: Tensor
    is_cut: Tensor
    fixed: Tensor
    """[R]: the number of the strategy that moves this row, -1 for the policy."""
    own: Tensor
    """[K]: the rows that are kept."""

    @property
    def num(self) -> int:
        """Games."""
        return len(self.player) // PLAYERS

    def replaced(self, move: Tensor, memory: Tensor, uniform: Tensor) -> Tensor:
        """Returns the moves of the policy and of the strategies in their seats."""
        if bool((self.fixed < 0).all()):
            return move
        table = torch.tensor([[0.0] * 5 if one is None else one.probability for one in self.rules.opponents])
        theirs = (uniform[:, 0] >= table[self.fixed.clamp(min=0), memory]).long()
        return torch.where(self.fixed >= 0, theirs, move)

    def others(self, move: Tensor) -> Tensor:
        """Returns the move of each row's opponent."""
        return move.roll(self.num)

    def remembered(self, move: Tensor) -> Tensor:
        """Returns 1 + own move * A + the opponent's move."""
        return 1 + move * len(self.rules.game.moves) + self.others(move)

    def payoff(self, move: Tensor) -> Tensor:
        """Returns the payoff of each row in a round."""
        return self.rules.game.payoffs[self.player, move, self.others(move)]

    def row(self, time: int, move: Tensor, logp: Tensor) -> tuple[Tensor, ...]:
        """Returns a round's (action, mask, logp, reward, terminal, truncated)."""
        live, last = time < self.length, time == self.length - 1
        reward = torch.where(live, self.payoff(move), 0.0)
        return move, live, torch.where(live, logp, 0.0), reward, last & ~self.is_cut, last & self.is_cut

    def named(self, record: Experience, turn: Tensor) -> Experience:
        """Returns the kept rows with the columns of seat and opponent."""
        start, sample = torch.from_numpy(self.start), torch.from_numpy(self.sample)
        named = replace(
            record,
            group=start * PLAYERS + self.player,
            episode=start * 2**20 + sample,
            player=self.player,
            turn=turn.expand(record.mask.shape),
        )
        return named.add({"start": start, "sample": sample}).rows(self.own)


def match_of(rules: Rules, starts: np.ndarray, samples: np.ndarray, split: int, player: int | None = None) -> Match:
    """Returns seats for these starts: the policy everywhere on split 0; opponents by ordinal on split 1, and if the
    policy's seat is given.
    """
    num, kinds = len(starts), len(rules.opponents)
    place = torch.arange(num)
    seats = torch.arange(PLAYERS).repeat_interleave(num)
    fixed, own = torch.full((PLAYERS * num,), -1), torch.arange(PLAYERS * num)
    if split or player is not None:
        ordinal = torch.from_numpy(starts)
        kind = ordinal % kinds
        seat = ordinal // kinds % PLAYERS if player is None else torch.full_like(ordinal, player)
        is_strategy = torch.tensor([one is not None for one in rules.opponents])[kind]
        fixed[(1 - seat) * num + place] = torch.where(is_strategy, kind, -1)
        own = seat * num + place
    length, is_cut = rules.length(starts, split)
    twice = (np.tile(starts, PLAYERS), np.tile(samples, PLAYERS))
    return Match(rules, *twice, seats, length.repeat(PLAYERS), is_cut.repeat(PLAYERS), fixed, own)
