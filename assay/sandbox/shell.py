"""A box that stays: commands of a shell one after the other, in a folder whose files are read at the end."""

from __future__ import annotations

import base64
import queue
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from assay.sandbox.pool import LocalSandbox
from assay.sandbox.values import Completed, Limits, ProgramFault, Result, SandboxFault

SESSION = Limits(seconds=86_400.0, cpu_seconds=60.0)
"""Limits of a box: it may wait for a slow policy; its commands have a limit of their own."""
START, FREE = 120.0, 600.0
"""Seconds of waiting: for an answer beyond a command's own limit, and for a free box."""
MAX_FILES = 1 << 20


class ShellFault(Exception):
    """The sandbox failed, not the command."""


class BoxEnded(Exception):
    """The box ended: its limits ran out, or a command ended its first process."""


@dataclass(frozen=True)
class Said:
    """What a command wrote, its exit status, and whether it was stopped at its deadline."""

    output: str
    status: int
    is_late: bool


class Shell:
    """One box with a shell. Every command has a bash of its own: the folder stays, variables do not.

    What comes back is data of the box: a command may forge it, and gains nothing that it could not write to a file.
    """

    def __init__(self, sandbox: LocalSandbox, files: Mapping[str, str] | None = None, limits: Limits = SESSION) -> None:
        self.sandbox, self.answers = sandbox, queue.Queue[Any]()
        plain = {"code": "", "kind": "shell", "inputs": {}, "limits": asdict(limits)}
        self.key, _ = sandbox.submit(plain, self.answers)
        self.is_open, self.has_begun = True, False
        for path, content in (files or {}).items():
            self.ask({"write": path, "content": base64.b64encode(content.encode()).decode()}, START)

    def ask(self, request: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
        """Returns the box's answer to a request; BoxEnded without one, ShellFault if no box was free or it failed."""
        if not self.is_open:
            raise BoxEnded("the box was closed")
        if not self.has_begun:
            self.begin()
        with self.sandbox.lock:
            self.sandbox.send({"id": self.key, "request": request})
        try:
            answer = self.answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise BoxEnded("the box does not answer") from None
        return self.told(answer)

    def begin(self) -> None:
        """Waits until the box has begun: until then nothing is the policy's fault."""
        try:
            first = self.answers.get(timeout=FREE)
        except queue.Empty:
            self.close()
            raise ShellFault(f"no box was free within {FREE:g} s") from None
        if isinstance(first, ProgramFault | Completed):
            self.is_open = False
            raise ShellFault("the box ended before it had begun")
        self.told(first)
        self.has_begun = True

    def told(self, answer: dict[str, Any] | Result) -> dict[str, Any]:
        """Returns an answer; BoxEnded or ShellFault if it is the end of the box."""
        if isinstance(answer, SandboxFault):
            self.is_open = False
            raise ShellFault(answer.kind)
        if isinstance(answer, Completed | ProgramFault) or not isinstance(answer, dict):
            self.is_open = False
            raise BoxEnded(answer.kind if isinstance(answer, ProgramFault) else "the box has ended")
        return answer

    def run(self, command: str, seconds: float = 10.0, most: int = 1 << 16) -> Said:
        """Runs a command for at most `seconds`; keeps the first `most` bytes of what it writes."""
        answer = self.ask({"command": command, "seconds": seconds, "bytes": most}, seconds + START)
        output, status = answer.get("output", answer.get("error", "")), answer.get("status", 1)
        return Said(str(output)[:most], status if isinstance(status, int) else 1, answer.get("late") is True)

    def files(self) -> dict[str, bytes]:
        """Returns the plain files of the folder by their paths, up to 1 MiB in all."""
        found = self.ask({"files": True, "bytes": MAX_FILES}, START).get("files", {})
        try:
            return {str(path): base64.b64decode(content) for path, content in found.items()}
        except (AttributeError, TypeError, ValueError):
            return {}

    def close(self) -> None:
        """Ends the box."""
        if self.is_open:
            self.is_open = False
            with self.sandbox.lock:
                self.sandbox.send({"id": self.key, "request": None})
