"""The user's own rewards, tools, judge and reward model, by file or import path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from assay.core.errors import AssayError
from assay.runs.options.group import Group, option

if TYPE_CHECKING:
    from assay.core.slots import Task


@dataclass(frozen=True)
class OwnOptions(Group):
    """The user's own rewards, tools, judge and reward model, by file or import path."""

    title: ClassVar[str] = "your own code"
    reward: tuple[str, ...] = option(
        (),
        "reward function FILE.py:NAME or package.module:NAME, with =WEIGHT after it; 'verifier' is the task's own; "
        "repeatable",
        metavar="REWARD",
    )
    reward_timeout: float = option(
        60.0, "seconds that one call of a reward function may take (default: 60)", decisive=False
    )

    def check(self) -> None:
        """Refuses a time limit that is not positive."""
        if not self.reward_timeout > 0:
            raise AssayError(f"--reward-timeout is {self.reward_timeout:g}. Use a positive number of seconds.")

    def sources(self) -> Iterator[str]:
        """Yields the files and modules that the options name."""
        from assay.runs.own.rewards import parsed_rewards

        for one in parsed_rewards(self.reward):
            if one.address is not None:
                yield one.address.source

    def anchored(self) -> OwnOptions:
        """Returns the options with absolute paths, so that a run can be resumed from any folder."""
        from assay.runs.own.rewards import anchored_reward

        return replace(self, reward=tuple(map(anchored_reward, self.reward)))

    def task(self, task: Task) -> Task:
        """Returns the task with own rewards in place of its verifier."""
        from assay.runs.own.rewards import with_rewards

        return with_rewards(task, self.reward, self.reward_timeout) if self.reward else task
