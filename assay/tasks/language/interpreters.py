"""What executes the code of a conversation: a database, a shell in a box, Python in boxes. All keep their state."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Protocol

from assay.core.record import Outcome, Score
from assay.sandbox.choice import Sandbox
from assay.sandbox.grading import Graded, graded
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.shell import BoxEnded, Said, Shell
from assay.sandbox.values import Completed, Limits, ProgramFault, SandboxFault, Stdin
from assay.tasks.language.code_scores import commands_score, tests_score
from assay.tasks.language.items import Item
from assay.tasks.language.programs import code_of
from assay.tasks.language.sql import TIMED_OUT, Sqlite, SqlLimits, SqlResult, gold_rows, rows_score, unfenced

SHOWN = 400
"""Bytes of an output that the policy reads."""
ENOUGH = 1 << 16
"""Bytes of an output that are compared."""
DRIVER = """
import ast, json, os, sys
names, cells = {"__name__": "__main__"}, json.load(sys.stdin)
shown, silent = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
for place, cell in enumerate(cells):
    is_last = place + 1 == len(cells)
    for channel, kept in zip((1, 2), shown):
        os.dup2(kept if is_last else silent, channel)
    try:
        tree = ast.parse(cell, "cell")
        end = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        exec(compile(tree, "cell", "exec"), names)
        for one in end:
            value = eval(compile(ast.Expression(one.value), "cell", "eval"), names)
            if value is not None and is_last:
                print(repr(value))
    except BaseException as error:
        print(f"{type(error).__name__}: {error}")
    sys.stdout.flush()
"""
"""Executes cells one after the other; what the last one writes, its value and its error are shown."""


class Interpreter(Protocol):
    """Executes code with state. An error of the code is an observation, one of the infrastructure an exception."""

    def run(self, code: str) -> str:
        """Executes an utterance; returns what the policy reads. BoxEnded if nothing can be executed any more."""

    def score(self) -> Outcome:
        """Returns the outcome of the present state."""

    def close(self) -> None:
        """Frees what is held."""


@dataclass
class Queried:
    """A database that queries only read, so that its state is the last result: that is what is scored."""

    schema: str
    query: str
    seconds: float
    last: SqlResult | None = None

    def run(self, code: str) -> str:
        """Returns the rows of a query, or its error."""
        self.last = Sqlite().run(self.schema, unfenced(code), SqlLimits(seconds=self.seconds))
        return self.last.text

    def score(self) -> Outcome:
        """Returns `rows_score` of the last result, which may be negative; 0 without one."""
        return Score(rows_score(self.last, gold_rows(self.schema, self.query)) if self.last else 0.0)

    def close(self) -> None:
        """Does nothing."""


@dataclass
class Commanded:
    """A box with files; the right commands run in another one, after the policy's was closed."""

    sandbox: LocalSandbox
    item: Item
    seconds: float
    shell: Shell = field(init=False)
    last: str = ""

    def __post_init__(self) -> None:
        self.shell = self.begun_shell()

    def begun_shell(self) -> Shell:
        """Returns a box with the files of the row."""
        files = self.item.facts["files"]
        assert isinstance(files, dict)
        return Shell(self.sandbox, files)

    def run(self, code: str) -> str:
        """Returns what a command wrote."""
        said = self.shell.run(without_fence(code), self.seconds, ENOUGH)
        self.last = said.output
        return told(said)

    def score(self) -> Outcome:
        """Returns `commands_score` of the files and the last output."""
        solution, files = self.item.facts["solution"], self.item.facts["files"]
        assert isinstance(solution, list)
        assert isinstance(files, dict)
        before = {path: str(text).encode() for path, text in files.items()}
        found = self.shell.files()
        self.shell.close()
        right = self.begun_shell()
        try:
            wanted = [right.run(command, self.seconds, ENOUGH).output for command in solution][-1]
            return Score(commands_score(before, found, right.files(), self.last, wanted))
        except BoxEnded as error:
            raise RuntimeError(f"{self.item.where}: the right commands ended their box: {error}") from None
        finally:
            right.close()

    def close(self) -> None:
        """Ends the box."""
        self.shell.close()


@dataclass
class Celled:
    """Cells of Python with common names: those before are executed again, silently, in the box of each new one.

    A cell that breaks a limit, alone or with those before it, is forgotten.
    """

    sandbox: Sandbox
    item: Item
    seconds: float
    cells: list[str] = field(default_factory=list)

    @property
    def limits(self) -> Limits:
        """Returns the limits of all cells together."""
        return Limits(seconds=self.seconds, cpu_seconds=max(1.0, 0.8 * self.seconds))

    def run(self, code: str) -> str:
        """Returns what a cell wrote, its last value and its error."""
        cell = code_of(code)
        found = self.sandbox.run(DRIVER, Stdin(json.dumps([*self.cells, cell])), self.limits)
        if isinstance(found, SandboxFault):
            raise RuntimeError(found.kind)
        if isinstance(found, ProgramFault):
            return TIMED_OUT if found.kind == "timeout" else f"[{found.kind}]"
        assert isinstance(found, Completed)
        self.cells.append(cell)
        return f"{found.output}{found.errors}"

    def score(self) -> Outcome:
        """Returns the share of the tests that the names of all cells pass."""
        tests, setup = self.item.facts["tests"], str(self.item.facts["setup"])
        assert isinstance(tests, list)
        program = "".join(map(guarded, self.cells))
        return tests_score(graded([Graded(program, tuple(tests), setup)], self.sandbox, self.limits)[0])

    def close(self) -> None:
        """Does nothing: each run has a box of its own."""


def guarded(cell: str) -> str:
    """Returns a cell as a part of a program that goes on after the cell's error."""
    return f"try:\n    exec({cell!r}, globals())\nexcept BaseException:\n    pass\n"


def told(said: Said) -> str:
    """Returns an output with the status, if it is not 0, or that time ran out."""
    status = f"[status {said.status}]" if said.status else ""
    return f"{said.output}{TIMED_OUT if said.is_late else status}"


def without_fence(text: str) -> str:
    """Returns the command in a text."""
    return re.sub(r"\A```(?:bash|sh|shell)?\n|\n?```\Z", "", text.strip())
