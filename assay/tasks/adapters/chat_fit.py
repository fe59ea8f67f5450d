"""Conversations of a file in a model's template: what it rewrites, and rows that are longer than the model reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from assay.core.errors import AssayError, DataWarning, warn
from assay.models.pretrained.chat import Rewritten
from assay.models.pretrained.chat_texts import Framed
from assay.models.pretrained.transformers import PretrainedTokenizer
from assay.rollouts.text import Said
from assay.tasks.language.chat_rows import messages_of_item, with_messages, with_rows
from assay.tasks.language.items import Item
from assay.tasks.language.messages import LAST, with_trained
from assay.tasks.language.prompts import PromptTask
from assay.tasks.language.textfile import Files, TextFile, longest_of
from assay.tasks.language.turns import trains_turns

SLACK = 4096  # bytes that a template may write around the messages of a row that is not measured
AT_ONCE = 1024
REASONS = {
    "rewritten": "train their last reply alone, because the model's template rewrites earlier ones",
    "cut": "are cut at an earlier reply, because the model reads {most} tokens in all",
    "dropped": "are left out, because not even one reply fits the {most} tokens that the model reads",
}


@dataclass(frozen=True)
class Fitting:
    """Changes conversations so that a model can be trained on them, and counts what was changed."""

    tokenizer: PretrainedTokenizer
    system: str
    reply: int
    """Tokens of the longest reply, its end token included."""
    counts: Counter[str] = field(default_factory=Counter)

    def rendered(self, item: Item) -> Item:
        """Returns the row with its last reply in the words of the template; only that one is trained if the template
        rewrites earlier ones. Raises AssayError if the row marks one of those.
        """
        messages, tokenizer = messages_of_item(item), self.tokenizer
        if not messages or not any(tokenizer.frame):
            return item
        self.counts["rows"] += 1
        said, prompt = item.demonstration, Framed(item.prompt, self.system)
        assert isinstance(said, Said)
        try:
            if trains_turns(prompt, said):
                tokenizer.pieces(prompt, said)
        except Rewritten as error:
            if not said.message.trained:
                raise AssayError(f"{item.where}: {error}, and the row does not train its last reply") from None
            self.counts["rewritten"] += 1
            item = with_messages(item, with_trained(messages, LAST, item.where))
        except AssayError as error:
            raise AssayError(f"{item.where}: {error}") from None
        return self.worded(item)

    def worded(self, item: Item) -> Item:
        """Returns the row with calls and reasoning of its last reply as the template writes them."""
        said = item.demonstration
        if not isinstance(said, Said) or not said.message.more:
            return item
        try:
            return replace(item, demonstration=self.tokenizer.written(Framed(item.prompt, self.system), said))
        except AssayError as error:
            raise AssayError(f"{item.where}: {error}") from None

    def fits(self, item: Item) -> bool:
        """Returns whether a prompt leaves room for the longest reply, and the reply is not longer than that."""
        room = self.tokenizer.most_tokens - self.reply
        prompt, said = Framed(item.prompt, self.system), str(item.demonstration)
        if len(prompt.encode()) + SLACK <= room and len(said.encode()) < self.reply:
            return True
        lengths = self.tokenizer.lengths([prompt, said])
        return lengths[0] + 3 <= room and lengths[1] < self.reply

    def shortened(self, item: Item) -> Item | None:
        """Returns the row if it fits, else the row up to the last trained reply with which it does; None if none
        does.
        """
        messages = messages_of_item(item)
        if not messages or self.fits(item):
            return item
        for place in reversed(range(1, len(messages) - 1)):
            if messages[place].trained:
                shorter = self.worded(with_messages(item, messages[: place + 1]))
                if self.fits(shorter):
                    self.counts["cut"] += 1
                    return shorter
        self.counts["dropped"] += 1
        return None


def fitted(task: PromptTask, tokenizer: PretrainedTokenizer) -> PromptTask:
    """Returns the task with its conversations as the model can be trained on them; warns how many were changed, and
    raises AssayError if no row is left. Other rows stay as they are.
    """
    items = task.items
    if not isinstance(items, TextFile | Files) or not any(map(messages_of_item, items.rows)):
        return task
    fitting = Fitting(tokenizer, task.system, 0)
    items = with_rows(items, fitting.rendered)
    replies = [(str(row.demonstration), row.where) for row in items.rows if messages_of_item(row)]
    longest = longest_of(replies, tokenizer.lengths, 0, AT_ONCE)[0] + 1
    limit = task.max_tokens if task.is_limited else min(longest, tokenizer.most_tokens // 2)
    items = with_rows(items, replace(fitting, reply=limit).shortened)
    most, counts = f"{tokenizer.most_tokens:,}", fitting.counts
    if not items.rows:
        raise AssayError(f"{items.names}: every row is longer than the {most} tokens that '{tokenizer.path}' reads")
    if found := [f"{counts[name]:,} {why.format(most=most)}" for name, why in REASONS.items() if counts[name]]:
        total = len(replies)
        warn(f"{items.names}: of {total:,} conversations {'; '.join(found)}", DataWarning)
    return replace(task, items=items)
