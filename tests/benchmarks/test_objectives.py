"""The ranking of objectives: what is read off a curve, and which methods are in it."""

from __future__ import annotations

import pytest

from benchmarks import objectives


def test_a_curve_is_read_up_to_the_common_number_of_answers() -> None:
    rows = [
        {"step": 0, "pass_rate": 0.0},
        {"step": 1, "decisions_total": 100},
        {"step": 2, "decisions_total": 200, "pass_rate": 1.0},
        {"step": 3, "decisions_total": 400, "pass_rate": 0.0},
    ]
    area, end = objectives.height(rows, answers=100, places=3)
    assert (area, end) == pytest.approx((0.5, 1.0)), "0, 1/2 and 1 at 0, 100 and 200 tokens; later ones are not read"


def test_intervals_need_two_seeds_that_all_tasks_have() -> None:
    found = {task: {0: 0.2, 1: 0.4} for task in objectives.TASKS}
    whole = objectives.over_tasks(found)
    assert whole is not None
    assert whole.value == pytest.approx(0.3)
    assert objectives.over_tasks(found | {objectives.TASKS[0]: {0: 0.2}}) is None


def test_a_step_of_grpo_samples_its_groups() -> None:
    assert objectives.answers_a_step("grpo") == 256
