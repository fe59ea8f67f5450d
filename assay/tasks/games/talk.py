"""Repeated matrix games with talk: in each round both players first write each other a message, then move.

Axes: B rows, a row being one player of one game; T columns. A round of a row is the tokens

    own message | the other's message | own move | the other's move

Messages are written at the same time, in the alphabet of the moves, and bind no one: a player may say one thing and do
another. Own message and own move are decisions, all of one turn; the payoff is at the move. See `repeated` for games
without messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Draw, Experience
from assay.ops import random
from assay.rollouts.episodes import Uniforms
from assay.tasks.games.matrix import CHANCE, PLAYERS, Match, Rules, match_of
from assay.tasks.games.repeated import FIRST_MOVE, GAMES, HELD_OUT, TOKEN_ROUNDS, Column, TokenGame, draw_token, unread


@dataclass(frozen=True)
class TalkGame(TokenGame):
    """A game of tokens whose players write `words` tokens to each other before every move.

    Scripted opponents say the first move, which cooperates, whatever they do then.
    """

    words: int = 3

    @property
    def width(self) -> int:
        """Returns the columns of a round."""
        return PLAYERS * (self.words + 1)

    @torch.no_grad()
    def played(self, actor: Any, match: Match, draw: Draw, greedy: bool) -> Experience:
        """Plays all rounds of a match."""
        who, longest = (match.start, match.sample, match.player.numpy()), int(match.length.max())
        uniforms, lots = Uniforms(draw, who, 1), Uniforms(draw.at(CHANCE), who, 1)
        decoder = actor.decoder(self.prompts(), [match.num] * PLAYERS, self.width * longest)
        memory, columns, device = torch.zeros_like(match.player), list[Column](), decoder.logits().device
        for time in range(longest):
            said = []
            for word in range(self.words):
                uniform = None if greedy else uniforms.at(time * (self.words + 1) + word)
                here, logp, *model = draw_token(decoder, uniform)
                here = torch.where(match.fixed >= 0, FIRST_MOVE, here)
                said.append(spoken(match, time, here, logp, *model))
                decoder.push(here.to(device))
            heard = [unread(match.others(one[0]), one) for one in said]
            for column in heard:
                decoder.push(column[0].to(device))
            uniform = None if greedy else uniforms.at(time * (self.words + 1) + self.words)
            here, logp, *model = draw_token(decoder, uniform)
            move = match.replaced(self.moves_of(here), memory, lots.at(time))
            own = (move + FIRST_MOVE, *match.row(time, move, logp)[1:], *(one * (time < match.length) for one in model))
            columns += [*said, *heard, own, unread(match.others(move) + FIRST_MOVE, own)]
            memory = match.remembered(move)
            if time + 1 < longest:
                for token in (own[0], columns[-1][0]):
                    decoder.push(token.to(device))
        return self.laid_out(match, columns)

    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score` [B], the mean payoff of a round."""
        rounds = experience.mask.sum(1).clamp(min=1) / (self.words + 1)
        return experience.add({"score": (experience.reward * experience.mask).sum(1) / rounds})

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns seat, messages, moves and payoffs of each round."""
        letters, decided = self.rules.game.moves, experience.mask[row]
        said = [letters[move] for move in self.moves_of(experience.action[row])[decided].tolist()]
        width = self.words + 1
        rounds = ["".join(said[place : place + width]) for place in range(0, len(said), width)]
        payoffs = experience.reward[row][decided].double()[self.words :: width]
        return {
            "player": int(experience.player[row]) if experience.player is not None else 0,
            "said": [one[: self.words] for one in rounds],
            "moves": "".join(one[self.words :] for one in rounds),
            "payoff": float(payoffs.mean()) if len(payoffs) else 0.0,
            "payoffs": payoffs.round(decimals=3).tolist(),
        }

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Plays a game of random messages and moves for each start, seats alternating: it shows the format."""
        match = replace(match_of(self.rules, starts, np.zeros_like(starts), split), fixed=torch.zeros(0))
        columns = list[Column]()
        for time in range(int(match.length.max())):
            lots = [
                random.uniform(Draw(CHANCE, (split, 2)), match.start, match.player.numpy(), time, word)
                for word in range(self.words + 1)
            ]
            picked = [torch.from_numpy((one * len(self.rules.game.moves)).astype(np.int64)) for one in lots]
            nothing = torch.zeros(len(picked[0]))
            said = [spoken(match, time, one + FIRST_MOVE, nothing) for one in picked[:-1]]
            own = (picked[-1] + FIRST_MOVE, *match.row(time, picked[-1], nothing)[1:])
            heard = [unread(match.others(one[0]), one) for one in said]
            columns += [*said, *heard, own, unread(match.others(own[0]), own)]
        return self.shown(match, columns, starts, split)


def spoken(match: Match, time: int, token: Tensor, logp: Tensor, *model: Tensor) -> Column:
    """Returns the column of a word: a decision without a payoff, which ends nothing."""
    live = time < match.length
    no = torch.zeros_like(live)
    return token, live, torch.where(live, logp, 0.0), torch.zeros_like(logp), no, no, *(one * live for one in model)


def talk_game(name: str, rules: Rules) -> TalkGame:
    """Returns the game with messages, of as many rounds as that without."""
    return TalkGame(name, replace(rules, rounds=TOKEN_ROUNDS))


LEVELS: Mapping[str, Any] = {
    f"{game}-talk{held_out}": partial(talk_game, f"{game}-talk{held_out}", Rules(GAMES[game], opponents=opponents))
    for game in ("prisoners-dilemma", "stag-hunt")
    for held_out, opponents in HELD_OUT.items()
    if not held_out or game == "prisoners-dilemma"
}
