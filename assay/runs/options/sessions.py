"""How long the replies of sessions may take, and how many are asked for at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from assay.core.errors import AssayError
from assay.runs.options.group import Group, changed, flag, option

if TYPE_CHECKING:
    from assay.core.slots import Task


@dataclass(frozen=True)
class SessionOptions(Group):
    """How long the replies of sessions may take, and how many are asked for at once."""

    title: ClassVar[str] = "conversations with sessions"
    reply_timeout: float = option(60.0, "seconds that one reply of a session may take (default: 60)", decisive=False)
    episode_timeout: float = option(
        600.0, "seconds that all replies of an episode may take together (default: 600)", decisive=False
    )
    concurrency: int = option(256, "sessions that are asked at once (default: 256)", decisive=False)
    patience: float | None = option(
        None, "seconds after which rows go on without those that wait for a reply (default: never if sessions can be "
        "repeated, else 1)",
    )  # fmt: skip

    def check(self) -> None:
        """Refuses limits that are not positive."""
        times = {"reply_timeout": self.reply_timeout, "episode_timeout": self.episode_timeout}
        times |= {} if self.patience is None else {"patience": self.patience}
        for name, seconds in times.items():
            if not seconds > 0:
                raise AssayError(f"{flag(name)} is {seconds:g}. Use a positive number of seconds.")
        if self.concurrency < 1:
            raise AssayError(f"--concurrency is {self.concurrency}. Use at least 1.")
        if self.patience is not None and not math.isfinite(self.patience):
            raise AssayError(f"--patience is {self.patience:g}. Use a number of seconds, such as 1.")

    def task(self, task: Task) -> Task:
        """Returns a task of sessions with these limits; AssayError for limits of a task that has none."""
        from assay.tasks.language.dialogue import DialogueTask
        from assay.tasks.language.sessions import Sessions, Waiting

        given = changed(self)
        if not given:
            return task
        if not isinstance(task, DialogueTask) or not isinstance(task.partner, Sessions):
            name = flag(next(iter(given)))
            raise AssayError(f"{name} is for conversations with sessions; task '{task.name}' has none. Remove it.")
        return replace(task, waiting=Waiting(self.reply_timeout, self.episode_timeout, self.concurrency, self.patience))
