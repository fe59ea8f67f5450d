"""Tasks that a method cannot work on are refused when a run is opened, before its warm-up."""

from __future__ import annotations

import pytest

from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.runs.plan import make_plan


@pytest.mark.parametrize(
    ("method", "task", "says"),
    [
        ("delethink", "household-2", "has conversations of turns"),
        ("t-ppo", "calculator-1", "has conversations of turns"),
        ("sdpo", "levels", "lacks the character"),
    ],
)
def test_refused_before_anything_is_spent(method: str, task: str, says: str) -> None:
    plan = make_plan(method, task, steps=1)
    with pytest.raises(AssayError, match=says):
        Loop(plan.recipe, plan.task, seed=0, num_steps=1)
