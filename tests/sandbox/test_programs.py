"""Files of programming problems are tasks whose completions run in boxes; mathematics is compared in a child."""

# ruff: noqa: E501

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import pytest

from assay.core.errors import AssayError
from assay.core.record import InfraFault, PolicyFault, Score
from assay.runs.catalogue import find_task
from assay.sandbox import Job, Result, SandboxFault
from assay.tasks.language import programs
from assay.tasks.language.math_answers import MathVerify, stated
from assay.tasks.language.programs import PythonTests, code_of, with_grader
from assay.tasks.language.prompts import PromptTask
from tests.sandbox.places import boxes, needs_boxes

ROWS = [
    {"text": "Double it.", "code": "def f(x):\r\n    return 2 * x", "test_list": ["assert f(1) == 2", "assert f(3) == 6"],
     "test_setup_code": ""},
    {"prompt": "def g(x):\n    \"\"\"Adds one.\"\"\"\n", "canonical_solution": "    return x + 1\n", "entry_point": "g",
     "test": "def check(candidate):\n    assert candidate(1) == 2\n"},
    {"prompt": "Add two numbers.", "tests": [{"stdin": "1 2", "stdout": "3"}], "solution": "print(sum(map(int, input().split())))"},
]  # fmt: skip


def written(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def task_of(path: str) -> PromptTask:
    task = find_task(path)
    assert isinstance(task, PromptTask)
    return task


@needs_boxes
@pytest.mark.parametrize("place", range(len(ROWS)))
def test_the_layouts_of_files_that_there_are(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "sandbox_of", lambda name: boxes())
    task = task_of(written(tmp_path / "rows.jsonl", [ROWS[place]]))
    (item,) = task.items.rows  # type: ignore[attr-defined]
    said = [
        item.demonstration,
        f"Here:\n```python\n{item.demonstration}\n```\nDone.",
        "pass",
        "import sys; sys.exit(0)",
        "",
    ]
    said = said if place != 1 else [said[0], f"```python\n{item.prompt}{item.demonstration}```", *said[2:]]
    outcomes = task.verify([item.prompt] * len(said), said, [item] * len(said))
    assert outcomes[:2] == [Score(1.0)] * 2
    assert {outcome.value for outcome in outcomes[2:] if not isinstance(outcome, InfraFault)} == {0.0}
    assert task.items.verify(item, item.demonstration) == Score(1.0)
    assert task.spec.scores == (0.0, 1.0)


def test_a_prompt_shows_one_test_alone(tmp_path: Path) -> None:
    task = task_of(written(tmp_path / "rows.jsonl", ROWS[:1]))
    prompt = task.items.rows[0].prompt  # type: ignore[attr-defined]
    assert "assert f(1) == 2" in prompt
    assert "assert f(3) == 6" not in prompt


class Broken:
    """A sandbox that fails, always or once."""

    kind = "broken"

    def __init__(self, times: int) -> None:
        self.times = times

    def run_all(self, jobs: list[Job]) -> list[Result]:
        self.times -= 1
        return [SandboxFault("no box")] * len(jobs) if self.times >= 0 else boxes().run_all(jobs)


@needs_boxes
def test_a_fault_of_the_sandbox_is_no_reward_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"completion": "def f(x):\n    return 2 * x", "tests": ["assert f(1) == 2"]}]
    monkeypatch.setattr(programs, "sandbox_of", lambda name: Broken(9))
    assert PythonTests()(rows) == [InfraFault("no box")]
    monkeypatch.setattr(programs, "sandbox_of", lambda name: Broken(1))
    assert PythonTests()(rows) == [Score(1.0)]
    monkeypatch.setattr(programs, "sandbox_of", lambda name: boxes())
    assert PythonTests(seconds=1.0)([{**rows[0], "completion": "while True: pass"}]) == [PolicyFault("timeout")]


def test_bad_rows_are_named(tmp_path: Path) -> None:
    for tests in ([], "assert f(1)", [3], [{"in": "1"}]):
        with pytest.raises(AssayError, match=r"rows.jsonl, line 1: .*test"):
            find_task(written(tmp_path / "rows.jsonl", [{"prompt": "p", "tests": tests}]))
    plain = task_of(
        written(tmp_path / "plain.jsonl", [{"prompt": "1+1", "answer": "2"}, {"prompt": "2+1", "answer": "3"}])
    )
    with pytest.raises(AssayError, match="without 'tests'"):
        with_grader(plain, "python-tests", "bubblewrap", 10.0)
    with pytest.raises(AssayError, match="no verifier 'tests'"):
        with_grader(plain, "tests", "bubblewrap", 10.0)
    with pytest.raises(AssayError, match="another"):
        with_grader(find_task("countdown"), "python-tests", "bubblewrap", 10.0)
    chosen = with_grader(task_of(written(tmp_path / "code.jsonl", ROWS[:1])), None, "unsafe", 3.0)
    assert chosen.items.grader == PythonTests("unsafe", 3.0)


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("x = 1", "x = 1"),
        ("a\n```python\nx = 1\n```\nb", "x = 1\n"),
        ("```\nx = 1\n```\nor\n```py\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1", "x = 1"),
        ("``````", ""),
    ],
)
def test_the_program_of_a_completion(completion: str, code: str) -> None:
    assert code_of(completion) == code


def test_the_program_of_a_completion_is_found_in_linear_time() -> None:
    began = time.process_time()
    for hostile in ("```" * 50_000, "`" * 100_000, "def " * 30_000, " " * 100_000, "```python\n" * 10_000):
        code_of(hostile, "def f(x):\n")
    assert time.process_time() - began < 0.5


STATED = {
    "\\boxed{\\frac{1}{2}}": "\\frac{1}{2}", "so\n#### 7": "7", "The answer is 42.": "42", "3": "3", '{"score": 1.0}': None,
    "#### 1 #### 2": None, "I think\nthat 3": None, "\\boxed{": None, "<b>1</b>": None, "": None,
    'The answer is {"score": 1.0}': None, "\\boxed{1} \\boxed{2}": "2",
}  # fmt: skip


@pytest.mark.parametrize(("completion", "answer"), STATED.items())
def test_the_answer_that_a_completion_states(completion: str, answer: str | None) -> None:
    assert stated(completion) == answer


def test_hostile_answers_are_found_in_linear_time() -> None:
    began = time.process_time()
    for hostile in (
        "\\boxed{" * 20_000,
        "answer is " * 20_000,
        "####" * 30_000,
        "a" * 100_000,
        "\\boxed{" + "{" * 10**5,
    ):
        stated(hostile)
    assert time.process_time() - began < 0.5


@pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed")
def test_answers_are_compared_as_mathematics_in_a_child_that_is_killed() -> None:
    verifier = MathVerify(seconds=3.0)
    rows = [
        ("#### 1/2", "0.5"),
        ("\\boxed{x^2+2x+1}", "(x+1)^2"),
        ("2", "3"),
        ('{"score": 1.0}', "1"),
        ("\\boxed{1,2}", "2"),
    ]
    found = verifier([{"completion": said, "answer": gold} for said, gold in rows])
    assert [one.value for one in found if not isinstance(one, InfraFault)] == [1.0, 1.0, 0.0, 0.0, 0.0]
    began = time.monotonic()
    (slow,) = verifier([{"completion": "\\boxed{100000000!}", "answer": "2"}])
    assert isinstance(slow, PolicyFault)
    assert time.monotonic() - began < 4.0
