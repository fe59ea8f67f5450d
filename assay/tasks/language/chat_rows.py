"""Conversations of a file: which of their replies are trained, and rows that are changed one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from assay.core.errors import AssayError
from assay.rollouts.text import Conversation, Message, Said
from assay.tasks.language.arithmetic import final_answer
from assay.tasks.language.items import Item
from assay.tasks.language.messages import with_trained
from assay.tasks.language.textfile import Files, TextFile


def with_rows(items: TextFile | Files, change: Callable[[Item], Item | None]) -> TextFile | Files:
    """Returns the rows of files, each as `change` returns it; those for which it returns None are left out."""
    if isinstance(items, TextFile):
        changed = [found for row in items.rows if (found := change(row)) is not None]
        return replace(items, rows=tuple(changed))
    train = [with_rows(file, change) for file in items.train]
    test = None if items.test is None else with_rows(items.test, change)
    assert test is None or isinstance(test, TextFile)
    return replace(items, train=tuple(file for file in train if isinstance(file, TextFile)), test=test)


def messages_of_item(item: Item) -> tuple[Message, ...]:
    """Returns the messages of a demonstrated conversation, its last reply included; none of another row."""
    if not isinstance(item.prompt, Conversation) or not isinstance(item.demonstration, Said):
        return ()
    return (*item.prompt.messages, item.demonstration.message)


def with_messages(item: Item, messages: tuple[Message, ...]) -> Item:
    """Returns the row with other messages, of which the last one is the demonstration; the answer stays if it was
    not that of the last reply.
    """
    assert isinstance(item.prompt, Conversation)
    said = Said(messages[-1])
    was_said = item.answer in (str(item.demonstration), final_answer(item.demonstration))
    answer = (final_answer(said) or str(said)) if was_said else item.answer
    return replace(item, prompt=Conversation(messages[:-1], item.prompt.tools), answer=answer, demonstration=said)


def with_train_on(items: TextFile | Files, train_on: str) -> TextFile | Files:
    """Returns the rows with these replies trained: `all`, `last` or `marked`. Raises AssayError if no row is a
    conversation.
    """
    if not any(messages_of_item(row) for row in items.rows):
        raise AssayError(f"--train-on is for rows with 'messages', and {items.names} has none. Remove it.")

    def change(item: Item) -> Item:
        messages = messages_of_item(item)
        if not messages:
            return item
        marked = with_trained(messages, train_on, item.where)
        assert isinstance(item.prompt, Conversation)
        return replace(
            item,
            prompt=Conversation(marked[:-1], item.prompt.tools),
            demonstration=Said(marked[-1], item.demonstration),
        )

    return with_rows(items, change)
