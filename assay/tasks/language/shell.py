"""Conversations with a shell in a box: an utterance is a command, the reply what it wrote; the final files are paid.

Rows: `prompt`, `files` (path -> text, at the beginning), `expected_files` (path -> text, at the end; never in the box),
and `solution`, one command a line. An utterance "exit" ends the conversation. Also from Python with a reward of one's
own: `ShellSessions(rows, reward=function of (item, final files))`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from assay.core.errors import AssayError
from assay.core.record import Outcome, PolicyFault, Score
from assay.rollouts.text import ByteTokenizer, is_held_out
from assay.sandbox.choice import sandbox_of
from assay.sandbox.pool import LocalSandbox
from assay.sandbox.shell import BoxEnded, Shell
from assay.tasks.language.dialogue import DialogueTask
from assay.tasks.language.items import Item, check_split
from assay.tasks.language.partners import Reply
from assay.tasks.language.rows import field_of, name_of, rows_of
from assay.tasks.language.starting_files import files_of, start_of

END = "exit"
SHOWN = 400
"""Bytes of a command's output that the policy reads."""
HELD_OUT = 0.1
AT_ONCE = 256
"""Boxes that are open at the same time, as many as sessions are asked at once by default."""

FilesReward = Callable[[Item, Mapping[str, bytes]], float]


def as_expected(item: Item, files: Mapping[str, bytes]) -> float:
    """Returns 1 if every expected file is there with its content, without white space at its end; else 0."""
    expected = item.facts["expected_files"]
    assert isinstance(expected, dict)
    pairs = ((files.get(path), str(text).encode()) for path, text in expected.items())
    return float(all(found is not None and found.rstrip() == wanted.rstrip() for found, wanted in pairs))


@dataclass
class ShellSession:
    """One conversation: a box that stays until it ends."""

    item: Item
    shell: Shell
    seconds: float
    reward_of: FilesReward

    def reply(self, utterance: str) -> Reply:
        """Runs the command; "exit" ends the conversation with its reward."""
        words = re.sub(r"\A```(?:bash|sh|shell)?\n|\n?```\Z", "", utterance.strip())
        if words.strip() in (END, "submit"):
            return Reply("", self.reward())
        try:
            said = self.shell.run(words, self.seconds, SHOWN)
        except BoxEnded as error:
            return Reply("", PolicyFault(str(error)))
        late = f"[stopped after {self.seconds:g} s]" if said.is_late else ""
        status = f"[status {said.status}]" if said.status and not late else ""
        told = said.output.encode()[:SHOWN].decode("utf-8", "ignore")
        return Reply(f"{told.rstrip()}{late}{status}\n")

    def reward(self) -> Outcome:
        """Returns the reward of the files as they are."""
        try:
            return Score(float(self.reward_of(self.item, self.shell.files())))
        except BoxEnded as error:
            return PolicyFault(str(error))

    def close(self) -> None:
        """Ends the box."""
        self.shell.close()


@dataclass(frozen=True)
class ShellSessions:
    """Opens a box for each rollout, with the files of its row."""

    rows: tuple[Item, ...] = field(repr=False)
    sandbox: str = "bubblewrap"
    seconds: float = 10.0
    reward: FilesReward = as_expected

    @property
    def introduction(self) -> str:
        """Returns the rules, for a pretrained model."""
        return f"You have a bash shell. Each of your messages is one command. Write {END} when you are done."

    @property
    def is_repeatable(self) -> bool:
        """A box has a clock: what a command writes may differ."""
        return False

    @property
    def is_open_between(self) -> bool:
        """A folder stays."""
        return True

    def item(self, ordinal: int, split: int) -> Item:
        """Returns row `ordinal` of the split, modulo the number of rows."""
        return row_of(self.rows, ordinal, split)

    def open(self, item: Item, seed: int) -> ShellSession:
        """Opens a box with the files of a row."""
        sandbox, files = sandbox_of(self.sandbox, AT_ONCE), item.facts.get("files", {})
        assert isinstance(sandbox, LocalSandbox), "in_sandbox refuses others"
        assert isinstance(files, dict)
        return ShellSession(item, Shell(sandbox, files), self.seconds, self.reward)


@runtime_checkable
class Boxed(Protocol):
    """A partner whose sessions execute code in a `sandbox`, each piece of it for at most `seconds`."""

    @property
    def is_open_between(self) -> bool:
        """Returns whether boxes stay open between utterances, which those of other machines do not."""


def in_sandbox(task: DialogueTask, name: str, seconds: float) -> DialogueTask:
    """Returns a task of shells in the sandbox of a name, with a limit for a command; AssayError for one elsewhere."""
    assert isinstance(task.partner, Boxed), "as the caller has seen"
    partner: Any = task.partner
    if partner.is_open_between and name.startswith(("http://", "https://")):
        raise AssayError(f"--sandbox {name}: a shell needs boxes of this machine. Use bubblewrap")
    return replace(task, partner=replace(partner, sandbox=name, seconds=seconds))


def shell_task(path: str, max_turns: int = 6, max_tokens: int = 128) -> DialogueTask:
    """Returns the task of a file of shell problems."""
    rows, _ = rows_of(path, read, ("prompt", "solution"))
    items = tuple(
        Item(f"{row.fields[0]}\n", "", f"{row.fields[1]}\n{END}", json.loads(row.fields[2]), row.where) for row in rows
    )
    longest = max(len(item.prompt.encode()) for item in items) + 1
    limits = (longest, max_turns, max_tokens, SHOWN + 64)
    return DialogueTask(name_of(Path(path)), ShellSessions(items), ByteTokenizer(), *limits)


def read(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Reads (prompt, solution, facts as JSON); AssayError names a field that does not fit."""
    files, commands = start_of(row, where)
    expected = files_of(row, "expected_files", where)
    if not expected:
        raise AssayError(f"{where}: 'expected_files' is missing. Give the files as they must be at the end")
    facts = {"files": files, "expected_files": expected}
    return field_of(row, "prompt", where), "\n".join(commands), json.dumps(facts)


def row_of(rows: tuple[Item, ...], ordinal: int, split: int) -> Item:
    """Returns row `ordinal` of a split, modulo their number; of all rows if the split has none."""
    check_split(split)
    own = [item for item in rows if is_held_out(item.prompt, HELD_OUT) == bool(split)] or list(rows)
    return own[ordinal % len(own)]
