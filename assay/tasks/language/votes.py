"""The vote of a judge that is a policy: several judgements of the same responses, each in an order of its own, summed.

assay evaluate RUN --votes 32
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.ops import random
from assay.rollouts.judgements import Scores, scores_in
from assay.rollouts.text import Conversation, Message, escaped
from assay.tasks.language.items import Item
from assay.tasks.language.prompts import PromptTask

Write = Callable[[Sequence[str], np.ndarray, np.ndarray], Sequence[str]]
"""Judgements of prompts, which belong to (start, sample)."""
AT_ONCE = 1024
"""Judgements that are sampled at once."""


@dataclass(frozen=True)
class Vote:
    """Sums the scores of `samples` judgements, each of the responses in an order of its own, mapped back
    (arXiv:2504.02495, eq. 14).

    Scores stand after the last `mark` of a judgement. With `keep`, only the judgements with the largest meta scores are
    summed. Degenerate: judgements that cannot be read count 0; one judgement is that judgement.
    """

    samples: int = 32
    keep: int = 0
    mark: str = ":"

    def total(self, judgements: Sequence[Scores], num_responses: int, meta: Sequence[float] = ()) -> list[int]:
        """Returns the sum of scores of each response."""
        chosen = sorted(range(len(judgements)), key=lambda k: -meta[k])[: self.keep] if self.keep and meta else None
        kept = judgements if chosen is None else [judgements[k] for k in chosen]
        read = [some for some in kept if some is not None and len(some) == num_responses]
        return [sum(some[place] for some in read) for place in range(num_responses)]

    def orders(self, draw: Draw, start: int, num_responses: int) -> list[list[int]]:
        """Returns for each sample the responses in the order in which they are shown."""
        number = random.uniform(draw, start, np.arange(self.samples)[:, None], np.arange(num_responses)[None])
        found: list[list[int]] = np.argsort(number, axis=1).tolist()
        return found

    def choices(self, task: PromptTask, write: Write, starts: Sequence[int], draw: Draw, split: int = 1) -> list[int]:
        """Returns the number of the response, from 1, that the vote puts first; of equal ones the first of the first
        order, which is random.

        AssayError where the fact `responses` of a prompt does not list what the prompt shows.
        """
        items = task.items_of(np.asarray(starts), split)
        shown = [self.orders(draw, start, len(listed(item))) for start, item in zip(starts, items, strict=True)]
        prompts = [reordered(item, order) for item, orders in zip(items, shown, strict=True) for order in orders]
        sample = np.tile(np.arange(self.samples, dtype=np.int64), len(starts))
        said, found = iter(write(prompts, np.repeat(np.asarray(starts, dtype=np.int64), self.samples), sample)), []
        for orders in shown:
            judged = [mapped_back(scores_in(next(said), self.mark), order) for order in orders]
            total = self.total(judged, len(orders[0]))
            found.append(1 + max(orders[0], key=total.__getitem__))
        return found

    def right(self, task: PromptTask, write: Write, starts: Sequence[int], draw: Draw, split: int = 1) -> np.ndarray:
        """Returns 1 for each start whose best response the vote puts first, else 0."""
        items = task.items_of(np.asarray(starts), split)
        found = self.choices(task, write, starts, draw, split)
        return np.array([float(str(one) == item.answer) for one, item in zip(found, items, strict=True)])


def sampled(task: PromptTask, policy: Any, draw: Draw, split: int = 1) -> Write:
    """Returns the judgements of a policy, sampled some at a time."""

    def write(prompts: Sequence[str], starts: np.ndarray, samples: np.ndarray) -> list[str]:
        said = list[str]()
        for begin in range(0, len(prompts), AT_ONCE):
            some = slice(begin, begin + AT_ONCE)
            played = task.play_prompts(policy, prompts[some], starts[some], samples[some], draw, split=split)
            said += task.completions(played)
        return said

    return write


def listed(item: Item) -> Sequence[str]:
    """Returns the responses that a prompt shows; AssayError if its facts do not list at least two."""
    found: Any = item.facts.get("responses")
    if not isinstance(found, tuple | list) or len(found) < 2 or not all(isinstance(one, str) for one in found):
        raise AssayError(
            "a vote shows responses in several orders. Use a task whose fact `responses` lists them, or a file with "
            'such a field: "responses": ["...", "..."], in the order and the words of the prompt'
        )
    return found


def reordered(item: Item, order: Sequence[int]) -> str:
    """Returns the prompt with its responses in another order; what stands around and between them stays, and messages
    stay messages.
    """
    responses, prompt = listed(item), item.prompt
    texts = [one.content for one in prompt.messages] if isinstance(prompt, Conversation) else [prompt]
    left, shown = [(one, responses[other]) for one, other in zip(responses, order, strict=True)], []
    for words in texts:
        said, begin = "", 0
        while left and (place := words.find(left[0][0], begin)) >= 0:
            one, other = left.pop(0)
            said, begin = said + words[begin:place] + other, place + len(one)
        shown.append(said + words[begin:])
    if left:
        missing = escaped(left[0][0], 60)
        raise AssayError(f"{item.where or 'a prompt'} does not show the response '{missing}' after those before it")
    if not isinstance(prompt, Conversation):
        return shown[0]
    messages = [Message(one.role, said) for one, said in zip(prompt.messages, shown, strict=True)]
    return Conversation(messages, prompt.tools)


def mapped_back(scores: Scores, order: Sequence[int]) -> Scores:
    """Returns scores by place as scores by response; those that are not one for each cannot be mapped."""
    if scores is None or len(scores) != len(order):
        return None
    return [scores[order.index(response)] for response in range(len(order))]
