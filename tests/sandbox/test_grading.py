"""Values are compared outside by exact type; tests of other forms run in a box of their own; faults are typed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.sandbox import Completed, Limits, ProgramFault, SandboxFault, inside
from assay.sandbox.decoding import is_same, value_of
from assay.sandbox.grading import Grade, Graded, expectation, graded
from assay.sandbox.values import Assertions, Job, job_as_json, job_of, result_of
from tests.sandbox.places import QUICK, boxes, needs_boxes

VALUES: list[Any] = [
    None, 0, 1.5, 2, -7, 1 << 70, "", "é\x00", b"x", [], [1], (1,), (), {1}, frozenset({1}), {}, {"a": 1}, {1: "a"},
    [[1], [2]], {(1, 2): {3}}, complex(1, 2), float("inf"),
]  # fmt: skip


def test_a_value_is_the_same_as_itself_alone() -> None:
    for place, one in enumerate(VALUES):
        for other, two in enumerate(VALUES):
            assert is_same(value_of(one), value_of(two)) == (place == other), (one, two)


def test_numbers_are_compared_by_value_and_sets_without_order() -> None:
    assert is_same(value_of(True), value_of(1))
    assert is_same(value_of(4.0), value_of(4))
    assert is_same(["s", 1, 2, 3], value_of({3.0, 2, 1}))
    assert is_same(value_of({"a": [1], "b": 2}), value_of({"b": 2, "a": [1]}))
    assert not is_same(value_of(float("nan")), value_of(float("nan")))
    assert not is_same(["s", 1, 1, 2], value_of({1, 2, 3}))


@pytest.mark.parametrize(
    "forged", [[], ["f"], ["f", 3], ["i", "zz"], ["d", 1], ["d", [1]], ["s", []], ["o", "int"], {}, ["?"]]
)
def test_what_no_box_writes_equals_nothing(forged: Any) -> None:
    assert not any(is_same(forged, value_of(one)) for one in VALUES)


def test_subclasses_are_what_they_hold() -> None:
    class Liar(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    assert json.loads(inside.encoded(Liar("no"))) == "no"
    assert json.loads(inside.encoded(object()))[0] == "o"
    for one in VALUES:
        assert is_same(value_of(inside.decode_value(value_of(one))), value_of(one))


@pytest.mark.parametrize(
    ("test", "expression"),
    [
        ("assert f(1) == 2", "f(1)"),
        ("assert set(f(1)) == {2}", "set(f(1))"),
        ("assert f(1) is None", "f(1)"),
        ("assert f(1)", "bool(f(1))"),
        ("assert not f(1)", "bool(f(1))"),
        ("assert f(1) == g(2)", None),
        ("assert abs(f(1) - 2) < 0.1", None),
        ("assert f(1) != 2", None),
        ("for x in range(3):\n    assert f(x) == x", None),
        ("assert 1 == 1", None),
        ("assert f(", None),
    ],
)
def test_which_tests_become_a_value(test: str, expression: str | None) -> None:
    found = expectation(test)
    assert (found and found.expression) == expression


def test_a_fault_of_the_sandbox_is_no_grade() -> None:
    program = Graded("x", ("assert f(1) == 2",))
    assert program.grade([SandboxFault("gone")]) == Grade(None, "gone")
    assert program.grade([ProgramFault("timeout")]) == Grade((False,), "timeout")
    assert program.grade([Completed(())]).passed == (False,)
    assert not Graded("x").grade([]).is_right


@needs_boxes
def test_programs_read_their_input_and_tests_of_any_form_run() -> None:
    programs = [
        Graded("print(sum(map(int, input().split())))", pairs=(("1 2", "3\n"), ("4 5", "9"))),
        Graded("print(3)", pairs=(("1 2", "3"), ("4 5", "9"))),
        Graded("print(3)\nexit(1)", pairs=(("1 2", "3"),)),
        Graded(
            "def f(x):\n    return x * 2",
            ("def check(c):\n    for n in range(9):\n        assert c(n) == 2 * n\ncheck(f)",),
        ),
        Graded(
            "def f(x):\n    raise KeyError", ("try:\n    f(1)\nexcept KeyError:\n    pass\nelse:\n    assert False",)
        ),
        Graded(
            "class Node:\n    def __init__(self, v): self.v = v\ndef f(n): return n.v",
            ("assert f(r) == 3",),
            "r = Node(3)",
        ),
    ]
    grades = graded(programs, boxes(), QUICK)
    assert [grade.passed for grade in grades] == [(True, True), (True, False), (False,), (True,), (True,), (True,)]


@needs_boxes
def test_the_tests_are_in_another_box_than_the_program() -> None:
    code = "import os\nopen('/tmp/mine', 'w').close()\ndef f(x):\n    return sorted(os.listdir('/tmp'))"
    tests = (
        "import os\nassert os.listdir('/tmp') == [] and len(f(1)) == 1",
        "open('/tmp/theirs', 'w')",
        "assert len(f(1)) < 2",
    )
    result = boxes().run(code, Assertions(tests), QUICK)
    assert isinstance(result, Completed)
    assert result.values == (True, True, True)
    slow = boxes().run("def f(x):\n    while True: pass", Assertions(("assert f(1) in (2, 3)",)), QUICK)
    assert isinstance(slow, ProgramFault)
    assert slow.kind == "timeout"


def test_jobs_and_results_survive_being_written_down() -> None:
    job = Job("x", Assertions(("assert f()",), "y"), Limits(seconds=3))
    assert job_of(json.loads(json.dumps(job_as_json(job)))) == job
    for bad in (None, 3, {"result": "won"}, {"result": "completed", "status": "0"}, {"result": "program", "x": 1}):
        assert isinstance(result_of(bad), SandboxFault)
