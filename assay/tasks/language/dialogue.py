"""Conversations: the policy writes an utterance, a partner replies in text, and so on until the end.

Axes: B sequences, T tokens. A sequence is one episode. Decision t is token t, given the tokens before it; the prompt
and the partner's replies are context: mask false. The column `turn` counts the utterances finished before a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, Outcome, PolicyFault, Score
from assay.core.spaces import Spec
from assay.decoding.sampling_parameters import LOGP_MODEL
from assay.rollouts import outcomes, text
from assay.rollouts.completions import complete
from assay.rollouts.dialogues import converse
from assay.rollouts.text import Tokenizer
from assay.rollouts.turns import Heard, Limits, utterances
from assay.tasks.language import session_records as records
from assay.tasks.language.items import FiniteItems, Item
from assay.tasks.language.laid_out import laid_out as laid_out
from assay.tasks.language.laid_out import with_turn_rewards
from assay.tasks.language.open_sessions import Meter
from assay.tasks.language.partners import MeasuredPartner as MeasuredPartner
from assay.tasks.language.partners import OverItems, Partner, checked_reply
from assay.tasks.language.partners import Reply as Reply
from assay.tasks.language.prompts import completion_ids, prompt_ids
from assay.tasks.language.scoring import Scorer, components, scored, token_credits
from assay.tasks.language.session_play import InSessions
from assay.tasks.language.sessions import Sessions, Waiting

SAID = ("start", "sample", "split", LOGP_MODEL, *records.COLUMNS)
"""Columns of whole conversations."""
NO_END = PolicyFault(outcomes.TURNS)


@dataclass(frozen=True)
class DialogueTask:
    """Plays and judges conversations with a partner. An utterance ends with eos, or is cut at `max_tokens` (counting
    eos) and answered as it is; an episode ends with an outcome, or after `max_turns` turns without one: a fault.

    The reward of a turn is on its last token, the outcome on the last token of all. `max_prompt` counts bos. A `scorer`
    takes the place of the partner's outcomes and rewards. A partner with sessions is asked while rows are played, as
    `waiting` allows, and never again: all else reads the record. `is_limited` says that `max_tokens` was chosen.
    """

    name: str
    partner: Partner | Sessions
    tokenizer: Tokenizer
    max_prompt: int
    max_turns: int
    max_tokens: int
    max_reply: int
    system: str = ""
    scorer: Scorer | None = None
    is_limited: bool = field(default=False, repr=False, compare=False)
    waiting: Waiting = field(default=Waiting(), repr=False)
    meter: Meter = field(default_factory=Meter, repr=False, compare=False)

    @property
    def spec(self) -> Spec:
        """Returns tokens in, tokens out."""
        vocabulary = self.tokenizer.vocabulary
        scores = None if self.scorer is None else self.scorer.scores
        return Spec(vocabulary, vocabulary, horizon=self.max_prompt + self.limits.columns, scores=scores)

    @property
    def max_decisions(self) -> int:
        """Returns the most tokens of all utterances of a conversation."""
        return self.max_turns * self.max_tokens

    @property
    def limits(self) -> Limits:
        """Returns the limits of turns, utterances and replies."""
        return Limits(self.max_turns, self.max_tokens, self.max_reply)

    # ------------------------------------------------------------------------------------------------ playing
    def play(
        self, actor: Any, starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int, greedy: bool
    ) -> Experience:
        """Plays a conversation for each (start, sample); rewards are still 0."""
        played = self.talk(actor, self.begin(starts, split), samples, draw, split, self.limits.columns, greedy)
        return replace(played, extra={name: played.extra[name] for name in SAID if name in played.extra})

    def prompts(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the task's own prompt of each start."""
        return [item.prompt for item in self.items_of(starts, split)]

    def play_prompts(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw, *, split: int
    ) -> Experience:
        """Plays conversations that begin with other prompts; `max_prompt` does not apply, since a lesson makes a prompt
        longer.
        """
        begun = self.begun(self.told(prompts), starts, split)
        played = self.talk(actor, begun, samples, draw, split, self.limits.columns, False)
        return replace(played, extra={name: played.extra[name] for name in SAID if name in played.extra})

    def told(self, prompts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens of prompts that a part has written."""
        return [[self.tokenizer.vocabulary.bos, *self.tokenizer.encode(prompt)] for prompt in prompts]

    def say(
        self, actor: Any, prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray, draw: Draw
    ) -> tuple[list[str], int]:
        """Returns one utterance after each prompt, to which no partner replies, and their tokens."""
        ids, vocabulary = self.told(prompts), self.tokenizer.vocabulary
        played = complete(
            actor, ids, starts, samples, draw, max_tokens=self.max_tokens, vocabulary=vocabulary, greedy=False
        )
        rows = zip(played.action, played.mask, strict=True)
        return [text.readable(self.tokenizer, row[there].tolist()) for row, there in rows], int(played.mask.sum())

    def begin(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the prompts alone."""
        prompts = [prompt_ids(self.tokenizer, item.prompt, self.max_prompt) for item in self.items_of(starts, split)]
        return self.begun(prompts, starts, split)

    def begun(self, prompts: Sequence[list[int]], starts: np.ndarray, split: int) -> Experience:
        """Returns prompts, given as tokens, as sequences without a decision."""
        start_B = torch.as_tensor(starts, dtype=torch.int64)
        begun = laid_out([[(ids, False, 0)] for ids in prompts], start_B, self.tokenizer.vocabulary.pad)
        return replace(begun, source=None).add({"split": torch.full_like(start_B, split)})

    def resume(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, *, split: int, limit: int | None = None
    ) -> Experience:
        """Continues the conversation of each row."""
        told = begun.extra.get("answer", begun.mask).sum(1)
        if begun.turn is None or bool((begun.extra.get("elapsed", told) != told).any()):
            raise AssayError(f"task '{self.name}' continues whole conversations only. Use the rollout Episodes")
        if isinstance(self.partner, Sessions) and not self.partner.is_repeatable and bool(told.any()):
            raise AssayError(f"task '{self.name}' has sessions that cannot be repeated. Use the rollout Episodes")
        return self.talk(actor, begun, samples, draw, split, limit or self.limits.columns, False)

    def talk(
        self, actor: Any, begun: Experience, samples: np.ndarray, draw: Draw, split: int, limit: int, greedy: bool
    ) -> Experience:
        """Plays at most `limit` more decisions per row."""
        if isinstance(self.partner, Sessions):
            items = self.items_of(begun.column("start"), split)
            played = self.in_sessions(self.partner).talk(actor, begun, items, samples, draw, split, limit, greedy)
            return played.add({"split": torch.full_like(played.column("start"), split)})
        items, vocabulary = self.items_of(begun.column("start"), split), self.tokenizer.vocabulary

        def answer(row: int, said: Sequence[list[int]]) -> Heard:
            return self.heard(items[row], [text.readable(self.tokenizer, ids) for ids in said], said[-1][-1])

        played = converse(
            actor, begun, samples, draw, answer, limits=self.limits, limit=limit, vocabulary=vocabulary, greedy=greedy
        )
        return played.add({"split": torch.full_like(played.column("start"), split)})

    def in_sessions(self, partner: Sessions) -> InSessions:
        """Returns what plays with the sessions of a partner."""
        return InSessions(partner, self.tokenizer, self.limits, self.reply_ids, self.waiting, self.meter)

    def measured(self, split: int) -> dict[str, tuple[float, float]]:
        """Returns sum and count of what sessions cost since the last call, by metric; none of a pure partner."""
        return self.meter.taken(split)

    def waited(self) -> float:
        """Returns the seconds since the last call in which decoding stood still for lack of replies."""
        return self.meter.taken_seconds()

    def heard(self, item: Item, said: Sequence[str], last: int) -> Heard:
        """Returns the reply in tokens, or the end: by an outcome, or because no turns are left."""
        reply = self.replied(item, said)
        if reply.outcome is not None:
            return Heard([], True, last != self.tokenizer.vocabulary.eos)
        if len(said) >= self.max_turns:
            return Heard([], True, True)
        return Heard(self.reply_ids(reply.text, last))

    def reply_ids(self, reply: str, last: int) -> list[int]:
        """Returns the tokens of the reply after an utterance that ended with the token `last`; AssayError if there are
        more than `max_reply`.
        """
        ids = self.between(reply, last)
        if len(ids) > self.max_reply:
            shown = text.escaped(reply, 60)
            raise AssayError(f"reply '{shown}' has {len(ids)} tokens, but max_reply is {self.max_reply}. Raise it")
        return ids

    def between(self, reply: str, last: int) -> list[int]:
        """Returns the tokens between two utterances: here the reply alone."""
        return self.tokenizer.encode(reply)

    def reply_text(self, ids: Sequence[int], last: int) -> str:
        """Returns the reply that `between` has turned into these tokens."""
        return self.tokenizer.decode(ids)

    # ------------------------------------------------------------------------------------------------ judging
    def judge(self, experience: Experience, split: int) -> Experience:
        """Judges each conversation that ended: a pure partner replies again, outcomes of sessions are read. See
        `text.with_outcomes` for the columns; `score` sums the rewards.
        """
        if self.scorer is not None:
            verified = partial(self.verified, experience, split)
            found = scored(experience, self.scorer, self.texts(experience, split), verified)
            return found.add({"split": torch.full_like(experience.column("start"), split)})
        if isinstance(self.partner, Sessions):
            judged = records.judged_by_record(experience)
            return judged.add({"split": torch.full_like(experience.column("start"), split)})
        ended = (experience.terminal | experience.truncated).any(1).tolist()
        items, talks = self.items_of(experience.column("start"), split), self.conversations(experience)
        replies = [
            self.replies(item, said) if is_over else [] for item, said, is_over in zip(items, talks, ended, strict=True)
        ]
        outcomes = [row[-1].outcome or NO_END if row else Score(0.0) for row in replies]
        judged = text.with_outcomes(experience, outcomes)
        judged = judged.add({"split": torch.full_like(experience.column("start"), split)})
        earned = [[reply.reward for reply in row] for row in replies]
        return with_turn_rewards(judged, earned) if any(map(any, earned)) else judged

    def verified(self, experience: Experience, split: int, rows: Sequence[int]) -> list[Outcome]:
        """Returns the partner's outcome of some rows."""
        if isinstance(self.partner, Sessions):
            known = records.ended_outcomes(experience)
            return [known[row] for row in rows]
        items, talks = self.items_of(experience.column("start"), split), self.conversations(experience)
        last = [self.replies(items[row], talks[row])[-1:] for row in rows]
        return [row[0].outcome or NO_END if row else NO_END for row in last]

    def texts(self, experience: Experience, split: int) -> list[dict[str, Any]]:
        """Returns prompt, last utterance (`completion`), answer, facts, the whole conversation (`messages`), and the
        share of subtasks (`progress`) if the partner knows it.
        """
        items, talks = self.items_of(experience.column("start"), split), self.conversations(experience)
        cut, partner = (experience.truncated & experience.mask).any(1).tolist(), self.partner
        replies = self.replies_in(experience, items, talks)
        return [
            {**item.facts, "prompt": item.prompt, "completion": said[-1] if said else "", "answer": item.answer}
            | {"cut": is_cut, "messages": self.messages(item, said, heard)}
            | ({"progress": partner.progress(item, said)} if isinstance(partner, MeasuredPartner) else {})
            for item, said, is_cut, heard in zip(items, talks, cut, replies, strict=True)
        ]

    def messages(self, item: Item, said: Sequence[str], replies: Sequence[Reply] | None = None) -> list[dict[str, str]]:
        """Returns a conversation as chat messages: the prompt, then utterances and replies in turn; those of a pure
        partner if none are given.
        """
        replies = self.replies(item, said) if replies is None else replies
        turns = [{"role": "user", "content": item.prompt}]
        for words, reply in zip(said, replies, strict=True):
            turns += [{"role": "assistant", "content": words}, {"role": self.reply_role, "content": reply.text}]
        return turns[:-1] if said else turns

    @property
    def reply_role(self) -> str:
        """Returns the role of the partner in chat messages."""
        return "user"

    def replies(self, item: Item, said: Sequence[str]) -> list[Reply]:
        """Returns a pure partner's reply to each utterance."""
        return [self.replied(item, said[: place + 1]) for place in range(len(said))]

    def replied(self, item: Item, said: Sequence[str]) -> Reply:
        """Returns a pure partner's reply to the last utterance."""
        assert not isinstance(self.partner, Sessions), "a session is asked once, while it is played"
        return checked_reply(self.name, self.partner, item, said)

    def replies_in(
        self, experience: Experience, items: Sequence[Item], talks: Sequence[Sequence[str]]
    ) -> list[list[Reply]]:
        """Returns the replies in each row: those of sessions from the record, those of a pure partner again."""
        if isinstance(self.partner, Sessions):
            return records.recorded_replies(experience, self.reply_text)
        return [self.replies(item, said) for item, said in zip(items, talks, strict=True)]

    def conversations(self, experience: Experience) -> list[list[str]]:
        """Returns the utterances of each row, as text."""
        assert experience.turn is not None
        told = experience.extra.get("answer", experience.mask)
        rows = zip(experience.action.tolist(), told.tolist(), experience.turn.tolist(), strict=True)
        return [[text.readable(self.tokenizer, ids) for ids in utterances(*row)] for row in rows]

    def describe(self, experience: Experience, row: int) -> dict[str, Any]:
        """Returns prompt, utterances, replies, answer, reward and fault for display; each token with its credit."""
        one = experience.rows(slice(row, row + 1))
        split = int(one.extra["split"]) if "split" in one.extra else 0
        item, said = self.items_of(one.column("start"), split)[0], self.conversations(one)[0]
        replies = self.replies_in(one, [item], [said])[0]
        lines = [f"{words} > {reply.text.strip()}" for words, reply in zip(said, replies, strict=True)]
        outcome = (replies[-1].outcome or NO_END) if replies else NO_END
        if outcomes.is_recorded(one):  # a row that failed has no decisions, but its fault is known
            outcome = outcomes.recorded_outcomes(one)[0]
        return (
            {
                "prompt": text.escaped(item.prompt),
                "completion": text.escaped(" | ".join(lines)),
                "answer": text.escaped(item.answer),
                "reward": float(one.reward.sum()),
                "turns": len(said),
                "cut": bool((one.truncated & one.mask).any()),
                "fault": None if isinstance(outcome, Score) else text.escaped(outcome.kind),
            }
            | components(one)
            | token_credits(one, self.tokenizer, silent="/")
        )

    # ------------------------------------------------------------------------------------------------ demonstrations
    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        """Returns the demonstrated conversation of each start, with its rewards."""
        items, start_B = self.items_of(starts, split), torch.as_tensor(starts, dtype=torch.int64)
        if isinstance(self.partner, Sessions):
            prompts = [prompt_ids(self.tokenizer, item.prompt, self.max_prompt) for item in items]
            return self.judge(self.in_sessions(self.partner).demonstrated(items, prompts, start_B, self.name), split)
        rows = [self.demonstration(item) for item in items]
        return self.judge(laid_out(rows, start_B, self.tokenizer.vocabulary.pad), split)

    def demonstration(self, item: Item) -> list[tuple[list[int], bool, int]]:
        """Returns prompt, utterances and replies in their order: (tokens, whether the policy chose them, turn)."""
        said = item.demonstration.split("\n")
        pieces = [(prompt_ids(self.tokenizer, item.prompt, self.max_prompt), False, 0)]
        for turn, (words, reply) in enumerate(zip(said, self.replies(item, said), strict=True)):
            ids = completion_ids(self.tokenizer, words, self.max_tokens)
            pieces.append((ids, True, turn))
            if turn + 1 < len(said):
                pieces.append((self.reply_ids(reply.text, ids[-1]), False, turn + 1))
        return pieces

    # ------------------------------------------------------------------------------------------------ rows of a file
    @property
    def rows(self) -> FiniteItems | None:
        """Returns the rows of a file that the prompts are; None if prompts are generated."""
        items = self.partner.items if isinstance(self.partner, OverItems) else None
        return items if isinstance(items, FiniteItems) else None

    @property
    def num_training(self) -> int:
        """Returns the number of training rows of a file; 0 if prompts are generated."""
        return 0 if self.rows is None else len(self.rows.splits[0])

    @property
    def num_testing(self) -> int:
        """Returns the number of held-out rows of a file; 0 if prompts are generated."""
        return 0 if self.rows is None else len(self.rows.splits[1])

    def order(self, ordinals: np.ndarray, draw: Draw) -> np.ndarray:
        """Returns the start at each place of the run's order; the ordinals if prompts are generated."""
        return ordinals if self.rows is None else self.rows.order(ordinals, draw)

    def prompts_of(self, starts: np.ndarray, split: int) -> list[str]:
        """Returns the prompt of each start; of a game the whole item, whose secret the prompt does not tell."""
        return [item.prompt if self.rows is not None else repr(item) for item in self.items_of(starts, split)]

    def items_of(self, starts: np.ndarray | Tensor, split: int) -> list[Item]:
        """Returns the items of these ordinals."""
        return [self.partner.item(ordinal, split) for ordinal in starts.tolist()]
