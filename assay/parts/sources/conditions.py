"""Conditions on offline data, and which of its decisions are successes. Axes: N rows of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from assay.core.errors import AssayError
from assay.core.slots import Choice, RewardedSuccessTask, Task


class Condition(Choice, Protocol):
    """What a method needs of its data. It is checked when the data are read, before the first update.

    Source: by definition. Assumes columns by name. Degenerate: no dataset breaks no condition.
    """

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        """Raises AssayError if the method cannot learn from these transitions of the task."""


@dataclass(frozen=True)
class Successes(Condition):
    """Data in which some decision is marked as a success: by a column of the file, or by the reward of a task that says
    so. A terminal decision alone does not count, since a fall ends an episode too.

    Source: arXiv:2401.16013. Assumes tasks that say what success is. Degenerate: data without rows are refused.
    """

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        marked = [columns["success"] for columns in datasets if "success" in columns]
        if any(bool(flags.any()) for flags in marked):
            return
        ends = sum(int(columns["terminal"][:, 0].sum()) for columns in datasets)
        what = "have no successes in their column 'success'" if marked else "have no column 'success'"
        raise AssayError(
            f"the data of task '{task.name}' {what} ({ends} decisions are terminal, which may be falls), and a "
            "classifier of success needs examples: add to the file a column 'success' with 1 where a decision solved "
            'the task, else 0 (infos/success in HDF5 and Minari, as of info["success"])'
        )


@dataclass(frozen=True)
class WithCosts(Condition):
    """Data with a column of costs: without it every state would count as safe.

    Source: arXiv:2401.10700. Assumes costs of at least 0. Degenerate: no dataset lacks none.
    """

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        if any("cost" not in columns for columns in datasets):
            raise AssayError(
                f"this method learns from costs, and the data of task '{task.name}' have no column 'cost'. Use a task "
                "with costs such as steered-hazards, a file with costs, or iql"
            )


@dataclass(frozen=True)
class Ends(Condition):
    """Data in which some decision is terminal, or none is; the reason tells users why, and what to use instead.

    Degenerate: data without rows have no terminal decision, so they are refused if `some` is true. Source: by
    definition. Assumes that terminal and truncated are told apart.
    """

    some: bool
    reason: str
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"some": True, "reason": "successes are needed. Use peg"},)

    def __call__(self, task: Task, datasets: Sequence[dict[str, Tensor]]) -> None:
        num = sum(int(columns["terminal"].any(1).sum()) for columns in datasets)
        if (num > 0) != self.some:
            raise AssayError(f"{num} decisions in the data of task '{task.name}' are terminal: {self.reason}")


def with_success(columns: dict[str, Tensor], task: Task) -> dict[str, Tensor]:
    """Returns transitions with the column `success`: as it is in the data, else where the reward is positive if the
    task says that this is success; without it where nothing tells.
    """
    told = isinstance(task, RewardedSuccessTask) and task.rewards_success
    if "success" in columns or not told or "reward" not in columns:
        return columns
    return {**columns, "success": (columns["reward"] > 0) & columns["mask"]}
