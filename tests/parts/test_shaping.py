"""Shaping of rewards against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.parts.credit.shaping import OverlongPenalty


def test_answers_near_the_limit_lose_a_linear_share() -> None:
    rows = probes.bandit_experience([0] * 4, [1.0] * 4, torch.zeros(2))
    mask = torch.arange(10) >= 10 - torch.tensor([[4], [6], [8], [10]])
    last = (torch.arange(10) == 9).expand(4, 10)
    rows = replace(rows, mask=mask, reward=last.float(), terminal=last, truncated=torch.zeros_like(last))
    found = OverlongPenalty(limit=10, margin=0.4)(rows).reward
    assert found[:, -1].tolist() == pytest.approx([1.0, 1.0, 0.5, 0.0])
    assert float(found[:, :-1].abs().max()) == 0.0


def test_without_a_task_there_is_no_limit() -> None:
    rows = probes.sequences()
    assert torch.equal(OverlongPenalty()(rows).reward, rows.reward)


def test_a_margin_of_nothing_is_refused() -> None:
    with pytest.raises(AssayError, match="margin above 0"):
        OverlongPenalty(margin=0.0)
