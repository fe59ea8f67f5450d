"""Conversations that are known, as records. Axes: B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.core.record import Experience
from assay.rollouts import text


def laid_out(rows: Sequence[Sequence[tuple[list[int], bool, int]]], start_B: Tensor, filler: int) -> Experience:
    """Returns rows of pieces (tokens, whether the policy chose them, turn) as demonstrated experience."""
    whole = [[token for ids, _, _ in pieces for token in ids] for pieces in rows]
    record = text.written(whole, [[] for _ in rows], start_B, filler)
    mask, turn = torch.zeros_like(record.mask), torch.zeros_like(record.action)
    for row, pieces in enumerate(rows):
        is_told = [decided for ids, decided, _ in pieces for _ in ids]
        mask[row, : len(is_told)] = torch.tensor(is_told)
        turn[row, : len(is_told)] = torch.tensor([place for ids, _, place in pieces for _ in ids])
    return replace(record, mask=mask, turn=turn, terminal=text.is_last_true(mask))


def with_turn_rewards(experience: Experience, earned: Sequence[Sequence[float]]) -> Experience:
    """Adds the reward of each turn to its last token, and their sum to the score of the row."""
    told, turn = experience.extra.get("answer", experience.mask), experience.turn
    assert turn is not None
    reward, total = experience.reward.clone(), experience.column("score").clone()
    for row, values in enumerate(earned):
        for place, value in enumerate(values):
            own = (told[row] & (turn[row] == place)).nonzero()
            if value and bool(experience.mask[row, own[-1]]):
                reward[row, own[-1]] += value
            total[row] += value
    return replace(experience, reward=reward).add({"score": total})
