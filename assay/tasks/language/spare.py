"""A token of a task's vocabulary that no text has."""

from __future__ import annotations

import numpy as np

from assay.core.errors import AssayError
from assay.core.slots import Task
from assay.rollouts.text import NUM_SPECIALS, ByteTokenizer, CharacterTokenizer
from assay.tasks.language.prompts import PromptTask

NEVER_IN_UTF8 = range(NUM_SPECIALS + 0xF8, NUM_SPECIALS + 0x100)
"""Ids of the bytes that no text has."""
NUM_READ = 256
"""Prompts whose characters count as used."""


def spare_token(task: Task) -> int:
    """Returns the last id that no text and no prompt's template has: a padding row of the vocabulary
    or a special token; of a small alphabet, a character that the first prompts and answers lack.

    Raises AssayError if every id is text. Degenerate: -1 for a task without prompts.
    """
    if not isinstance(task, PromptTask):
        return -1
    tokenizer, begun = task.tokenizer, task.begin(np.arange(1), 0)
    vocabulary, told = tokenizer.vocabulary, begun.action[begun.context["valid"]].tolist()
    used = {vocabulary.pad, vocabulary.bos, vocabulary.eos, *told}
    free = set(NEVER_IN_UTF8) if isinstance(tokenizer, ByteTokenizer) else set(task.textless)
    if isinstance(tokenizer, CharacterTokenizer):
        items = task.items_of(np.arange(NUM_READ), 0)
        used |= {one for item in items for one in tokenizer.encode(item.prompt + item.demonstration)}
        free = set(range(vocabulary.size))
    if not free - used:
        raise AssayError(f"task '{task.name}': every token of the vocabulary is text. Use a model with an unused one")
    return max(free - used)
