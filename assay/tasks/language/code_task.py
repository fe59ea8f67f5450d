"""The task of a file whose rows are solved by executing code; see `code_sessions` for the rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from assay.rollouts.text import ByteTokenizer
from assay.sandbox.choice import sandbox_of
from assay.sandbox.pool import LocalSandbox
from assay.tasks.language.code_sessions import BASH, PYTHON, SQL, SUBMIT, CodeSession, read
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.interpreters import SHOWN, Celled, Commanded, Queried
from assay.tasks.language.items import Item
from assay.tasks.language.rows import name_of, rows_of
from assay.tasks.language.shell import AT_ONCE, row_of

RULES = {
    SQL: "one SELECT in SQLite's dialect; its rows or its error are the reply, and the last result is scored",
    BASH: "one command of bash; what it writes is the reply, and files and the last output are scored",
    PYTHON: "Python; what it prints, its last value or its error is the reply, names stay, and tests are scored",
}


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
