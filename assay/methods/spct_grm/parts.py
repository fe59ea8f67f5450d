"""A judge that is a policy: what its scores earn, and the vote of several of its judgements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.core.errors import AssayError
from assay.core.record import Draw
from assay.core.slots import Choice
from assay.ops import random
from assay.tasks.language.judging import scores_in
from assay.tasks.language.prompts import PromptTask

Scores = Sequence[int] | None
"""The scores of one judgement; None where it cannot be read."""


@dataclass(frozen=True)
class RightRanking(Choice):
    """+1 if the scores after the last `mark` rank the labelled best response strictly first, else -1, for each row.

    The prompt's answer is the number of the best response, counted from 1, or the label of a single one; the fact
    `responses` holds the responses or says how many there are, else as many as were scored, at least two.
    arXiv:2504.02495, eq. 11.
    """

    mark: str = ":"

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> list[float]:
        """Returns the numbers; AssayError for an answer that is no number."""
        wrong = next((row for row in rows if not row["answer"].isdigit()), None)
        if wrong is not None:
            raise AssayError(f"the answer '{wrong['answer']}' of a prompt must be the number of its best response")
        return [1.0 if is_right(scores_in(row["completion"], self.mark), row) else -1.0 for row in rows]


def is_right(scores: Scores, row: Mapping[str, Any]) -> bool:
    """Whether the best response alone has the highest score; of a single response the score must be the label.

    A tie, and a judgement that cannot be read, is wrong.
    """
    responses, answer = row.get("responses", max(2, len(scores or ()))), int(row["answer"])
    num_responses = responses if isinstance(responses, int) else len(responses)
    if scores is None or len(scores) != num_responses:
        return False
    if num_responses == 1:
        return scores[0] == answer
    return all(scores[answer - 1] > score for place, score in enumerate(scores) if place != answer - 1)


# ---------------------------------------------------------------------------------------------------- voting
Write = Callable[[Sequence[str], np.ndarray, np.ndarray], Sequence[str]]
"""Judgements of prompts, which belong to (start, sample)."""


@dataclass(frozen=True)
class Vote(Choice):
    """Sums the scores of `samples` judgements, each of the responses in an order of its own, mapped back (eq. 14).

    With `keep`, only the judgements with the largest meta scores are summed. Judgements that cannot be read count 0.
    """

    samples: int = 32
    keep: int = 0

    def total(self, judgements: Sequence[Scores], num_responses: int, meta: Sequence[float] = ()) -> list[int]:
        """The sum of scores of each response."""
        chosen = sorted(range(len(judgements)), key=lambda k: -meta[k])[: self.keep] if self.keep and meta else None
        kept = judgements if chosen is None else [judgements[k] for k in chosen]
        read = [some for some in kept if some is not None and len(some) == num_responses]
        return [sum(some[place] for some in read) for place in range(num_responses)]

    def orders(self, draw: Draw, start: int, num_responses: int) -> list[list[int]]:
        """For each sample the responses in the order in which they are shown."""
        number = random.uniform(draw, start, np.arange(self.samples)[:, None], np.arange(num_responses)[None])
        found: list[list[int]] = np.argsort(number, axis=1).tolist()
        return found

    def choices(self, task: PromptTask, write: Write, starts: Sequence[int], draw: Draw, split: int = 1) -> list[int]:
        """The number of the response, from 1, that the vote puts first; of equal ones the first of the first order.

        AssayError where the fact `responses` of a prompt does not list them.
        """
        given: list[Any] = [item.facts.get("responses") for item in task.items_of(np.asarray(starts), split)]
        if not all(isinstance(one, tuple | list) for one in given):
            raise AssayError("a vote shows responses in several orders. Use a task whose fact `responses` lists them")
        shown = [self.orders(draw, start, len(one)) for start, one in zip(starts, given, strict=True)]
        prompts = [
            task.items.asked([one[place] for place in order])  # type: ignore[attr-defined]
            for one, orders in zip(given, shown, strict=True)
            for order in orders
        ]
        sample = np.tile(np.arange(self.samples, dtype=np.int64), len(starts))
        said, found = iter(write(prompts, np.repeat(np.asarray(starts, dtype=np.int64), self.samples), sample)), []
        for orders in shown:
            total = self.total([mapped_back(scores_in(next(said)), order) for order in orders], len(orders[0]))
            found.append(1 + max(orders[0], key=total.__getitem__))
        return found


def mapped_back(scores: Scores, order: Sequence[int]) -> Scores:
    """Scores by place as scores by response; those that are not one for each cannot be mapped."""
    if scores is None or len(scores) != len(order):
        return None
    return [scores[order.index(response)] for response in range(len(order))]
