"""Conversations whose utterances are code: SQL, bash or Python is executed, its output the reply; "submit" scores.

Rows, by their fields: `prompt`, `schema`, `query` (SQL; the right query); `prompt`, `files`, `solution` (bash; the
right commands); `prompt`, `tests`, `setup`, or rows of MBPP and HumanEval (Python). arXiv:2306.14898.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.core.errors import AssayError
from assay.core.record import Outcome, PolicyFault, Score
from assay.sandbox.shell import BoxEnded
from assay.tasks.language.interpreters import SHOWN, Interpreter
from assay.tasks.language.partners import Reply
from assay.tasks.language.programs import problem
from assay.tasks.language.rows import field_of
from assay.tasks.language.sql import gold_rows
from assay.tasks.language.starting_files import start_of

SQL, BASH, PYTHON = "SQL", "bash", "Python"
SUBMIT, SKIP = "submit", "skip"
LINES = (
    '{"prompt": "...", "schema": "create table ...", "query": "select ..."}, '
    '{"prompt": "...", "files": {"a.txt": "..."}, "solution": "sort a.txt"}, {"prompt": "...", "tests": ["assert ..."]}'
)


@dataclass
class CodeSession:
    """One conversation. An utterance that begins with "submit" ends it with the score, "skip" with 0."""

    interpreter: Interpreter

    def reply(self, utterance: str) -> Reply:
        """Executes an utterance; returns the first `SHOWN` bytes of what there is to read."""
        words = utterance.strip()
        if words == SKIP:
            return Reply("", Score(0.0))
        if words.startswith(SUBMIT):
            return Reply("", self.reward())
        try:
            read = self.interpreter.run(utterance)
        except BoxEnded as error:
            return Reply("", PolicyFault(str(error)))
        return Reply(read.encode("utf-8", "replace")[:SHOWN].decode("utf-8", "ignore").rstrip() + "\n")

    def reward(self) -> Outcome:
        """Returns the score of the state as it is."""
        try:
            return self.interpreter.score()
        except BoxEnded as error:
            return PolicyFault(str(error))

    def close(self) -> None:
        """Frees what the interpreter holds."""
        self.interpreter.close()


def read(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Reads (prompt, demonstration, facts as JSON); AssayError names a field that does not fit."""
    if "schema" in row or "query" in row:
        schema, query = field_of(row, "schema", where), " ".join(field_of(row, "query", where).split())
        try:
            gold_rows(schema, query)
        except AssayError as error:
            raise AssayError(f"{where}: {error}") from None
        facts = {"language": SQL, "schema": schema, "query": query}
        return field_of(row, "prompt", where), f"{query}\n{SUBMIT}", json.dumps(facts)
    if any(name in row for name in ("tests", "test_list", "test")):
        prompt, _, told = problem(row, where)
        facts = json.loads(told)
        if "pairs" in facts:
            raise AssayError(
                f"{where}: tests of stdin and stdout are not for conversations. Use assertions, or no 'code:'"
            )
        return prompt, "", json.dumps({**facts, "language": PYTHON})
    files, commands = start_of(row, where)
    if not any(one.strip() for one in commands):
        raise AssayError(f"{where} has none of the fields 'schema', 'tests' and 'solution'. Write rows such as {LINES}")
    return field_of(row, "prompt", where), "", json.dumps({"language": BASH, "files": files, "solution": commands})
