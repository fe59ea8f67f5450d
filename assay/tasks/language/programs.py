"""Files of programming problems: prompts with tests, which completions must pass in a sandbox.

A row has `prompt` and `tests`, a list of assertions in Python or of {"stdin": ..., "stdout": ...}; or it is one of MBPP
(`test_list`) or HumanEval (`test`, `entry_point`). `solution`, `code` or `canonical_solution` is the demonstration.
The prompt of a problem of MBPP shows its first test alone: a program that knows its tests by heart fails the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome, PolicyFault, Score
from assay.rollouts.text import ByteTokenizer, Tokenizer
from assay.sandbox.choice import sandbox_of
from assay.sandbox.grading import Grade, Graded, graded
from assay.sandbox.values import Limits
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.rows import Row, field_of, name_of, rows_of
from assay.tasks.language.textfile import MAX_PROMPT, Files, TextFile, longest_prompt
from assay.tasks.language.verifying import Grader

SOLUTIONS = ("solution", "code", "canonical_solution")
FENCE = "```"
SHOWN = "Your code should pass this test:"
MAX_COMPLETION = 1 << 18


# ---------------------------------------------------------------------------------------------------- rows
def problem(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Reads (prompt, demonstration, facts as JSON) of a problem; AssayError names a field that does not fit."""
    asked = next((name for name in ("prompt", "text", "question") if name in row), "prompt")
    prompt = field_of(row, asked, where)
    solution = next((str(row[name]).replace("\r\n", "\n") for name in SOLUTIONS if row.get(name)), "")
    facts: dict[str, Any] = {"setup": setup_of(row, where)}
    if "entry_point" in row and "test" in row:
        called = f"{field_of(row, 'test', where)}\n\ncheck({field_of(row, 'entry_point', where)})\n"
        return prompt, solution, json.dumps({**facts, "given": prompt, "tests": [called]})
    name = "test_list" if "test_list" in row else "tests"
    tests = row[name]
    is_pairs = isinstance(tests, list) and all(isinstance(one, dict) for one in tests)
    if not isinstance(tests, list) or not tests or not (is_pairs or all(isinstance(one, str) for one in tests)):
        raise AssayError(
            f"{where}: '{name}' is {json.dumps(tests)[:60]}. It must be a list of assertions or of stdin and stdout"
        )
    if is_pairs:
        pairs = [
            [pair_field(one, names, where) for names in (("stdin", "input"), ("stdout", "output"))] for one in tests
        ]
        return prompt, solution, json.dumps({**facts, "pairs": pairs})
    shown = prompt if asked == "prompt" and name == "tests" else f"{prompt}\n{SHOWN}\n{tests[0]}\n"
    return shown, solution, json.dumps({**facts, "tests": tests})


def setup_of(row: Mapping[str, Any], where: str) -> str:
    """Returns what tests need before they run."""
    found = row.get("setup") or row.get("test_setup_code") or row.get("test_imports") or ""
    lines = found if isinstance(found, list) else [found]
    if not all(isinstance(one, str) for one in lines):
        raise AssayError(f"{where}: the tests' setup is {json.dumps(found)[:60]}. It must be text")
    return "\n".join(lines)


def pair_field(pair: Mapping[str, Any], names: Sequence[str], where: str) -> str:
    """Returns the input or the output of a test."""
    for name in names:
        if isinstance(pair.get(name), str):
            return str(pair[name])
    raise AssayError(f"{where}: a test has no text '{names[0]}' (it has: {', '.join(pair)}). Add it")


def program_file(
    path: str, tokenizer: Tokenizer = ByteTokenizer(), max_tokens: int = 0, held_out: float = 0.1, seed: int = 0
) -> PromptTask:
    """Returns the task of a file of programming problems."""
    read, digest = rows_of(path, problem, ())
    texts = [Row(row.where, row.fields[:2] if row.fields[1] else row.fields[:1]) for row in read]
    items = tuple(Item(row.fields[0], "", row.fields[1], json.loads(row.fields[2]), row.where) for row in read)
    longest = longest_prompt(texts, tokenizer, MAX_PROMPT)
    needed = max(len(tokenizer.encode(item.demonstration)) for item in items) + 1
    source = TextFile(path, digest, held_out, seed, items, grader=PythonTests())
    return PromptTask(name_of(Path(path)), source, tokenizer, longest, max_tokens or max(256, needed))


