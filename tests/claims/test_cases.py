"""The synthetic experiences are awkward in every way they claim to be, and the same on every machine."""

from __future__ import annotations

import pytest
import torch

from assay.claims.laws import cases
from assay.claims.laws.bench import term_cases
from assay.claims.laws.benches import STANDARD
from assay.core.record import Experience
from assay.ops import groups


@pytest.mark.parametrize("case", cases.experiences(), ids=lambda case: case.name)
def test_a_record_keeps_its_own_promises(case: cases.Case) -> None:
    batch = case.batch
    hole = ~batch.mask
    for column in (batch.logp, batch.reward, batch.terminal, batch.truncated, batch.extra["advantage"]):
        assert not column[hole].any()
    assert batch.reward.dtype == torch.float64
    assert torch.isfinite(batch.logp).all()
    assert (batch.logp <= 0).all()


def test_ragged_rows_have_a_hole_a_fault_and_unequal_groups() -> None:
    batch = cases.build(cases.TOKENS, cases.RAGGED)
    inside = batch.mask.long()
    assert ((inside[:, 1:] - inside[:, :-1]).clamp(min=0).sum(1) == 2).any()  # decisions, tool output, decisions
    assert (~batch.mask.any(1)).sum() == 1
    assert sorted(groups.row_groups(batch).size.tolist()) == [1, 2, 4]
    assert batch.truncated.any()
    assert (batch.terminal & batch.truncated).any()


def test_segments_share_episodes() -> None:
    batch = cases.build(cases.TOKENS, cases.SEGMENTS)
    assert sorted(groups.episode_groups(batch).size.tolist()) == [1, 1, 1, 1, 2, 2]


def test_fragments_end_inside_rows() -> None:
    batch = cases.build(cases.TORQUES, cases.FRAGMENTS)
    over = batch.terminal | batch.truncated
    assert over[:, :-2].any()
    assert not batch.mask[:, 1:][over[:, :-1]].any()  # the context after an end is no decision


def test_pairs_are_one_better_and_one_worse_row_of_a_group() -> None:
    batch = cases.build(cases.TOKENS, cases.RAGGED)
    chosen = batch.column("chosen")
    total = groups.total(chosen, groups.row_groups(batch))
    assert total.eq(0).all()
    assert chosen.eq(1).sum() == 2
    assert not chosen[~batch.mask.any(1)].any()


def test_numbers_are_written_down() -> None:
    batch = cases.build(cases.TORQUES, cases.TRANSITIONS)
    assert batch.reward[:, 0].tolist() == pytest.approx([-0.7, 0.5, -1.0, 0.1, 0.0])
    assert batch.action[0, 0].tolist() == pytest.approx([-1.7157796149864828, 0.8261245681181297], abs=1e-9)


def test_extremes_are_large_and_finite() -> None:
    batch = cases.with_dtype(cases.extreme(cases.build(cases.TOKENS, cases.RAGGED)), torch.float32)
    assert float(batch.column("advantage").abs().max()) == 1e6
    assert float(batch.logp.min()) < -1e4
    deep = torch.full_like(batch.logp, -1e4) * batch.mask
    assert sorted((deep - batch.logp)[batch.mask].unique().tolist()) == [-20.0, 0.0, 20.0]


@pytest.mark.parametrize("bench", STANDARD, ids=lambda bench: bench.name)
def test_benches_record_log_probabilities_near_the_current_ones(bench: object) -> None:
    class Reads:
        needs = frozenset()

    for case in term_cases(Reads(), bench):  # type: ignore[arg-type]
        batch: Experience = case.batch
        moved = (batch.column("scored.logp") - batch.logp)[batch.mask]
        assert 0 < float(moved.abs().mean()) < 1
