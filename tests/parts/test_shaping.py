"""Shaping of rewards against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError, TooLong
from assay.core.slots import Scene
from assay.ops import groups
from assay.parts.credit.shaping import OverlongPenalty, RightOrWrong
from assay.tasks.language.addition import addition


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


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_demonstrations_that_exceed_the_limit_leave_no_ramp(limit: int) -> None:
    """A limit below the longest demonstration is one that a user may set where answers are not trained on."""
    task = replace(addition(1), max_tokens=limit)
    if limit == 1:
        with pytest.raises(TooLong, match="max_tokens is 1"):
            task.demonstrate(np.arange(4), 0)
    state = OverlongPenalty(margin=0.5).init(Scene(task))
    shown = max(len(item.demonstration) for item in addition(1).items_of(np.arange(32), 0)) + 1
    assert state == {"begin": float(min(limit, max(shown, limit / 2))), "end": float(limit)}


def test_graded_outcomes_become_1_above_the_middle_and_0_up_to_it() -> None:
    data = probes.bandit_experience([0, 1, 2, 3, 0], [0.0, 0.5, 0.51, 1.0, 0.49], torch.zeros(4))
    assert groups.is_right(data).tolist() == [False, False, True, True, False]
    assert RightOrWrong()(data).reward.flatten().tolist() == [0.0, 0.0, 1.0, 1.0, 0.0]


def test_what_an_episode_earned_on_several_decisions_stands_at_its_end() -> None:
    data = probes.verified(num=8)
    last = data.terminal | data.truncated
    spread = replace(data, reward=torch.where(data.mask, 0.2, 9.0).double())
    found = RightOrWrong()(spread)
    right = data.mask.sum(1) > 2  # 0.2 for each decision: above 1/2 from the third on
    assert torch.equal(found.reward, (last & data.mask & right.unsqueeze(1)).double())
