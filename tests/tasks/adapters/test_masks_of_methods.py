"""Every method that learns by playing with discrete actions obeys masks, of one choice and of several at once."""

from __future__ import annotations

from typing import Any

import pytest

from assay.core.errors import AssayError
from assay.engine.loop import Loop
from assay.recipes.presets import CONTROL
from assay.runs import catalogue
from assay.runs.plan import make_plan
from assay.runs.user_code.loading import load
from assay.tasks.adapters.gymnasium import environment_task
from tests.tasks.adapters.test_gymnasium_masks import FILE

pytest.importorskip("gymnasium")

OTHER_TASKS = (
    "has no scripted expert", "are from 0 to 1", "needs a game of", "need a game of", "gives no costs",
    "needs a task with goals",
)  # fmt: skip
"""What a method says that needs something else of a task: data, right answers, other players, costs, goals."""
ONE_CHOICE = ("Try ppo or a2c",)
"""What a method says that values single choices where there are several at once."""
METHODS = sorted(name for name, method in catalogue.methods().items() if CONTROL in method.presets)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("masks") / "masked.py"
    file.write_text(FILE)
    return vars(load(str(file)))


def refusal(name: str, kind: str, made: dict[str, Any]) -> str:
    """Trains a step in an environment that raises for a forbidden action; returns why it is refused, or ""."""
    task = environment_task(kind, made[kind], tried=False)
    assert task.spec.masked
    try:
        plan = make_plan(name, task, steps=1, preset="classic")
        Loop(plan.recipe, plan.task, seed=0, num_steps=1).step()
    except AssayError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", METHODS)
def test_no_method_takes_a_forbidden_action_or_ignores_masks(name: str, made: dict[str, Any]) -> None:
    """Two options of eight are allowed: a policy that does not read the mask takes a forbidden one within a few
    decisions, and the environment raises. A method that is refused lacks something else than masks.
    """
    one, several = refusal(name, "InInfo", made), refusal(name, "Several", made)
    assert not one or any(words in one for words in OTHER_TASKS), one
    assert not several or any(words in several for words in (*OTHER_TASKS, *ONE_CHOICE)), several
    assert not (one and not several), "what trains on several choices trains on one"
