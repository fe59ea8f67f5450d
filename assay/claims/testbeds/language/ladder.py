"""Testbeds of pools of prompts and of lengths: dirty, some of whose prompts teach nothing or the wrong thing; ladder,
whose problems are asked with more or less of the answer given; and free, whose answers may be of any length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from assay.claims.testbeds.language.enumerable import (
    DIGITS,
    SIGNS,
    Enumerable,
    EnumerableTask,
    code_of,
    digit_chances,
    draw_keys,
    enumerable_task,
    right_answers,
)
from assay.core.errors import AssayError
from assay.core.record import Outcome, Score
from assay.rollouts import text
from assay.tasks.language.items import Item

LENGTH, TRIVIAL, STOP = 2, 94, DIGITS[0]
KINDS = ("0-trivial", "1-impossible", "2-mislabelled", "3-learnable")


@dataclass(frozen=True)
class Dirty(Enumerable):
    """Shares of the prompts are `trivial` (94 of 100 answers are right), `impossible` (no answer is verified as right)
    and `mislabelled` (one wrong answer is verified as right); of the others `solved` of 100 answers are right.

    Exact quantities count what is truly right: `solved` answers of the impossible and mislabelled ones too.
    """

    prompts: int = 32
    trivial: float = 0.25
    impossible: float = 0.125
    mislabelled: float = 0.125
    solved: int = 20

    def __post_init__(self) -> None:
        shares = (self.trivial, self.impossible, self.mislabelled)
        if min(shares) < 0.0 or sum(shares) > 1.0 or not 1 <= self.solved <= TRIVIAL:
            raise AssayError(f"{self}: shares must be 0 or more with a sum of 1 at most, and solved 1 to {TRIVIAL}")

    def bucket(self, prompt: int) -> str:
        """Returns the prompt's kind."""
        shares = (self.trivial, self.impossible, self.mislabelled)
        ends = [round(sum(shares[: place + 1]) * self.prompts) for place in range(3)]
        return KINDS[sum(prompt >= end for end in ends)]

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        right = TRIVIAL if self.bucket(prompt) == KINDS[0] else self.solved
        return tuple((answer,) for answer in draw_keys(f"dirty {prompt}", right, LENGTH))

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for what the prompt's label says is right, 0 for all else."""
        prompt = SIGNS.index(item.prompt)
        if self.bucket(prompt) == KINDS[1]:
            return Score(0.0)
        if self.bucket(prompt) == KINDS[2]:
            return Score(float(completion == draw_keys(f"dirty {prompt}", self.solved + 1, LENGTH)[-1]))
        return Score(float(completion in right_answers(self, prompt)))


def dirty(
    prompts: int = 32, trivial: float = 0.25, impossible: float = 0.125, mislabelled: float = 0.125, solved: int = 20
) -> EnumerableTask:
    """Returns the task; the dials are shares of prompts that teach nothing, or the wrong thing."""
    items = Dirty(prompts, trivial, impossible, mislabelled, solved)
    return enumerable_task(f"dirty-{trivial:g}-{impossible:g}-{mislabelled:g}", items, LENGTH, "bigrams")


@dataclass(frozen=True)
class Ladder(Enumerable):
    """Each problem has one right answer of `digits` digits, and a training prompt in each of `digits` formats: all
    but 1, 2, ... of them are given, and in the last format, `open`, none is. Evaluation asks the open format alone.

    Training start k is format k modulo `digits` of problem k / digits. Facts are `problem` and `format`. Digits after
    the ones that are asked for are ignored. Uniform start: success 10^-1 in the easiest format, 10^-digits in the open.
    """

    prompts: int = 4
    digits: int = 5

    def __post_init__(self) -> None:
        if not 2 <= self.digits <= 6:
            raise AssayError(f"{self}: digits must be 2 to 6")

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        return ((code_of(f"ladder {prompt}", self.digits),),)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns a format of a problem; held out, the open one of problem `ordinal` modulo their number."""
        found = super().item(ordinal if split else ordinal // self.digits, split)
        missing = self.digits if split else 1 + ordinal % self.digits
        given, asked = found.answer[: self.digits - missing], found.answer[self.digits - missing :]
        name = "open" if missing == self.digits else f"missing-{missing}"
        facts = {"problem": found.prompt, "format": name}
        return replace(found, prompt=found.prompt + given, answer=asked, demonstration=asked, facts=facts)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for a completion that begins with the digits that are asked for."""
        return Score(float(completion.startswith(item.answer)))


def ladder(prompts: int = 4, digits: int = 5) -> EnumerableTask:
    """Returns the task; `digits` is how many formats a problem has, and how rare success is in the last one."""
    task = enumerable_task(f"ladder-{prompts}x{digits}", Ladder(prompts, digits), digits, "places")
    return replace(task, max_prompt=digits + 1)


@dataclass(frozen=True)
class Free(Enumerable):
    """Each prompt has a digit of its own; right is any number of digits, then it, then the 0 that ends an answer.

    An answer of `most` tokens is cut, and right only if it ends so. Each length is as likely to be right.
    """

    prompts: int = 8
    most: int = 16

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        """Returns the shortest right answer."""
        return ((f"{1 + int(code_of(f'free {prompt}', 1)) % 9}{STOP}",),)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number; demonstrations have each length equally often."""
        found = super().item(ordinal, split)
        length, *words = text.hashed_words(f"free {ordinal}", self.most)
        filler = "".join(DIGITS[1 + word % 9] for word in words[: length % (self.most // 2)])
        return replace(found, demonstration=filler + found.answer)

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 for an answer that ends with the prompt's digit and 0."""
        return Score(float(completion.endswith(item.answer)))

    def exact(self, task: EnumerableTask, actor: Any) -> dict[str, float]:
        """Returns pass rate and mean length of a policy whose digits depend on the one before at most."""
        after = [digit_chances(task, actor, [digit * self.most] * self.prompts) for digit in DIGITS]
        own = torch.tensor([int(self.ways(prompt)[0][0][0]) for prompt in range(self.prompts)])
        rows, last = torch.arange(self.prompts), after[0][:, 0].clone()
        right, length = torch.zeros_like(last[:, 0]), torch.ones_like(last[:, 0])
        for place in range(1, self.most):
            last[:, 0] = 0.0
            length = length + last.sum(1)
            moves = torch.stack([one[:, place] for one in after], 1)
            right = right + last[rows, own] * moves[rows, own, 0]
            last = (last.unsqueeze(2) * moves).sum(1)
        return {"pass_rate": float(right.mean()), "mean_length": float(length.mean())}


def free(prompts: int = 8, most: int = 16) -> EnumerableTask:
    """Returns the task; answers have up to `most` tokens, of which the last two count."""
    return replace(enumerable_task(f"free-{prompts}x{most}", Free(prompts, most), most, "bigrams"), stops=(STOP,))
