"""A judge that is a policy: the reward of its scores, and the vote of several of its judgements. Axes: B sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.record import Draw, Experience, State
from assay.core.slots import Choice, Reward, Scene
from assay.ops import random
from assay.parts.rewards.function import on_last_decision
from assay.tasks.language.judging import scores_in
from assay.tasks.language.prompts import PromptTask

Scores = Sequence[int] | None
"""The scores of one judgement; None where it cannot be read."""


def is_right(scores: Scores, answer: int, num_responses: int) -> bool:
    """The training rule: the labelled best alone has the highest score; of a single response the score is the label.

    A tie, and a judgement that cannot be read, is wrong.
    """
    if scores is None or len(scores) != num_responses:
        return False
    if num_responses == 1:
        return scores[0] == answer
    return all(scores[answer - 1] > score for place, score in enumerate(scores) if place != answer - 1)


@dataclass(frozen=True)
class RightRanking(Reward):
    """reward = +1 if the scores after the last `mark` rank the labelled best response strictly first, else -1.

    The prompt's answer is the number of the best response, counted from 1, or the label of a single one; the fact
    `responses` holds the responses or says how many there are, else as many as were scored. arXiv:2504.02495, eq. 11.
    """

    mark: str = ":"
    stochastic: ClassVar[bool] = False
    writes: ClassVar[tuple[str, ...]] = ("score",)

    def init(self, scene: Scene) -> State:
        """Refuses a task whose answers are not numbers of responses."""
        task = scene.task
        if task is None:
            return {}
        if not isinstance(task, PromptTask) or not task.items.item(0, 0).answer.isdigit():
            raise AssayError(f"task '{task.name}': the answer of a prompt must be the number of its best response")
        return {}

    def apply(self, experience: Experience, scene: Scene, state: State) -> Experience:
        """Returns the experience with 1 or -1 on each last decision; logs how often it is right."""
        assert isinstance(scene.task, PromptTask), "init refuses other tasks"
        right = []
        for row in scene.task.texts(experience, scene.split):
            scores = scores_in(row["completion"], self.mark)
            right.append(is_right(scores, int(row["answer"]), number_of(row, scores)))
        scene.log("right_rankings", sum(right), len(right))
        signs = torch.tensor([1.0 if so else -1.0 for so in right], device=experience.mask.device)
        return on_last_decision(experience, signs)


def number_of(row: Mapping[str, Any], scores: Scores) -> int:
    """How many responses a prompt has."""
    given = row.get("responses")
    if isinstance(given, int):
        return given
    return len(given) if given is not None else max(2, len(scores or ()))


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
    is_shuffled: bool = True

    def total(self, judgements: Sequence[Scores], num_responses: int, meta: Sequence[float] = ()) -> list[int]:
        """The sum of scores of each response."""
        chosen = sorted(range(len(judgements)), key=lambda k: -meta[k])[: self.keep] if self.keep and meta else None
        kept = judgements if chosen is None else [judgements[k] for k in chosen]
        read = [some for some in kept if some is not None and len(some) == num_responses]
        return [sum(some[place] for some in read) for place in range(num_responses)]

    def orders(self, draw: Draw, start: int, num_responses: int) -> list[list[int]]:
        """For each sample the responses in the order in which they are shown."""
        if not self.is_shuffled:
            return [list(range(num_responses))] * self.samples
        number = random.uniform(draw, start, np.arange(self.samples)[:, None], np.arange(num_responses)[None])
        found: list[list[int]] = np.argsort(number, axis=1).tolist()
        return found

    def choices(self, task: PromptTask, write: Write, starts: Sequence[int], draw: Draw, split: int = 1) -> list[int]:
        """The number of the response, from 1, that the vote puts first; of equal ones the first of the first order."""
        items = task.items_of(np.asarray(starts), split)
        shown = [self.orders(draw, start, len(responses_of(one))) for start, one in zip(starts, items, strict=True)]
        prompts = [asked(task, one, order) for one, orders in zip(items, shown, strict=True) for order in orders]
        which = np.repeat(np.asarray(starts, dtype=np.int64), self.samples)
        said = write(prompts, which, np.tile(np.arange(self.samples, dtype=np.int64), len(starts)))
        found = []
        for place, orders in enumerate(shown):
            texts = said[place * self.samples : (place + 1) * self.samples]
            back = [mapped_back(scores_in(text), order) for text, order in zip(texts, orders, strict=True)]
            total = self.total(back, len(orders[0]))
            found.append(1 + max(orders[0], key=lambda response: total[response]))
        return found


def responses_of(item: Any) -> Sequence[str]:
    """The responses of a prompt, apart from each other; AssayError where the task does not say them."""
    given = item.facts.get("responses")
    if not isinstance(given, tuple | list):
        raise AssayError("a vote shows responses in several orders. Use a task whose fact `responses` lists them")
    return given


def asked(task: PromptTask, item: Any, order: Sequence[int]) -> str:
    """The prompt with its responses in another order."""
    given = responses_of(item)
    prompt: str = task.items.asked([given[place] for place in order])  # type: ignore[attr-defined]
    return prompt


def mapped_back(scores: Scores, order: Sequence[int]) -> Scores:
    """Scores by place as scores by response; None where they are not one for each."""
    if scores is None or len(scores) != len(order):
        return None
    return [scores[list(order).index(response)] for response in range(len(order))]
