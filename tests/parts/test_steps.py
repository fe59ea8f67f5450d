"""Steps of answers, judges of them and rewards made of their scores: numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims import probes
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.parts import Capped, ChatSteps, FromReference, StepMarks, StepRewards, Telescoping, TextSteps, steps_of
from assay.tasks.control.cartpole import cartpole
from assay.tasks.language.items import Item

TASK = probes.listed(Item("q", "72", "72", {"steps": ["48/2 = 24", "48+24 = 72"]}))
SAID = ["48/2 = 24\n48+24 = 72\n72", "I say 71", "48/2 = 26\nno number here\n72"]


def scores(*each: float) -> torch.Tensor:
    return torch.tensor(each, dtype=torch.float64)


def test_the_returns_of_differenced_scores_are_the_scores() -> None:
    given = scores(0.9, 0.8, 0.4, 0.95)
    assert Telescoping()(given).tolist() == pytest.approx([0.1, 0.4, 0.4, 0.0])
    to_go = Telescoping()(given).flip(0).cumsum(0).flip(0)
    assert to_go.tolist() == pytest.approx([0.9, 0.8, 0.4, 0.0])
    capped = Telescoping()(Capped(0.5)(given))
    assert capped.tolist() == pytest.approx([0.0, 0.1, -0.1, 0.0])
    assert Telescoping()(scores(0.7)).tolist() == [0.0]


def test_a_worked_solution_says_which_lines_are_wrong() -> None:
    rows = probes.completed(TASK, SAID, [0, 0, 0])
    marks = StepMarks()
    scene = Scene(TASK)
    after = marks(rows, scene, marks.init(scene))
    lines = [[float(after.column("step_score")[row, one[0]]) for one in own] for row, own in steps_of(after)]
    assert lines == [[1.0, 1.0, 1.0], [0.0], [0.0, 1.0, 1.0]]


def test_a_judge_that_cannot_be_read_takes_the_row_out_of_training() -> None:
    def ask(prompts: object) -> list[str]:
        return ["Wrong steps: 3", "I am not sure", "Wrong steps: none"]

    rows = probes.completed(TASK, SAID, [0, 0, 0])
    after = StepMarks(ChatSteps(ask))(rows, Scene(TASK), {})
    assert after.mask.any(1).tolist() == [True, False, True]
    assert float(after.column("step_score")[0].sum()) == len("48/2 = 24\n48+24 = 72\n")


def test_step_rewards_stand_on_the_last_token_of_a_step() -> None:
    rows = probes.completed(TASK, ["a\nbc\n", "d"], [0, 0])
    cut = TextSteps()(rows, Scene(TASK))
    paid = StepRewards()(cut.add({"step_score": torch.ones(rows.mask.shape)}))
    ends = [own[-1] for own in dict(steps_of(cut))[0]]
    assert len(ends) == 2, "the end token follows blank text, and belongs to the second line"
    assert paid.reward[0].nonzero().flatten().tolist() == ends
    assert float(paid.reward[1].sum()) == 1.0


def test_tasks_without_text_or_without_the_field_are_refused_in_words() -> None:
    with pytest.raises(AssayError, match="has no text"):
        StepMarks().init(Scene(cartpole()))
    with pytest.raises(AssayError, match=r'no field .steps.*"steps": '):
        StepMarks().init(Scene(probes.listed(Item("q", "7", "7"))))
    bare = replace(TASK, items=replace(TASK.items, items=(Item("q", "7", "7"),)))  # type: ignore[type-var]
    StepMarks(ChatSteps(list)).init(Scene(bare))
    assert FromReference()([{"written": ["5"], "answer": "7"}]) == [[0.0]]