# ---------------------------------------------------------------------------------------------------- programs
def code_of(completion: str, given: str = "") -> str:
    """Returns the program in a completion: its last block between fences, or all of it.

    `given` is the beginning of a function that a prompt asks to complete: it stands before a completion that does not
    define the function itself.
    """
    blocks = completion.split(FENCE)
    if len(blocks) > 1:
        last = blocks[-2 if len(blocks) % 2 else -1]
        completion = re.sub(r"\A[a-zA-Z0-9_+-]{0,16}[ \t]*\r?\n", "", last)
    names = re.findall(r"^def +(\w+)", given, re.MULTILINE)
    is_whole = bool(names) and re.search(rf"^def +{names[-1]}\b", completion, re.MULTILINE) is not None
    if not given or is_whole:
        return f"{before(given, names[-1])}\n{completion}" if is_whole else completion
    return given + completion


def before(given: str, name: str) -> str:
    """Returns what stands before the function that is asked for: imports and other functions."""
    return given[: given.rfind(f"def {name}")]


@dataclass(frozen=True)
class PythonTests:
    """Runs the program in each completion against the tests of its row: 1 if all pass, else 0.

    A program that ran out of time, memory or output, or crashed, is a fault of the policy. Both are 0.
    """

    sandbox: str = "bubblewrap"
    seconds: float = 10.0

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        return [outcome_of(grade) for grade in self.grades(rows)]

    def grades(self, rows: Sequence[Mapping[str, Any]]) -> list[Grade]:
        """Returns which tests each completion passed."""
        limits = Limits(seconds=self.seconds, cpu_seconds=max(1.0, 0.8 * self.seconds))
        return graded([program_of(row) for row in rows], sandbox_of(self.sandbox), limits)


def program_of(row: Mapping[str, Any]) -> Graded:
    """Returns the program of a completion with the tests of its row; AssayError if the row has none."""
    if not row.get("tests") and not row.get("pairs"):
        raise AssayError(f"a row has no 'tests' (it has: {', '.join(row)}). python-tests needs them in every row")
    said = str(row["completion"])
    if len(said) > MAX_COMPLETION:
        return Graded("raise MemoryError", tests=("assert f()",))
    pairs = tuple((one[0], one[1]) for one in row.get("pairs", ()))
    code = code_of(said, str(row.get("given", "")))
    return Graded(code, tuple(row.get("tests", ())), str(row.get("setup", "")), pairs)


def outcome_of(grade: Grade) -> Outcome:
    """Returns the outcome of a grade."""
    if grade.passed is None:
        return InfraFault(grade.fault)
    return PolicyFault(grade.fault) if grade.fault and not grade.is_right else Score(float(grade.is_right))


# ---------------------------------------------------------------------------------------------------- by name
def with_grader(task: Any, name: str | None, sandbox: str, seconds: float) -> Any:
    """Returns a task of files whose completions are judged by a grader of a name, in a sandbox of a name."""
    from assay.tasks.language.math_answers import MathVerify, need_library

    items = task.items if isinstance(task, PromptTask) else None
    if not isinstance(items, TextFile | Files):
        if name is None:
            return task
        raise AssayError(f"--verifier {name} judges files of prompts; task '{task.name}' is another. Remove it")
    if name == "math-verify":
        need_library()
    graders: dict[str, Grader] = {"python-tests": PythonTests(sandbox, seconds), "math-verify": MathVerify()}
    if name is not None and name not in graders:
        raise AssayError(f"there is no verifier '{name}'. Use one of {', '.join(graders)}")
    own = graders["python-tests"] if isinstance(items.grader, PythonTests) else items.grader
    chosen = own if name is None else graders[name]
    if name == "python-tests" and not all("tests" in row.facts or "pairs" in row.facts for row in items.rows):
        raise AssayError(
            f"{items.names} has rows without 'tests', which python-tests needs. Add them, or remove --verifier"
        )
    if isinstance(items, TextFile):
        return replace(task, items=replace(items, grader=chosen))
    files = tuple(replace(file, grader=chosen) for file in items.train)
    return replace(task, items=replace(items, train=files))


def runs_programs(task: Any) -> bool:
    """Returns whether completions of a task are run as programs."""
    items = task.items if isinstance(task, PromptTask) else None
    rows = (items,) if isinstance(items, TextFile) else items.train if isinstance(items, Files) else ()
    return any(isinstance(one.grader, PythonTests) for one in rows)
