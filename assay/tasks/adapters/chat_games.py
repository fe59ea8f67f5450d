"""Repeated matrix games that chat models play: the rules, messages and moves are turns of a conversation.

Axes: B rows, a row being one player of one game; T tokens. In each round both players write each other a message (games
with talk), read the other's, write their move, and are told both moves. A round is one turn: its utterances are
decisions, what a player is told is context, and the payoff is on the last token of the move. See `games.repeated` and
`games.talk` for the same games in tokens of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.core.record import Draw, Experience
from assay.core.spaces import Spec
from assay.core.verifier import COMPONENT
from assay.decoding.sampling_parameters import LOGP_MODEL
from assay.models.pretrained.chat_texts import Answered, Framed
from assay.models.pretrained.transformers import PretrainedTokenizer
from assay.ops import random
from assay.rollouts import text
from assay.rollouts.completions import complete
from assay.tasks.games.matrix import CHANCE, PLAYERS, Match, Rules
from assay.tasks.games.repeated import TOKEN_ROUNDS, MatrixTask, RepeatedGame, TokenGame, payoff_range
from assay.tasks.games.talk import TalkGame
from assay.tasks.language.prompts import prompt_ids

UTTERANCE = 32
"""Default limit of the tokens of a message, and of a move."""
LONGEST_RULES = 4096
HELD_OUT = 32
"""Games of an evaluation."""
MESSAGE, MOVE = range(2)
ASKED = (
    "Round {round}. Write one short message to the other player.",
    "{heard}Write your move, {moves}, and nothing else.",
)
HEARD = "The other player wrote: {said}\n"
PLAYED = "You played {own}, the other player {other}, and you got {payoff:g} points.\n"
UNREAD = "unread_move"
"""The component that says which share of a row's moves could not be read."""


class Told:
    """The tokens of a row so far, the round of each, where utterances stand in them, and what rounds paid."""

    def __init__(self, opening: list[int]) -> None:
        self.tokens, self.turn = list(opening), [0] * len(opening)
        self.decided: list[tuple[int, Experience, int]] = []
        """(first token, the sampled record, its row)."""
        self.paid: dict[int, float] = {}

    def add(self, ids: list[int], turn: int) -> None:
        """Appends tokens of a round."""
        self.tokens += ids
        self.turn += [turn] * len(ids)

    def decide(self, sampled: Experience, row: int, turn: int) -> list[int]:
        """Appends the decisions of a sampled row and returns them."""
        ids: list[int] = sampled.action[row, sampled.mask[row]].tolist()
        self.decided.append((len(self.tokens), sampled, row))
        self.add(ids, turn)
        return ids

    def fill(self, into: torch.Tensor, column: Callable[[Experience], torch.Tensor]) -> None:
        """Writes a column of the sampled records into the row of a tensor, where its utterances stand."""
        for begin, sampled, row in self.decided:
            found = column(sampled)[row, sampled.mask[row]]
            into[begin : begin + len(found)] = found


