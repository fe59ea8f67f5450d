"""Verifiers that judge many completions at once, in place of a file's comparison with its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from assay.core.record import Outcome
from assay.tasks.language.scoring import checked_outcome


class Grader(Protocol):
    """Judges completions, all at once. Laws: a row's outcome does not depend on the other rows; no completion makes it
    raise; a fault of the infrastructure is an InfraFault.
    """

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """Returns an outcome for each row (`prompt`, `completion`, `answer`, and the other fields of the file)."""


@runtime_checkable
class GradedItems(Protocol):
    """Items that may have a grader."""

    @property
    def grader(self) -> Grader | None:
        """Returns the grader; None if completions are compared with answers."""


def outcomes_of(task: Any, items: Sequence[Any], completions: Sequence[str]) -> list[Outcome]:
    """Returns one outcome for each completion, by the grader of the task's items if they have one."""
    grader = task.items.grader if isinstance(task.items, GradedItems) else None
    if grader is None:
        pairs = zip(items, completions, strict=True)
        return [checked_outcome(task, item, completion, row) for row, (item, completion) in enumerate(pairs)]
    return grader([row_of(item, completion) for item, completion in zip(items, completions, strict=True)])


def row_of(item: Any, completion: str) -> dict[str, Any]:
    """Returns what a grader sees of a completion."""
    return {**item.facts, "prompt": item.prompt, "completion": completion, "answer": item.answer}
