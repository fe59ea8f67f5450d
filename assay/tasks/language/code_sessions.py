"""Conversations whose utterances are code: SQL, bash or Python is executed, its output the reply; "submit" scores.

Rows, by their fields: `prompt`, `schema`, `query` (SQL; the right query); `prompt`, `files`, `solution` (bash; the
right commands); `prompt`, `tests`, `setup`, or rows of MBPP and HumanEval (Python). arXiv:2306.14898.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError
from assay.core.record import Outcome, PolicyFault, Score
from assay.rollouts.text import ByteTokenizer
from assay.sandbox.choice import sandbox_of
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.shell import BoxEnded
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.interpreters import SHOWN, Celled, Commanded, Interpreter, Queried
from assay.tasks.language.items import Item
from assay.tasks.language.partners import Reply
from assay.tasks.language.programs import problem
from assay.tasks.language.rows import field_of, name_of, rows_of
from assay.tasks.language.shell import AT_ONCE, row_of, start_of
from assay.tasks.language.sql import gold_rows

SQL, BASH, PYTHON = "SQL", "bash", "Python"
SUBMIT, SKIP = "submit", "skip"
RULES = {
    SQL: "one SELECT in SQLite's dialect; its rows or its error are the reply, and the last result is scored",
    BASH: "one command of bash; what it writes is the reply, and files and the last output are scored",
    PYTHON: "Python; what it prints, its last value or its error is the reply, names stay, and tests are scored",
}
LINES = {
    SQL: '{"prompt": "...", "schema": "create table ...", "query": "select ..."}',
    BASH: '{"prompt": "...", "files": {"a.txt": "..."}, "solution": "sort a.txt"}',
    PYTHON: '{"prompt": "...", "tests": ["assert f(1) == 2"]}',
}


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


@dataclass(frozen=True)
class CodeSessions:
    """Opens an interpreter of the row's language for each rollout."""

    rows: tuple[Item, ...] = field(repr=False)
    sandbox: str = "bubblewrap"
    seconds: float = 10.0

    @property
    def languages(self) -> list[str]:
        """Returns the languages of the rows."""
        found = {item.facts["language"] for item in self.rows}
        return [one for one in RULES if one in found]

    @property
    def introduction(self) -> str:
        """Returns the rules, for a pretrained model."""
        rules = " or ".join(RULES[one] for one in self.languages)
        return f"Each of your messages is {rules}. Write {SUBMIT} when you are done."

    @property
    def is_repeatable(self) -> bool:
        """A box has a clock, a database in memory has none."""
        return self.languages == [SQL]

    @property
    def is_open_between(self) -> bool:
        """Of bash; each cell of Python has a box of its own."""
        return BASH in self.languages

    def item(self, ordinal: int, split: int) -> Item:
        """Returns row `ordinal` of the split, modulo the number of rows."""
        return row_of(self.rows, ordinal, split)

    def open(self, item: Item, seed: int) -> CodeSession:
        """Opens the interpreter of a row."""
        language, facts = item.facts["language"], item.facts
        if language == SQL:
            return CodeSession(Queried(str(facts["schema"]), str(facts["query"]), self.seconds))
        sandbox = sandbox_of(self.sandbox, AT_ONCE)
        if language == PYTHON:
            return CodeSession(Celled(sandbox, item, self.seconds))
        assert isinstance(sandbox, LocalSandbox), "in_sandbox refuses others"
        return CodeSession(Commanded(sandbox, item, self.seconds))


def code_task(path: str, max_turns: int = 6, max_tokens: int = 128) -> DialogueTask:
    """Returns the task of a file of problems that are solved by executing code."""
    rows, _ = rows_of(path, read, ("prompt", "solution"))
    items = tuple(Item(f"{row.fields[0]}\n", "", row.fields[1], json.loads(row.fields[2]), row.where) for row in rows)
    longest = max(len(item.prompt.encode()) for item in items) + 1
    needed = max(len(line.encode()) for item in items for line in item.demonstration.split("\n")) + 1
    limits = (longest, max_turns, max(max_tokens, needed), SHOWN + 64)
    return DialogueTask(name_of(Path(path)), CodeSessions(items), ByteTokenizer(), *limits)


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
            what = f"{where}: tests of stdin and stdout are for whole programs, not for conversations"
            raise AssayError(f"{what}. Use the file as --task without 'code:', or assertions")
        return prompt, "", json.dumps({**facts, "language": PYTHON})
    files, commands = start_of(row, where)
    if not any(one.strip() for one in commands):
        shown = ", ".join(LINES.values())
        raise AssayError(f"{where} has none of the fields 'schema', 'tests' and 'solution'. Write rows such as {shown}")
    return field_of(row, "prompt", where), "", json.dumps({"language": BASH, "files": files, "solution": commands})