@dataclass(frozen=True)
class ChatGame(MatrixTask):
    """A matrix game in a model's chat template: each player is the assistant of a conversation of its own.

    The move is the last letter of a move in an utterance; one without such a letter is drawn at random and counted
    (`reward/unread_move`). A message that is too long for the other's room is cut. Scripted opponents say nothing. An
    utterance has at most `max_tokens` tokens, its end included.
    """

    name: str
    rules: Rules
    tokenizer: PretrainedTokenizer
    talks: bool = False
    max_tokens: int = UTTERANCE
    system: str = ""

    @property
    def spec(self) -> Spec:
        """Returns tokens in, tokens out; scores are payoffs of a round."""
        vocabulary, phases = self.tokenizer.vocabulary, 1 + self.talks
        opening = max(len(self.opening(seat)) for seat in range(PLAYERS))
        heard = self.max_tokens * self.talks + len(self.between(self.longest_question(), -1))
        horizon = opening + self.rules.rounds * phases * (self.max_tokens + heard)
        return Spec(vocabulary, vocabulary, horizon, scores=payoff_range(self.rules.game))

    @property
    def num_held_out(self) -> int:
        """Returns few games, since each is a conversation of many turns for both players."""
        return HELD_OUT

    @property
    def max_decisions(self) -> int:
        """Returns the most tokens of all utterances of a player."""
        return self.rules.rounds * (1 + self.talks) * self.max_tokens

    # ------------------------------------------------------------------------------------------------ words
    def introduction(self, seat: int) -> str:
        """Returns the rules and payoffs as a seat sees them."""
        moves, payoffs = self.rules.game.moves, self.rules.game.payoffs[seat]
        lines = [
            f"If you play {own} and the other plays {other}, you get {float(payoffs[i, j]):g}."
            for i, own in enumerate(moves)
            for j, other in enumerate(moves)
        ]
        rounds = f"You play a game of {self.rules.rounds} rounds with another player. In each round both choose a move"
        return f"{rounds}, {' or '.join(moves)}, at the same time. " + " ".join(lines)

    def question(self, phase: int, time: int, heard: str) -> str:
        """Returns what a player is asked."""
        moves = " or ".join(self.rules.game.moves)
        begun = heard if phase == MESSAGE or self.talks else f"{heard}Round {time + 1}. "
        if phase == MESSAGE:
            return begun + ASKED[MESSAGE].replace("{round}", str(time + 1))
        return ASKED[MOVE].replace("{moves}", moves).replace("{heard}", begun)

    def longest_question(self) -> str:
        """Returns a question at least as long as any, the other's message left out."""
        moves, pay = self.rules.game.moves, max(payoff_range(self.rules.game), key=lambda one: len(f"{one:g}"))
        told = PLAYED.format(own=moves[0], other=moves[0], payoff=pay) + HEARD
        return told + self.question(MESSAGE, 99, "") + self.question(MOVE, 99, "")

    def opening(self, seat: int) -> list[int]:
        """Returns the tokens before the first utterance."""
        asked = self.question(MESSAGE if self.talks else MOVE, 0, "")
        framed = Framed(f"{self.introduction(seat)}\n\n{asked}", self.system)
        return prompt_ids(self.tokenizer, framed, LONGEST_RULES)

    def between(self, words: str, last: int) -> list[int]:
        """Returns the tokens between two utterances; those after an end token do not repeat it."""
        ids = self.tokenizer.encode(Answered(words.strip()))
        return ids[1:] if last == self.tokenizer.vocabulary.eos else ids

    def fitting(self, words: str) -> str:
        """Returns a message, cut to the room that it has in the other's conversation."""
        while len(self.tokenizer.encode(words)) > self.max_tokens:
            words = words[: len(words) * 3 // 4]
        return words

    def move_in(self, words: str) -> int | None:
        """Returns the last move that is named; None without one."""
        found = re.findall(rf"(?<![A-Za-z])[{self.rules.game.moves}](?![A-Za-z])", words)
        return self.rules.game.moves.index(found[-1]) if found else None

    # ------------------------------------------------------------------------------------------------ playing
    @torch.no_grad()
    def played(self, actor: Any, match: Match, draw: Draw, greedy: bool) -> Experience:
        """Plays all rounds of a match, phase by phase."""
        rows = [Told(self.opening(seat)) for seat in match.player.tolist()]
        memory, heard, num = torch.zeros_like(match.player), [""] * len(rows), len(rows)
        unread, paid = torch.zeros(num), torch.zeros(num, int(match.length.max()))
        for time in range(int(match.length.max())):
            if self.talks:
                said = self.spoken(actor, match, rows, draw, time, MESSAGE, greedy, heard)
                heard = [HEARD.replace("{said}", self.fitting(one)) for one in said[match.num :] + said[: match.num]]
            said = self.spoken(actor, match, rows, draw, time, MOVE, greedy, heard)
            who = (match.start, match.sample, match.player.numpy())
            lots = torch.from_numpy(random.uniform(draw.at(CHANCE), *who, time))
            found = [self.move_in(one) for one in said]
            at_random = (lots * len(self.rules.game.moves)).long().tolist()
            move = torch.tensor([at_random[k] if one is None else one for k, one in enumerate(found)])
            move = match.replaced(move, memory, lots.float().unsqueeze(1))
            live = time < match.length
            unread += live * torch.tensor([one is None for one in found])
            paid[:, time] = torch.where(live, match.payoff(move), 0.0)
            memory, heard = match.remembered(move), self.results(match, move, paid[:, time])
            for row, is_live in enumerate(live.tolist()):
                if is_live and match.fixed[row] < 0:
                    rows[row].paid[len(rows[row].tokens) - 1] = float(paid[row, time])
        return self.laid_out(match, rows, unread / match.length)

    def spoken(
        self,
        actor: Any,
        match: Match,
        rows: list[Told],
        draw: Draw,
        time: int,
        phase: int,
        greedy: bool,
        heard: list[str],
    ) -> list[str]:
        """Samples an utterance of every live row of the policy; scripted ones say nothing."""
        live = ((time < match.length) & (match.fixed < 0)).nonzero().flatten().tolist()
        for row in live:
            if rows[row].decided:
                ids = self.between(self.question(phase, time, heard[row]), rows[row].tokens[-1])
                rows[row].add(ids, time)
        # Players of one game draw numbers of their own.
        seats = match.start[live] * PLAYERS + match.player.numpy()[live]
        vocabulary, now = self.tokenizer.vocabulary, draw.at(2 * time + phase)
        given = [rows[row].tokens for row in live]
        sampled = complete(
            actor,
            given,
            seats,
            match.sample[live],
            now,
            max_tokens=self.max_tokens,
            vocabulary=vocabulary,
            greedy=greedy,
        )
        said = [""] * len(rows)
        for place, row in enumerate(live):
            said[row] = text.readable(self.tokenizer, rows[row].decide(sampled, place, time))
        return said

    def results(self, match: Match, move: torch.Tensor, paid: torch.Tensor) -> list[str]:
        """Returns what each player is told after a round."""
        moves = self.rules.game.moves
        own = [moves[one] for one in move.tolist()]
        other = [moves[one] for one in match.others(move).tolist()]
        return [PLAYED.format(own=a, other=b, payoff=c) for a, b, c in zip(own, other, paid.tolist(), strict=True)]

    def laid_out(self, match: Match, rows: list[Told], unread: torch.Tensor) -> Experience:
        """Returns the conversations as sequences."""
        tokens, valid = text.padded_rows([row.tokens for row in rows], self.tokenizer.vocabulary.pad)
        turn, _ = text.padded_rows([row.turn for row in rows], 0)
        sampled = next(row.decided[0][1] for row in rows if row.decided)

        def gathered(column: Callable[[Experience], torch.Tensor]) -> torch.Tensor:
            found = torch.zeros(tokens.shape, dtype=column(sampled).dtype)
            for row, into in zip(rows, found, strict=True):
                row.fill(into, column)
            return found

        mask, logp, reward = gathered(lambda one: one.mask), gathered(lambda one: one.logp), torch.zeros(tokens.shape)
        for row, told in enumerate(rows):
            for place, value in told.paid.items():
                reward[row, place] = value
        last = text.is_last_true(mask)
        cut = last & match.is_cut.unsqueeze(1)
        record = Experience({"tokens": tokens, "valid": valid}, tokens, mask, logp, reward, last & ~cut, cut)
        record = record.add({COMPONENT + UNREAD: unread})
        if LOGP_MODEL in sampled.extra:
            record = record.add({LOGP_MODEL: gathered(lambda one: one.extra[LOGP_MODEL])})
        if sampled.version is not None:
            record = replace(record, version=gathered(versions_of))
        return match.named(record, turn)

    # ------------------------------------------------------------------------------------------------ judging
    def judge(self, experience: Experience, split: int) -> Experience:
        """Adds `score` [B], the mean payoff of a round."""
        assert experience.turn is not None
        rounds = (experience.turn * experience.mask).amax(1) + 1
        return experience.add({"score": (experience.reward * experience.mask).sum(1) / rounds})

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns seat, utterances and payoffs of each round; safe to print."""
        assert experience.turn is not None
        decided, turn = experience.mask[row], experience.turn[row]
        told = {"player": int(experience.player[row]) if experience.player is not None else 0}
        said, payoffs = [], []
        for time in range(int((turn * decided).max()) + 1):
            here = decided & (turn == time)
            said.append(text.escaped(self.tokenizer.decode(experience.action[row, here].tolist())))
            payoffs.append(round(float(experience.reward[row, here].sum()), 3))
        mean = sum(payoffs) / max(1, len(payoffs))
        return told | {"said": said, "payoff": mean, "payoffs": payoffs}


def versions_of(sampled: Experience) -> torch.Tensor:
    """Returns the versions of the weights that sampled a record."""
    assert sampled.version is not None
    return sampled.version


def chat_game(task: MatrixTask, tokenizer: PretrainedTokenizer, max_tokens: int = 0) -> ChatGame:
    """Returns a game for a chat model, with messages if the task has them, of at most `TOKEN_ROUNDS` rounds."""
    assert isinstance(task, RepeatedGame | TokenGame)
    rules = replace(task.rules, rounds=min(task.rules.rounds, TOKEN_ROUNDS))
    return ChatGame(task.name, rules, tokenizer, isinstance(task, TalkGame), max_tokens or UTTERANCE)
