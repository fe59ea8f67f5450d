"""Preference pairs made from any prompts with a verifier: the demonstration against a corrupted one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.core.errors import AssayError
from assay.core.record import InfraFault, Outcome
from assay.rollouts import text
from assay.tasks.language.items import Item, Items
from assay.tasks.language.preferences import PairsTask
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.sorting import sorting

ATTEMPTS = 100
OTHERS = 1000
"""Training items from which foreign characters are taken."""


@dataclass(frozen=True)
class Contrasted:
    """Items whose `rejected` is the demonstration after one to `most` random edits that the verifier rejects.

    An edit swaps two neighbours, drops a character, replaces it by or inserts a character of another item's
    demonstration, or takes the whole of that other demonstration. Item `ordinal` of a split is the same every time.
    """

    items: Items
    most: int = 3

    def item(self, ordinal: int, split: int) -> Item:
        """Returns the item with its corrupted completion."""
        item = self.items.item(ordinal, split)
        for attempt in range(ATTEMPTS):
            words = text.hashed_words(f"contrast {ordinal},{split},{attempt}", 2 + 3 * self.most)
            other = self.items.item(words[1] % OTHERS, 0).demonstration
            worse = item.demonstration
            for edit in range(1 + words[0] % self.most):
                worse = spoiled(worse, other, words[2 + 3 * edit : 5 + 3 * edit])
            outcome = self.items.verify(item, worse)
            if worse.strip() and not isinstance(outcome, InfraFault) and outcome.value < 1.0:
                return Item(item.prompt, item.answer, item.demonstration, {**item.facts, "rejected": worse})
        raise AssayError(
            f"'{text.escaped(item.demonstration, 60)}' cannot be corrupted: every edit verifies. Use another task"
        )

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns the verdict of the items' verifier."""
        return self.items.verify(item, completion)


def spoiled(written: str, other: str, words: Sequence[int]) -> str:
    """Applies one edit; the result is at most one character longer than the longer of the two."""
    kind, where = words[0] % 5, words[1] % max(len(written), 1)
    stranger = other[words[2] % len(other)] if other else ""
    before, here, after = written[:where], written[where : where + 1], written[where + 1 :]
    if kind == 0:
        return before + after[:1] + here + after[1:]
    if kind == 1:
        return before + after
    if kind == 2:
        return before + stranger + after
    return before + here + stranger + after if kind == 3 else other


def contrasted(task: PromptTask, most: int = 3) -> PairsTask:
    """Returns the task of its demonstrations against corrupted ones, in its own tokens, with room for longer ones."""
    name, room = f"{task.name}-pairs", task.max_tokens + 4 * most
    return PairsTask(PromptTask(name, Contrasted(task.items, most), task.tokenizer, task.max_prompt, room))


LEVELS: Mapping[str, Callable[[], PairsTask]] = {"sorting-5-pairs": lambda: contrasted(sorting(5))}
