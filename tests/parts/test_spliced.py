"""Wrong answers are cut before their first wrong step and finished by the task."""

from __future__ import annotations

import pytest
import torch

from assay.claims.probes import code_of, completed, file_of, hint_scene
from assay.claims.testbeds.language.redo import redo
from assay.claims.testbeds.language.sparse import many_ways
from assay.core.errors import AssayError
from assay.core.slots import Scene
from assay.core.verifier import Verifier
from assay.parts.rollouts.spliced import NO_ERROR, Spliced, longest_right, right_decisions
from assay.tasks.control.cartpole import cartpole


def judged(task, said, starts):
    return Verifier()(completed(task, said, starts), Scene(task))


def test_the_first_wrong_step_is_found_in_decisions() -> None:
    task = hint_scene((0,)).task
    code = code_of(0)
    wrong = "".join(str((int(digit) + 1) % 10) for digit in code)
    rows = judged(task, [code, code[:3] + wrong[3:], wrong], [0, 0, 0])
    assert right_decisions(rows, Scene(task)).tolist() == [NO_ERROR, 3, 0]
    lost = rows.with_columns(mask=rows.mask & torch.tensor([[True], [False], [True]]))
    assert right_decisions(lost, Scene(task)).tolist() == [NO_ERROR, NO_ERROR, 0]


def test_lines_are_the_steps_of_a_file() -> None:
    task = file_of(("one\ntwo\n#### 3", "3"))
    rows = judged(task, ["one\ntwo\n#### 4", "one\nthree", "two"], [0, 0, 0])
    assert right_decisions(rows, Scene(task)).tolist() == [8, 4, 0]
    assert longest_right(rows, torch.tensor([8, 4, 0]), 0, 2, Scene(task)).tolist() == [0, 1]


def test_what_is_finished_is_right_wherever_a_right_answer_begins_so() -> None:
    task = many_ways()
    for prompt in range(4):
        item = task.items.item(prompt, 0)
        for digit in "0123456789":
            more = task.finish(prompt, digit, 0)
            assert more is None or task.items.verify(item, digit + more).value == 1.0
            assert (task.first_error(prompt, digit + "x", 0) == 0) == (more is None)


def test_what_has_no_steps_is_refused() -> None:
    with pytest.raises(AssayError, match="does not tell it"):
        Spliced().init(Scene(cartpole()))
    with pytest.raises(AssayError, match="holds the answers alone"):
        Spliced().init(Scene(file_of(("18", "18"), worked=False)))


def test_a_step_of_a_file_is_a_line_and_of_a_code_a_digit() -> None:
    assert file_of(("one\ntwo\n#### 3", "3")).first_step(0, "one\ntwo", 0) == "one\n"
    assert file_of(("one\ntwo\n#### 3", "3")).first_step(0, "two", 0) == "two"
    assert many_ways().first_step(0, "37", 0) == "3"


@pytest.mark.parametrize("begun", ["", "0", "00"])
def test_redo_finishes_what_it_calls_right(begun: str) -> None:
    task = redo(2, 0.5)
    for prompt in range(8):
        item = task.items.item(prompt, 0)
        more = task.finish(prompt, begun, 0)
        if more is not None:
            assert task.items.verify(item, begun + more).value == 1.0
            assert task.first_error(prompt, begun + more, 0) is None
        assert (more is None) == (begun == "00" or (begun == "" and task.items.is_planted(prompt)))
