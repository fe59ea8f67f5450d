"""Language tasks whose right answers can be enumerated, so that a policy's quantities are exact. Axes: P prompts, B.

A prompt is one letter, an answer is digits: a policy has ten choices at every place. Training and evaluation use the
same prompts: these tasks are about optimisation, not about generalisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from assay.core.answers import AnswerFormat
from assay.core.errors import AssayError
from assay.core.record import Experience, Need, Outcome, Score
from assay.rollouts import text
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.prompts import PromptTask, prompt_ids
from assay.tasks.language.items import Item, Items, check_split

DIGITS, SIGNS = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEF"
CHOICES = len(DIGITS)
TOKENS = CharacterTokenizer(DIGITS + SIGNS)
DRAWS = (8, 64)
"""The k of pass@k and distinct@k."""


@runtime_checkable
class ExactItems(Items, Protocol):
    """Items of which quantities of a policy can be computed without sampling."""

    @property
    def prompts(self) -> int:
        """Number of prompts."""

    def exact(self, task: EnumerableTask, actor: Any) -> dict[str, float]:
        """Returns the exact quantities of a policy by name."""


@runtime_checkable
class WrittenItems(Items, Protocol):
    """Items whose answers stand for longer texts, which rewards read."""

    def written(self, item: Item, said: str) -> str:
        """Returns the text that an answer stands for."""


class Enumerable:
    """Items with a list of right answers for each prompt. Subclasses are frozen dataclasses.

    A completion scores 1 if it is one of them.
    """

    prompts: int
    step_end: ClassVar[str] = ""

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        """Returns the right answers of a prompt in classes of equivalent ones, the demonstrated answer first.

        Diversity is counted in classes: two answers of one class are not distinct.
        """
        raise NotImplementedError

    def bucket(self, prompt: int) -> str:
        """Returns the name of the prompt's level of difficulty; "" if there is one level only."""
        return ""

    def exact(self, task: EnumerableTask, actor: Any) -> dict[str, float]:
        """Returns pass rates, pass@k, distinct@k and the entropy over right answers; see `quantities`."""
        ways = [ways_of(self, prompt) for prompt in range(self.prompts)]
        found = probabilities(task, actor, [[answer for way in each for answer in way] for each in ways])
        sums = [
            torch.stack([part.sum() for part in of_answers.split([len(way) for way in each])])
            for of_answers, each in zip(found, ways, strict=True)
        ]
        labels = [self.bucket(prompt) for prompt in range(self.prompts)]
        return quantities(sums) | by_bucket([float(each.sum()) for each in sums], labels)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, in both splits."""
        check_split(split)
        prompt = ordinal % self.prompts
        answer = ways_of(self, prompt)[0][0]
        return Item(SIGNS[prompt], answer, answer, {"label": self.bucket(prompt)})

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for a right answer, 0 for all else."""
        return Score(float(completion in right_answers(self, SIGNS.index(item.prompt))))

    def first_error(self, item: Item, completion: str) -> int | None:
        """Returns the place of the first digit with which no right answer begins as the completion does."""
        right = right_answers(self, SIGNS.index(item.prompt[0]))
        places = range(len(completion))
        return next((k for k in places if not any(one.startswith(completion[: k + 1]) for one in right)), None)

    def finish(self, item: Item, begun: str) -> str | None:
        """Returns the rest of the first right answer that begins like this."""
        every = [answer for way in ways_of(self, SIGNS.index(item.prompt[0])) for answer in way]
        return next((one[len(begun) :] for one in every if one.startswith(begun)), None)


@lru_cache(maxsize=4096)
def ways_of(items: Enumerable, prompt: int) -> tuple[tuple[str, ...], ...]:
    """Returns `items.ways(prompt)`, computed once."""
    return items.ways(prompt)


@lru_cache(maxsize=4096)
def right_answers(items: Enumerable, prompt: int) -> frozenset[str]:
    """Returns all right answers of a prompt."""
    return frozenset(answer for way in ways_of(items, prompt) for answer in way)


@lru_cache(maxsize=4096)
def code_of(key: str, length: int) -> str:
    """Returns digits that belong to the key."""
    return "".join(DIGITS[word % CHOICES] for word in text.hashed_words(key, length))


def draw_keys(key: str, count: int, length: int) -> list[str]:
    """Returns `count` different answers of `length` digits that belong to the key, in random order."""
    every = ["".join(one) for one in product(DIGITS, repeat=length)]
    words = text.hashed_words(key, count)
    return [every.pop(word % len(every)) for word in words]


