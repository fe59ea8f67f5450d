"""What sessions said and gave, as columns of the record, and read from it: judging asks no session again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from assay.core.errors import AssayError
from assay.core.record import Experience, InfraFault, Outcome, Score
from assay.rollouts import outcomes, text
from assay.rollouts.turns import utterances
from assay.tasks.language.partners import Reply

SEED, TURN_REWARD = "session", "turn_reward"
COLUMNS = (outcomes.VALUE, outcomes.FAULT, outcomes.KIND, SEED, TURN_REWARD)
"""Columns of rows that were played with sessions."""


def with_session_columns(
    played: Experience, seeds: Sequence[int], found: Sequence[Outcome], rewards: Sequence[Sequence[float]]
) -> Experience:
    """Returns rows with their seeds, their outcomes, and the reward of each turn on its last token."""
    told, turn = played.extra.get("answer", played.mask), played.turn
    assert turn is not None
    earned = torch.zeros(told.shape)
    for row, values in enumerate(rewards):
        for place, value in enumerate(values):
            if value:
                earned[row, (told[row] & (turn[row] == place)).nonzero()[-1]] = value
    columns = {SEED: torch.tensor(seeds, dtype=torch.int64), TURN_REWARD: earned}
    return outcomes.with_recorded(played, found).add(columns)


def ended_outcomes(experience: Experience) -> list[Outcome]:
    """Returns the recorded outcome of each row, Score(0) of one that has not ended; AssayError if none is recorded."""
    if not outcomes.is_recorded(experience):
        raise AssayError("these rows were not played with sessions, which alone know the outcome. Play them first")
    ended = (experience.terminal | experience.truncated).any(1).tolist()
    return [
        one if is_over else Score(0.0)
        for one, is_over in zip(outcomes.recorded_outcomes(experience), ended, strict=True)
    ]


def judged_by_record(experience: Experience) -> Experience:
    """Returns the rows with their recorded outcomes and rewards of turns; see `text.with_outcomes` for the columns."""
    found = ended_outcomes(experience)
    judged = text.with_outcomes(experience, found)
    is_fault = torch.tensor([isinstance(one, InfraFault) for one in found], device=judged.mask.device)
    earned = experience.column(TURN_REWARD).masked_fill(is_fault.unsqueeze(1), 0.0)
    if not bool(earned.any()):
        return judged
    reward = judged.reward + earned * judged.mask
    return replace(judged, reward=reward).add({"score": judged.column("score") + earned.sum(1)})


def reply_tokens(experience: Experience) -> list[list[list[int]]]:
    """Returns the tokens of the replies of each row, those of the last utterance only if the row has read them."""
    assert experience.turn is not None
    told, valid = experience.extra.get("answer", experience.mask), experience.context["valid"]
    found = []
    for row in range(len(experience)):
        heard = valid[row] & ~told[row] & (experience.turn[row] > 0)
        columns = (experience.action[row].tolist(), heard.tolist(), experience.turn[row].tolist())
        found.append(utterances(*columns))
    return found


def recorded_replies(experience: Experience, read: Callable[[Sequence[int], int], str]) -> list[list[Reply]]:
    """Returns the replies to each row's utterances. `read(ids, last)` returns the text of a reply after an utterance
    that ended with the token `last`; the reply that ended a conversation has no text, since no policy has read it.
    """
    assert experience.turn is not None
    told, ends = experience.extra.get("answer", experience.mask), ended_outcomes(experience)
    ended, heard = (experience.terminal | experience.truncated).any(1).tolist(), reply_tokens(experience)
    rows = []
    for row, replies in enumerate(heard):
        there = told[row]
        turns = experience.turn[row, there].tolist()
        said = utterances(experience.action[row, there].tolist(), [True] * len(turns), turns)
        reward = dict[int, float]()
        for turn, value in zip(turns, experience.column(TURN_REWARD)[row, there].tolist(), strict=True):
            reward[turn] = reward.get(turn, 0.0) + value
        known = [
            Reply(read(replies[turn], ids[-1]) if turn < len(replies) else "", None, reward[turn])
            for turn, ids in enumerate(said)
        ]
        if known and ended[row]:
            known[-1] = replace(known[-1], outcome=ends[row])
        rows.append(known)
    return rows
