"""Options of verifiers, and of the sandbox in which code that a model writes runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from assay.core.errors import AssayError
from assay.runs.options.group import Group, option

if TYPE_CHECKING:
    from assay.core.slots import Task

DEFAULT = "bubblewrap"


@dataclass(frozen=True)
class SandboxOptions(Group):
    """How the completions of a file are judged, and where their programs run."""

    title: ClassVar[str] = "verifiers and the sandbox"

    verifier: str | None = option(
        None, "judge a file's completions by python-tests (its field 'tests'; found by itself) or math-verify",
        metavar="NAME",
    )  # fmt: skip
    sandbox: str = option(
        DEFAULT, "where programs of the model run: bubblewrap (default), gvisor, http://HOST:PORT, or unsafe (no box)",
        metavar="NAME", decisive=False,
    )  # fmt: skip
    sandbox_seconds: float = option(10.0, "seconds that a program of the model may run (default: 10)")

    def check(self) -> None:
        """Refuses a time that is not positive, and an unknown sandbox."""
        if not 0 < self.sandbox_seconds <= 3600:
            raise AssayError(f"--sandbox-seconds is {self.sandbox_seconds:g}. Use a number from 0 to 3600.")
        if self.sandbox != DEFAULT:
            from assay.sandbox.choice import check_name

            check_name(self.sandbox)

    def task(self, task: Task) -> Task:
        """Returns a task of files with the verifier, whose programs run in the sandbox; a task of shells in it."""
        if self == SandboxOptions():
            return task
        from assay.tasks.language.dialogue import DialogueTask
        from assay.tasks.language.programs import runs_programs, with_grader
        from assay.tasks.language.shell import Boxed, in_sandbox

        if isinstance(task, DialogueTask) and isinstance(task.partner, Boxed) and self.verifier is None:
            return in_sandbox(task, self.sandbox, self.sandbox_seconds)
        changed: Task = with_grader(task, self.verifier, self.sandbox, self.sandbox_seconds)
        if self.sandbox != DEFAULT and not runs_programs(changed):
            raise AssayError(f"--sandbox {self.sandbox}: task '{task.name}' runs no programs of the model. Remove it.")
        return changed
