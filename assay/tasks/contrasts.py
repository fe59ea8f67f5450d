"""Preference pairs made of any prompts with a verifier: the demonstration against a spoiled one."""

from __future__ import annotations

from dataclasses import dataclass

from assay.ops import text
from assay.tasks.preferences import PairsTask
from assay.tasks.prompts import Item, Items, PromptTask
from assay.types import AssayError, Outcome, Score

ATTEMPTS = 100


@dataclass(frozen=True)
class Contrasted:
    """Items whose `rejected` is the demonstration after one to `most` random edits that the verifier refuses.

    An edit swaps two neighbours, drops a character, or puts another of the demonstration's in its place. Item `ordinal`
    of a split is the same every time.
    """

    items: Items
    most: int = 3

    def item(self, ordinal: int, split: int) -> Item:
        """The item with its spoiled completion."""
        item = self.items.item(ordinal, split)
        for attempt in range(ATTEMPTS):
            words = text.hashed_words(f"contrast {ordinal},{split},{attempt}", 1 + 3 * self.most)
            spoiled = list(item.demonstration)
            for edit in range(1 + words[0] % self.most):
                spoil(spoiled, words[1 + 3 * edit : 4 + 3 * edit])
            worse = "".join(spoiled)
            outcome = self.items.verify(item, worse)
            if worse and worse != item.demonstration and isinstance(outcome, Score) and outcome.value < 1.0:
                return Item(item.prompt, item.answer, item.demonstration, {**item.facts, "rejected": worse})
        raise AssayError(f"'{text.escaped(item.demonstration, 60)}' cannot be spoiled: every edit still verifies")

    def verify(self, item: Item, completion: str) -> Outcome:
        """As the items say."""
        return self.items.verify(item, completion)


def spoil(letters: list[str], words: tuple[int, ...]) -> None:
    """One edit, in place."""
    kind, where, other = words[0] % 3, words[1] % max(len(letters), 1), words[2] % max(len(letters), 1)
    if kind == 0 and len(letters) > 1:
        second = (where + 1) % len(letters)
        letters[where], letters[second] = letters[second], letters[where]
    elif kind == 1 and len(letters) > 1:
        del letters[where]
    elif letters:
        letters[where] = letters[other]


def contrasted(task: PromptTask, most: int = 3) -> PairsTask:
    """The task's demonstrations against spoiled ones, in the task's own tokens."""
    name = f"{task.name}-pairs"
    return PairsTask(PromptTask(name, Contrasted(task.items, most), task.tokenizer, task.max_prompt, task.max_tokens))
