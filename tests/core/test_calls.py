"""Calls of a user's reward function: what it gets, what it may return, and how failures are told."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from assay.core import exits
from assay.core.calls import OwnCodeError, rewards_of
from assay.core.errors import AssayError
from assay.core.exits import kept_alive

ROWS = [
    {"prompt": "1+1=", "completion": "2", "answer": "2", "tests": [1, 2]},
    {"prompt": "2+2=", "completion": "5", "answer": "4", "tests": []},
]


def by_rows(rows: list[dict[str, Any]]) -> list[float]:
    return [float(row["completion"] == row["answer"]) for row in rows]


def by_columns(prompts: list[str], completions: list[str], answer: list[str]) -> list[float]:
    return [float(said == right) for said, right in zip(completions, answer, strict=True)]


def by_everything(completions: list[str], **columns: Any) -> list[float]:
    assert set(columns) == {"prompts", "answers", "tests"}
    return [float(len(tests)) for tests in columns["tests"]]


def by_one_column(answer: list[str], **columns: Any) -> list[float]:
    return [float(one) for one in answer]


async def later(completions: list[str]) -> np.ndarray:
    return np.array([len(one) for one in completions], dtype=np.float32)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (by_rows, [1.0, 0.0]),
        (by_columns, [1.0, 0.0]),
        (by_everything, [2.0, 0.0]),
        (by_one_column, [2.0, 4.0]),
        (later, [1.0, 1.0]),
        (lambda rows: torch.tensor([[0.5], [0.25]]), [0.5, 0.25]),
        (lambda rows: [None, True], [None, 1.0]),
    ],
)
def test_the_usual_signatures_and_results_are_accepted(function: Any, expected: list[float | None]) -> None:
    assert rewards_of(function, ROWS, "reward mine") == expected


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda rows: [1.0], "reward mine returned 1 values for 2 rows"),
        (lambda rows: 1.0, "reward mine returned float"),
        (lambda rows: [1.0, float("nan")], "reward mine returned nan for row 1"),
        (lambda rows: ["1", "2"], "returned '1' for row 0"),
        (lambda rows: [1 / len(row["tests"]) for row in rows], "raised ZeroDivisionError.*on row 1.*2\\+2="),
        (lambda rows: sys.exit(0), "raised SystemExit"),
        (lambda rows: os._exit(0), r"raised SystemExit\(0\)"),
    ],
)
def test_failures_name_the_function_and_the_row(function: Any, words: str) -> None:
    with pytest.raises(OwnCodeError, match=words):
        rewards_of(function, ROWS, "reward mine")


def test_a_missing_column_is_told_with_those_there_are() -> None:
    def asks(completions: list[str], solution: list[str]) -> list[float]:
        return [0.0] * len(completions)

    with pytest.raises(AssayError, match=r"takes 'solution'.*They have: .*answer.*tests"):
        rewards_of(asks, ROWS, "reward mine")


def test_a_function_that_hangs_is_an_error_after_its_time() -> None:
    with pytest.raises(OwnCodeError, match=r"did not return within 0\.05 s"):
        rewards_of(lambda rows: time.sleep(1.0) or [0.0, 0.0], ROWS, "reward mine", seconds=0.05)


def test_a_process_that_a_function_has_forked_may_leave_and_other_threads_too() -> None:
    def forks(rows: list[Any]) -> list[float]:
        child = os.fork()
        if not child:
            os._exit(7)
        return [float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))] * len(rows)

    assert rewards_of(forks, ROWS, "reward mine") == [7.0, 7.0]
    with kept_alive():
        found: list[Any] = []
        other = threading.Thread(target=lambda: found.append(vars(exits.OWN).get("process")))
        other.start()
        other.join()
    assert found == [None], "only the thread of the function is held"
    assert vars(exits.OWN).get("process") is None


def test_a_function_that_holds_the_interpreter_ends_the_process_and_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread can wake up meanwhile: a run with such a reward hung for ever."""
    monkeypatch.setattr(exits, "GRACE", 0.2)

    def holds(rows: list[Any]) -> list[float]:
        return [float(len(str(9**9**8)))] * len(rows)

    def work() -> None:
        with (tmp_path / "said").open("w") as said:
            os.dup2(said.fileno(), exits.STDERR)
        rewards_of(holds, ROWS, "reward mine", seconds=0.2)

    process = get_context("fork").Process(target=work)
    process.start()
    process.join(20.0)
    is_over, code = not process.is_alive(), process.exitcode
    process.kill()
    assert (is_over, code) == (True, 1)
    assert "in holds" in (tmp_path / "said").read_text()


def test_of_calls_side_by_side_one_is_watched_and_none_is_afterwards() -> None:
    with exits.ended_after(60.0), exits.ended_after(60.0):
        assert exits.ARMED.locked()
    assert not exits.ARMED.locked()
    with exits.ended_after(math.inf):
        assert not exits.ARMED.locked()
