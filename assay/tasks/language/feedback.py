"""What an environment says about an answer besides its score, as text."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from assay.core.record import Experience
from assay.core.slots import Task
from assay.tasks.language.items import Item, Items
from assay.tasks.language.prompts import PromptTask

FEEDBACK = "feedback"
"""The field of a file's row that holds what its environment says about answers that fail."""


@runtime_checkable
class ExplainedItems(Items, Protocol):
    """Prompts whose verifier also says what is wrong with a completion."""

    def explain(self, item: Item, completion: str) -> str:
        """Returns what is wrong with a completion; "" if nothing is, or nothing can be said."""


def gives_feedback(task: Task) -> bool:
    """Returns whether the task says anything about answers: by its verifier, or in a field of its rows."""
    if not isinstance(task, PromptTask):
        return False
    return isinstance(task.items, ExplainedItems) or bool(task.items.item(0, 0).facts.get(FEEDBACK))


def feedback_of(task: PromptTask, experience: Experience, split: int) -> list[str]:
    """Returns what the task says about the completion of each row: its verifier, else the field of the row."""
    items, said = task.items_of(experience.column("start"), split), task.completions(experience)
    if isinstance(task.items, ExplainedItems):
        return [task.items.explain(item, completion) for item, completion in zip(items, said, strict=True)]
    return [str(item.facts.get(FEEDBACK, "")) for item in items]