@dataclass(frozen=True)
class EnumerableTask(PromptTask):
    """Prompts with enumerable answers, and the preset of defaults that fits them."""

    preset: str = "places"

    def demonstrate(self, starts: np.ndarray, split: int) -> Experience:
        items = self.items_of(starts, split)
        prompts = [prompt_ids(self.tokenizer, item.prompt, self.max_prompt) for item in items]
        shown = [self.ended(item.demonstration) for item in items]
        start_B = torch.as_tensor(starts, dtype=torch.int64)
        record = text.written(prompts, shown, start_B, self.tokenizer.vocabulary.pad)
        outcomes = [self.items.verify(item, item.demonstration) for item in items]
        return text.with_outcomes(record, outcomes).add({"split": torch.full_like(start_B, split)})

    def texts(self, experience: Experience, split: int) -> list[dict[str, Any]]:
        rows, items = super().texts(experience, split), self.items
        if not isinstance(items, WrittenItems):
            return rows
        own = self.items_of(experience.column("start"), split)
        return [
            {**row, "completion": items.written(item, row["completion"])} for row, item in zip(rows, own, strict=True)
        ]

    def ended(self, answer: str) -> list[int]:
        """Returns the tokens of an answer, with eos if neither the limit nor a stop string ends it."""
        is_over = answer.endswith(self.stops) if self.stops else False
        ids = self.tokenizer.encode(answer)
        return (ids if is_over else [*ids, self.tokenizer.vocabulary.eos])[: self.max_tokens]

    def exact(self, actor: Any) -> dict[str, float]:
        """Returns the exact quantities of its items."""
        items = self.items
        assert isinstance(items, ExactItems)
        return items.exact(self, actor)


def enumerable_task(
    name: str, items: ExactItems, longest: int, preset: str = "places", answer_format: AnswerFormat = AnswerFormat()
) -> EnumerableTask:
    """Returns the task of these items, with answers of at most `longest` tokens."""
    if not 1 <= items.prompts <= len(SIGNS):
        raise AssayError(f"{items}: prompts must be 1 to {len(SIGNS)}")
    return EnumerableTask(name, items, TOKENS, 2, longest, answer_format=answer_format, preset=preset)


# ---------------------------------------------------------------------------------------------------- exact quantities
@torch.no_grad()
def probabilities(task: EnumerableTask, actor: Any, answers: Sequence[Sequence[str]]) -> list[Tensor]:
    """Returns pi(answer | prompt) of every listed answer of prompts 0, 1, ..., by one forward pass.

    An answer that neither the limit nor a stop string ends includes its end token.
    """
    starts = np.repeat(np.arange(len(answers)), [len(each) for each in answers])
    prompts = [prompt_ids(task.tokenizer, item.prompt, task.max_prompt) for item in task.items_of(starts, 1)]
    said = [task.ended(one) for each in answers for one in each]
    record = text.written(prompts, said, torch.from_numpy(starts), task.tokenizer.vocabulary.pad)
    record = record.to(next(actor.parameters()).device)
    logp = actor.score(record, frozenset({Need.LOGP})).logp.double().sum(1).cpu()
    return list(logp.exp().split([len(each) for each in answers]))


@torch.no_grad()
def digit_chances(task: EnumerableTask, actor: Any, answers: Sequence[str]) -> Tensor:
    """Returns pi(digit) at each place of an answer of prompts 0, 1, ..., given the digits before it: [P, L, 10].

    A policy whose digits do not depend on earlier ones has these probabilities in every answer.
    """
    prompts = [prompt_ids(task.tokenizer, SIGNS[prompt], task.max_prompt) for prompt in range(len(answers))]
    said = [task.tokenizer.encode(answer) for answer in answers]
    record = text.written(prompts, said, torch.arange(len(answers)), task.tokenizer.vocabulary.pad)
    record = record.to(next(actor.parameters()).device)
    logits: Tensor = actor.score(record, frozenset({Need.LOGITS})).logits[:, task.max_prompt :].double().cpu()
    first = task.tokenizer.encode(DIGITS[0])[0]
    return logits.softmax(-1)[..., first : first + CHOICES]


def quantities(found: Sequence[Tensor]) -> dict[str, float]:
    """Returns means over prompts, from the probabilities p_a of their classes of right answers:

    pass_rate      sum_a p_a
    pass@k         1 - (1 - sum_a p_a)^k
    distinct@k     sum_a 1 - (1 - p_a)^k: expected number of different right answers among k samples
    right_entropy  entropy of p_a / sum p_a in nats; 0 where there is one right answer, or where none has probability
    """
    rate = torch.stack([each.sum() for each in found]).clamp(max=1.0)
    result = {"pass_rate": float(rate.mean())}
    for k in DRAWS:
        result[f"pass@{k}"] = float((1.0 - (1.0 - rate) ** k).mean())
        result[f"distinct@{k}"] = float(sum((1.0 - (1.0 - each) ** k).sum() for each in found) / len(found))
    shares = [each / each.sum().clamp(min=1e-300) for each in found]
    result["right_entropy"] = float(-sum(torch.xlogy(each, each).sum() for each in shares) / len(found))
    return result


def by_bucket(values: Sequence[float], labels: Sequence[str]) -> dict[str, float]:
    """Returns `pass_rate/LABEL`, the mean over the prompts of each level; nothing if levels have no names."""
    names = sorted(set(labels) - {""})
    pairs = list(zip(values, labels, strict=True))
    return {f"pass_rate/{name}": float(np.mean([value for value, label in pairs if label == name])) for name in names}
