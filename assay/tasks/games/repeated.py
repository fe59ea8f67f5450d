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
        return described(self.rules.game, experience, row, experience.action[row])


def payoff_range(game: MatrixGame) -> tuple[float, float]:
    """Returns the least and the most that a round pays a player."""
    return float(game.payoffs.min()), float(game.payoffs.max())


def scored(experience: Experience) -> Experience:
    """Adds `score` [B], the mean payoff of a round."""
    return experience.add({"score": (experience.reward * experience.mask).sum(1) / experience.mask.sum(1).clamp(min=1)})


def described(game: MatrixGame, experience: Experience, row: int, move_T: Tensor) -> dict[str, Any]:
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
    def spec(self) -> Spec:
        """Returns tokens in, tokens out."""
        horizon = 2 + PLAYERS * self.rules.rounds
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
        decoder = actor.decoder(self.prompts(), [match.num] * PLAYERS, PLAYERS * longest)
        memory, written = torch.zeros_like(match.player), []
        for time in range(longest):
            logits = decoder.logits().float()
            uniform = uniforms.at(time)[:, 0].to(logits.device)
            token = logits.argmax(-1) if greedy else distributions.categorical_sample(logits, uniform)
            logp, here = distributions.categorical_logp(logits, token).cpu(), token.cpu()
            move = match.replaced(self.moves_of(here), memory, lots.at(time))
            here = torch.where(match.fixed >= 0, move + FIRST_MOVE, here)
            other = match.others(move) + FIRST_MOVE
            row = match.row(time, move, logp)
            if isinstance(decoder, NarrowedDecoder):
                row = (*row, decoder.model_logp(token).cpu() * row[1])
            written.append((here, other, row))
            memory = match.remembered(move)
            if time + 1 < longest:
                decoder.push(here.to(token.device))
                decoder.push(other.to(token.device))
        return self.record(match, written)

    def record(self, match: Match, written: list[tuple[Tensor, Tensor, tuple[Tensor, ...]]]) -> Experience:
        """Returns sequences of prompts and rounds; the columns of a decision are at the own token."""
        prompts = torch.tensor(self.prompts())[match.player]
        rounds = [column for own, other, _ in written for column in (own, other)]
        tokens = torch.cat([prompts, torch.stack(rounds, 1)], 1)
        first = prompts.shape[1]
        column = torch.arange(tokens.shape[1])
        valid = column < first + PLAYERS * match.length.unsqueeze(1)

        def spread(index: int) -> Tensor:
            here = torch.stack([row[index] for _, _, row in written], 1)
            result = here.new_zeros(tokens.shape)
            result[:, first::PLAYERS] = here
            return result

        _, mask, logp, reward, terminal, truncated, *model = (spread(index) for index in range(len(written[0][2])))
        tokens = torch.where(valid, tokens, self.vocabulary.pad)
        context = {"tokens": tokens, "valid": valid}
        record = Experience(context, tokens, mask, logp, reward, terminal, truncated)
        named = match.named(record, (column - first).clamp(min=0) // PLAYERS)
        return named.add({LOGP_MODEL: model[0]}) if model else named

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns seat, opponent, moves, payoff and, if known, the credit of each round."""
        return described(self.rules.game, experience, row, self.moves_of(experience.action[row]))

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Plays a game of random moves for each start, seats alternating: it shows the format, not a strategy."""
        match = replace(match_of(self.rules, starts, np.zeros_like(starts), split), fixed=torch.zeros(0))
        num, moves = len(starts), len(self.rules.game.moves)
        written = []
        for time in range(int(match.length.max())):
            lots = random.uniform(Draw(CHANCE, (split, 1)), match.start, match.player.numpy(), time)
            move = torch.from_numpy((lots * moves).astype(np.int64))
            row = match.row(time, move, torch.zeros(len(move)))
            written.append((move + FIRST_MOVE, match.others(move) + FIRST_MOVE, row))
        seat = torch.from_numpy(starts) % PLAYERS
        shown = scored(self.record(replace(match, own=seat * num + torch.arange(num)), written))
        return replace(shown, source=torch.full((num,), int(Origin.DATASET)))


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
