"""Programs against tests: values are compared outside of the box, other tests run in a box of their own.

`assert CALL == LITERAL`, `assert CALL is LITERAL`, `assert CALL` and `assert not CALL` become an expression, which the
box evaluates, and a value, which never enters it. Every other test runs in a second box (`values.Assertions`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from assay.sandbox.choice import Sandbox
from assay.sandbox.decoding import is_same, value_of
from assay.sandbox.values import (
    Assertions,
    Calls,
    Completed,
    Job,
    Limits,
    ProgramFault,
    Result,
    SandboxFault,
    Stdin,
    Value,
)


@dataclass(frozen=True)
class Expected:
    """An expression of a test, and what its value must be."""

    expression: str
    value: Value

    def holds(self, found: Value) -> bool:
        """Returns whether a box's answer to the expression passes the test."""
        if not isinstance(found, list) or len(found) != 2 or found[0] != "v":
            return False
        return is_same(found[1], self.value)


def expectation(test: str) -> Expected | None:
    """Returns what a test expects of one expression; None if the test has another form."""
    try:
        (statement,) = ast.parse(test).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(statement, ast.Assert):
        return None
    tested, truth = statement.test, True
    if isinstance(tested, ast.UnaryOp) and isinstance(tested.op, ast.Not):
        tested, truth = tested.operand, False
    if isinstance(tested, ast.Compare) and len(tested.ops) == 1 and truth:
        (literal,) = tested.comparators
        if not isinstance(tested.ops[0], ast.Eq | ast.Is) or not has_call(tested.left):
            return None
        try:
            value = value_of(ast.literal_eval(literal))
        except (ValueError, TypeError, RecursionError, MemoryError):
            return None
        return None if isinstance(value, list) and value[0] == "o" else Expected(ast.unparse(tested.left), value)
    return Expected(f"bool({ast.unparse(tested)})", truth) if isinstance(tested, ast.Call) else None


def has_call(expression: ast.expr) -> bool:
    """Returns whether an expression calls something."""
    return any(isinstance(node, ast.Call) for node in ast.walk(expression))


@dataclass(frozen=True)
class Grade:
    """Whether a program passed each test (None if the sandbox failed), and the fault that ended it."""

    passed: tuple[bool, ...] | None
    fault: str = ""

    @property
    def is_right(self) -> bool:
        """Returns whether every test passed, and there was one."""
        return bool(self.passed) and all(self.passed or ())


@dataclass(frozen=True)
class Graded:
    """A program and its tests: assertions in Python, or pairs of standard input and output."""

    code: str
    tests: tuple[str, ...] = ()
    setup: str = ""
    pairs: tuple[tuple[str, str], ...] = ()

    def jobs(self, limits: Limits) -> list[Job]:
        """Returns the runs that grade the program."""
        if self.pairs:
            return [Job(self.code, Stdin(given), limits) for given, _ in self.pairs]
        found = [expectation(test) for test in self.tests]
        called = tuple(one.expression for one in found if one is not None)
        others = tuple(test for test, one in zip(self.tests, found, strict=True) if one is None)
        calls = [Job(self.code, Calls(called, self.setup), limits)] if called else []
        return [*calls, *([Job(self.code, Assertions(others, self.setup), limits)] if others else [])]

    def grade(self, results: Sequence[Result]) -> Grade:
        """Returns the grade from the results of the jobs, in their order."""
        broken = [one.kind for one in results if isinstance(one, SandboxFault)]
        if broken:
            return Grade(None, broken[0])
        faults = [one.kind for one in results if isinstance(one, ProgramFault)]
        if self.pairs:
            passed = [is_output(result, wanted) for result, (_, wanted) in zip(results, self.pairs, strict=True)]
            return Grade(tuple(passed), faults[0] if faults else "")
        found, left = [expectation(test) for test in self.tests], list(results)
        called = graded_values(left.pop(0), sum(one is not None for one in found)) if any(found) else []
        others = graded_values(left.pop(0), found.count(None)) if None in found else []
        passed = [others.pop(0) is True if one is None else one.holds(called.pop(0)) for one in found]
        return Grade(tuple(passed), faults[0] if faults else "")


def graded_values(result: Result, number: int) -> list[Value]:
    """Returns the values of a result; a value that passes no test for each that is missing."""
    values = list(result.values) if isinstance(result, Completed) else []
    return values if len(values) == number else [["e", "missing"]] * number


def is_output(result: Result, wanted: str) -> bool:
    """Returns whether a program ended well and wrote what was wanted, line by line without white space at the ends."""
    return isinstance(result, Completed) and result.status == 0 and lines(result.output) == lines(wanted)


def lines(text: str) -> list[str]:
    """Returns the lines of a text without white space at their ends, and without empty lines at its end."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def graded(programs: Sequence[Graded], sandbox: Sandbox, limits: Limits = Limits()) -> list[Grade]:
    """Returns the grade of each program; all run at once, as far as the sandbox has room. A run in which the sandbox
    failed is tried once more.
    """
    jobs = [program.jobs(limits) for program in programs]
    flat = [job for several in jobs for job in several]
    once = sandbox.run_all(flat)
    broken = [place for place, one in enumerate(once) if isinstance(one, SandboxFault)]
    for place, again in zip(broken, sandbox.run_all([flat[place] for place in broken]), strict=True):
        once[place] = again
    results = iter(once)
    found = [[next(results) for _ in several] for several in jobs]
    return [program.grade(own) for program, own in zip(programs, found, strict=True)]
