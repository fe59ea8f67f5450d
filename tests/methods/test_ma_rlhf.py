"""Macro actions: credit on segments against advantages on the sequence of macro actions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.claims.laws.cases import EPISODES, FRAGMENTS, RAGGED, TOKENS, TORQUES, build, with_rewards
from assay.core.record import Experience
from assay.methods.ma_rlhf import FallingPerplexity
from assay.parts.credit.segments import SegmentGae, Spans
from assay.parts.credit.temporal import Gae

BATCHES = {
    "tokens": build(TOKENS, RAGGED),
    "fragments": build(TORQUES, FRAGMENTS),
    "episodes": build(TORQUES, EPISODES),
}
EVERY_BATCH = pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)


def macro_gae(batch: Experience, length: int, discount: float, decay: float) -> Tensor:
    """The paper's recursion on the shorter sequence of macro actions, row by row and episode by episode."""
    advantage = torch.zeros_like(batch.reward)
    for row in range(len(batch)):
        episode: list[int] = []
        columns = batch.mask[row].nonzero().flatten().tolist()
        for place, t in enumerate(columns):
            episode.append(t)
            over = bool(batch.terminal[row, t] | batch.truncated[row, t])
            if over or place + 1 == len(columns):
                one_episode(batch, row, episode, length, discount, decay, advantage)
                episode = []
    return advantage


def one_episode(
    batch: Experience, row: int, columns: list[int], length: int, discount: float, decay: float, advantage: Tensor
) -> None:
    value, reward = batch.column("value")[row], batch.reward[row]
    macros = [columns[begin : begin + length] for begin in range(0, len(columns), length)]
    last = columns[-1]
    after = 0.0
    if not bool(batch.terminal[row, last]) and last + 1 < batch.num_columns:
        after = float(value[last + 1])
    later = 0.0
    for macro in reversed(macros):
        total = sum(discount**i * float(reward[t]) for i, t in enumerate(macro))
        faded = discount ** len(macro)
        later = total + faded * after - float(value[macro[0]]) + faded * decay * later
        advantage[row, macro] = later
        after = float(value[macro[0]])


@EVERY_BATCH
@pytest.mark.parametrize("length", [1, 2, 3, 5, 100])
def test_segment_credit_is_gae_on_the_sequence_of_macro_actions(batch: Experience, length: int) -> None:
    credited = SegmentGae(0.9, 0.7)(Spans(length)(batch))
    torch.testing.assert_close(credited.column("advantage"), macro_gae(batch, length, 0.9, 0.7), rtol=0, atol=1e-12)


@EVERY_BATCH
def test_single_decisions_are_gae_with_and_without_the_column(batch: Experience) -> None:
    plain = Gae(0.9, 0.7)(batch)
    for single in (Spans(1)(batch), replace(batch, segment=None)):
        credited = SegmentGae(0.9, 0.7)(single)
        for name in ("advantage", "return"):
            torch.testing.assert_close(credited.column(name), plain.column(name), rtol=0, atol=1e-12)


@EVERY_BATCH
def test_without_discount_decay_happens_once_a_segment(batch: Experience) -> None:
    """The staircase: token TD errors, weighed by decay^(segments in between)."""
    split = Spans(3)(batch)
    assert split.segment is not None
    steps = Gae(1.0, 0.0)(batch).column("advantage")
    found = SegmentGae(1.0, 0.6)(split).column("advantage")
    for row in range(len(batch)):
        over = (batch.terminal[row] | batch.truncated[row]) & batch.mask[row]
        episode = over.long().cumsum(0) - over.long()
        for t in batch.mask[row].nonzero().flatten().tolist():
            here = split.segment[row, t]
            later = batch.mask[row] & (split.segment[row] >= here) & (episode == episode[t])
            weight = 0.6 ** (split.segment[row] - here).double()
            assert found[row, t] == pytest.approx(float((steps[row] * weight * later).sum()), abs=1e-12)


def test_with_decay_1_every_state_learns_its_own_return() -> None:
    batch = BATCHES["fragments"]
    found = SegmentGae(0.9, 1.0)(Spans(3)(batch)).column("return")
    torch.testing.assert_close(found, Gae(0.9, 1.0)(batch).column("return"), rtol=0, atol=1e-12)


def test_spans_begin_anew_with_each_episode_and_stay_in_the_row() -> None:
    split = Spans(2)(BATCHES["fragments"])
    assert split.segment is not None
    first = split.segment[0][split.mask[0]].tolist()  # dddEfdddf: four decisions, then three
    assert first == [1, 1, 2, 2, 3, 3, 4]


def test_perplexity_segments_rise_where_the_reference_is_more_surprised() -> None:
    batch = BATCHES["tokens"]
    split = FallingPerplexity()(batch)
    assert split.segment is not None
    for row in range(len(batch)):
        logp = batch.column("logp_ref")[row][batch.mask[row]].tolist()
        expected, number = [], 0
        for place, value in enumerate(logp):
            number += place == 0 or value < logp[place - 1]
            expected.append(number)
        assert split.segment[row][batch.mask[row]].tolist() == expected


def test_segments_of_nothing_get_nothing() -> None:
    batch = BATCHES["tokens"]
    empty = replace(batch, mask=torch.zeros_like(batch.mask))
    assert not SegmentGae()(Spans()(empty)).column("advantage").any()


def test_all_truncated_bootstraps_and_equal_rewards_are_finite() -> None:
    batch = with_rewards(BATCHES["episodes"], lambda reward: torch.ones_like(reward))
    cut = replace(batch, terminal=torch.zeros_like(batch.terminal), truncated=batch.terminal | batch.truncated)
    found = SegmentGae(0.9, 0.7)(Spans(2)(cut)).column("advantage")
    torch.testing.assert_close(found, macro_gae(cut, 2, 0.9, 0.7), rtol=0, atol=1e-12)
