"""Repeated matrix games as tasks: players observe the last round, or read all rounds as tokens.

Axes: B rows, a row being one player of one game; T columns. See `assay.tasks.games.matrix` for rules, seats and
opponents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience, Origin
from assay.core.spaces import Box, Context, Discrete, Spec, Vocabulary
from assay.decoding.sampling_parameters import LOGP_MODEL, NarrowedDecoder
from assay.ops import distributions, random
from assay.rollouts.episodes import Recorder, Uniforms
from assay.tasks.games.matrix import (
    CHANCE,
    CHICKEN,
    COOPERATOR,
    DEFECTOR,
    ITSELF,
    MATCHING_PENNIES,
    PLAYERS,
    PRISONERS_DILEMMA,
    STAG_HUNT,
    TIT_FOR_TAT,
    Match,
    MatrixGame,
    Rules,
    Strategy,
    match_of,
)


class MatrixTask:
    """A matrix game of several rounds; subclasses define the observations and how a match is played."""

    rules: Rules

    @property
    def num_players(self) -> int:
        """Returns two."""
        return PLAYERS

    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays games of each (start, sample): see `GameTask`. Rewards are the payoffs of the rounds."""
        return self.played(actor, match_of(self.rules, starts, samples, split), draw, greedy)

    def play_against(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, player: int, split: int
    ) -> Experience:
        """Plays against the opponents of the rules, start by start."""
        return self.played(actor, match_of(self.rules, starts, samples, split, player), draw, greedy=False)

    def played(self, actor: Any, match: Match, draw: Draw, greedy: bool) -> Experience:
        """Plays all rounds of a match."""
        raise NotImplementedError

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score` [B], the mean payoff of a round; rounds have their payoffs already."""
        return scored(experience)


@dataclass(frozen=True)
class RepeatedGame(MatrixTask):
    """Players observe the last round: a number (tables), or with `one_hot` a vector (perceptrons)."""

    name: str
    rules: Rules
    one_hot: bool = False

    @property
    def spec(self) -> Spec:
        """Returns a remembered round in, a move out."""
        num = self.rules.num_states
        seen = Box((0.0,) * num, (1.0,) * num) if self.one_hot else Discrete(num)
        moves = Discrete(len(self.rules.game.moves))
        return Spec(seen, moves, self.rules.rounds, scores=payoff_range(self.rules.game))

    def observed(self, match: Match, memory: Tensor) -> Context:
        """Returns the observation of every row."""
        seat = 0 if self.rules.game.is_symmetric else match.player * self.rules.num_memories
        state = memory + seat
        if not self.one_hot:
            return {"state": state}
        return {"observation": torch.nn.functional.one_hot(state, self.rules.num_states).float()}

    @torch.no_grad()
    def played(self, actor: Any, match: Match, draw: Draw, greedy: bool) -> Experience:
        who = match.start, match.sample, match.player.numpy()
        uniforms, lots = Uniforms(draw, who, actor.num_draws), Uniforms(draw.at(CHANCE), who, 1)
        memory, recorder = torch.zeros_like(match.player), Recorder()
        for time in range(int(match.length.max())):
            context = self.observed(match, memory)
            move, logp = actor.act(context, None if greedy else uniforms.at(time))
            move = match.replaced(move, memory, lots.at(time))
            recorder.add(context, match.row(time, move, logp), None)
            memory = match.remembered(move)
        record = recorder.finish(self.observed(match, memory))
        return match.named(record, torch.arange(record.num_columns))

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns seat, opponent, moves, payoff and, if known, the credit of each round."""
        return describe_game(self.rules.game, experience, row, experience.action[row])


def payoff_range(game: MatrixGame) -> tuple[float, float]:
    """Returns the least and the most that a round pays a player."""
    return float(game.payoffs.min()), float(game.payoffs.max())


def scored(experience: Experience) -> Experience:
    """Adds `score` [B], the mean payoff of a round."""
    return experience.add({"score": (experience.reward * experience.mask).sum(1) / experience.mask.sum(1).clamp(min=1)})


def describe_game(game: MatrixGame, experience: Experience, row: int, move_T: Tensor) -> dict[str, Any]:
    """Returns one row of a game for display."""
    decided = experience.mask[row]
    payoffs = experience.reward[row][decided].double()
    told: dict[str, Any] = {
        "player": int(experience.player[row]) if experience.player is not None else 0,
        "moves": "".join(game.moves[move] for move in move_T[decided].tolist()),
        "payoff": float(payoffs.mean()) if len(payoffs) else 0.0,
        "payoffs": payoffs.round(decimals=3).tolist(),
    }
    if "advantage" in experience.extra:
        told["credit"] = experience.extra["advantage"][row][decided].double().round(decimals=3).tolist()
    return told


# ---------------------------------------------------------------------------------------------------- tokens
FIRST_MOVE = 2
"""The token of move 0."""
Column = tuple[Tensor, ...]
"""(token, mask, logp, reward, terminal, truncated), [B] each, and that of the model if sampling is narrowed."""


@dataclass(frozen=True)
class TokenGame(MatrixTask):
    """The same games as sequences of tokens: bos, the seat where seats differ, then own and other's move in turn.

    A round is two tokens; the own one is a decision, made before the other's is seen. Padding and bos cannot be sampled
    and a game ends by its rounds (eos is padding), so that every sampled token is a move: no move has a second
    spelling, which entropy would favour. Seats are written as moves.
    """

    name: str
    rules: Rules

    @property
    def vocabulary(self) -> Vocabulary:
        """Returns padding, bos, moves."""
        return Vocabulary(FIRST_MOVE + len(self.rules.game.moves), pad=0, bos=1, eos=0)

    @property
    def width(self) -> int:
        """Returns the columns of a round."""
        return PLAYERS

    @property
    def spec(self) -> Spec:
        """Returns tokens in, tokens out."""
        horizon = 2 + self.width * self.rules.rounds
        return Spec(self.vocabulary, self.vocabulary, horizon, scores=payoff_range(self.rules.game))

    def prompts(self) -> list[list[int]]:
        """Returns the prompt of each seat before the first round."""
        seats = [[]] * PLAYERS if self.rules.game.is_symmetric else [[FIRST_MOVE + k] for k in range(PLAYERS)]
        return [[self.vocabulary.bos, *seat] for seat in seats]

    def moves_of(self, token: Tensor) -> Tensor:
        """Returns the move that a token stands for."""
        return (token - FIRST_MOVE).clamp(min=0)

    @torch.no_grad()
    def played(self, actor: Any, match: Match, draw: Draw, greedy: bool) -> Experience:
        """Plays all rounds of a match. Rows advance together and have one length, so that a contiguous cache wastes
        nothing and paging would not help.
        """
        who, longest = (match.start, match.sample, match.player.numpy()), int(match.length.max())
        uniforms, lots = Uniforms(draw, who, 1), Uniforms(draw.at(CHANCE), who, 1)
        decoder = actor.decoder(self.prompts(), [match.num] * PLAYERS, self.width * longest)
        memory, columns, device = torch.zeros_like(match.player), list[Column](), decoder.logits().device
        for time in range(longest):
            token, logp, *model = draw_token(decoder, None if greedy else uniforms.at(time))
            move = match.replaced(self.moves_of(token), memory, lots.at(time))
            token = torch.where(match.fixed >= 0, move + FIRST_MOVE, token)
            own = (token, *match.row(time, move, logp)[1:], *(one * (time < match.length) for one in model))
            columns += [own, unread(match.others(move) + FIRST_MOVE, own)]
            memory = match.remembered(move)
            if time + 1 < longest:
                for column in columns[-PLAYERS:]:
                    decoder.push(column[0].to(device))
        return self.laid_out(match, columns)

    def laid_out(self, match: Match, columns: list[Column]) -> Experience:
        """Returns the sequences of prompts and rounds; columns of the other player are context."""
        prompts = torch.tensor(self.prompts())[match.player]
        first, num = prompts.shape[1], prompts.shape[1] + len(columns)
        place = torch.arange(num)
        valid = place < first + self.width * match.length.unsqueeze(1)

        def spread(index: int) -> Tensor:
            found = torch.stack([column[index] for column in columns], 1)
            return torch.cat([found.new_zeros(len(found), first), found], 1)

        token, mask, logp, reward, terminal, truncated, *model = (spread(index) for index in range(len(columns[0])))
        tokens = torch.where(valid, torch.cat([prompts, token[:, first:]], 1), self.vocabulary.pad)
        record = Experience({"tokens": tokens, "valid": valid}, tokens, mask, logp, reward, terminal, truncated)
        named = match.named(record, (place - first).clamp(min=0) // self.width)
        return named.add({LOGP_MODEL: model[0]}) if model else named

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns seat, opponent, moves, payoff and, if known, the credit of each round."""
        return describe_game(self.rules.game, experience, row, self.moves_of(experience.action[row]))

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Plays a game of random moves for each start, seats alternating: it shows the format, not a strategy."""
        match = replace(match_of(self.rules, starts, np.zeros_like(starts), split), fixed=torch.zeros(0))
        columns = list[Column]()
        for time in range(int(match.length.max())):
            lots = random.uniform(Draw(CHANCE, (split, 1)), match.start, match.player.numpy(), time)
            move = torch.from_numpy((lots * len(self.rules.game.moves)).astype(np.int64))
            own = (move + FIRST_MOVE, *match.row(time, move, torch.zeros(len(move)))[1:])
            columns += [own, unread(match.others(own[0]), own)]
        return self.shown(match, columns, starts, split)

    def shown(self, match: Match, columns: list[Column], starts: np.ndarray, split: int) -> Experience:
        """Returns one row of every game, seats alternating, as demonstrations."""
        seat, num = torch.from_numpy(starts) % PLAYERS, len(starts)
        rows = self.judge(self.laid_out(replace(match, own=seat * num + torch.arange(num)), columns), split)
        return replace(rows, source=torch.full((num,), int(Origin.DATASET)))


def draw_token(decoder: Any, uniform: Tensor | None) -> tuple[Tensor, ...]:
    """Returns the next token of each row with its log-probability, on the CPU; greedy without random numbers."""
    logits = decoder.logits().float()
    token = logits.argmax(-1)
    if uniform is not None:
        token = distributions.categorical_sample(logits, uniform[:, 0].to(logits.device))
    logp = distributions.categorical_logp(logits, token)
    model = (decoder.model_logp(token).cpu(),) if isinstance(decoder, NarrowedDecoder) else ()
    return token.cpu(), logp.cpu(), *model


def unread(token: Tensor, own: Column) -> Column:
    """Returns the column of the other player's token, which is context: every number of a decision is 0."""
    return token, *(torch.zeros_like(one) for one in own[1:])


# ---------------------------------------------------------------------------------------------------- names
GAMES: Mapping[str, MatrixGame] = {
    "prisoners-dilemma": PRISONERS_DILEMMA,
    "stag-hunt": STAG_HUNT,
    "chicken": CHICKEN,
    "matching-pennies": MATCHING_PENNIES,
}
HELD_OUT: Mapping[str, tuple[Strategy | None, ...]] = {
    "": (ITSELF,),
    "-against-defectors": (DEFECTOR,),
    "-tournament": (ITSELF, DEFECTOR, COOPERATOR, TIT_FOR_TAT),
}


TOKEN_ROUNDS = 8
"""Rounds of the token games, which cost more."""


def repeated(name: str, rules: Rules) -> RepeatedGame:
    """Returns the game for tables."""
    return RepeatedGame(name, rules)


def seen_as_vectors(name: str, rules: Rules) -> RepeatedGame:
    """Returns the game for perceptrons."""
    return RepeatedGame(name, rules, one_hot=True)


def read_as_tokens(name: str, rules: Rules) -> TokenGame:
    """Returns the game for transformers."""
    return TokenGame(name, replace(rules, rounds=TOKEN_ROUNDS))


FORMS: Mapping[str, Callable[[str, Rules], RepeatedGame | TokenGame]] = {
    "": repeated,
    "-vector": seen_as_vectors,
    "-tokens": read_as_tokens,
}

LEVELS: Mapping[str, Callable[[], RepeatedGame | TokenGame]] = {
    f"{game}{form}{held_out}": partial(make, f"{game}{form}{held_out}", Rules(rules, opponents=opponents))
    for game, rules in GAMES.items()
    for form, make in FORMS.items()
    for held_out, opponents in HELD_OUT.items()
    if not held_out or game == "prisoners-dilemma"
}
