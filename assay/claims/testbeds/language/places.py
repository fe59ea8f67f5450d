"""Testbeds of independent places: lock (one code; calls explains errors), key-decisions (few of many places decide).

Axes: B sequences, T decisions, P prompts, L places, 10 digits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from assay.claims.testbeds.language.enumerable import (
    CHOICES,
    DIGITS,
    SIGNS,
    TOKENS,
    Enumerable,
    EnumerableTask,
    code_of,
    digit_chances,
    enumerable_task,
    quantities,
)
from assay.core.errors import AssayError
from assay.core.record import Experience, Outcome, Score
from assay.rollouts import text
from assay.rollouts.text import CharacterTokenizer
from assay.tasks.language.items import Item, check_split


@dataclass(frozen=True)
class Lock(Enumerable):
    """One code of `digits` digits for each prompt: the uniform start opens it with probability 10^-digits."""

    digits: int = 2
    prompts: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.digits <= 12:
            raise AssayError(f"{self}: digits must be 1 to 12")

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        return ((code_of(f"lock {prompt}", self.digits),),)

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number; its fact `rubric` has an item for each digit of the code."""
        found = super().item(ordinal, split)
        rubric = [
            {"item": f"begins with {found.answer[: place + 1]}", "pattern": f"^.{{{place}}}{digit}"}
            for place, digit in enumerate(found.answer)
        ]
        return replace(found, facts={**found.facts, "rubric": rubric})


def lock(digits: int = 2, prompts: int = 4) -> EnumerableTask:
    """Returns the task; the start's success is 10^-digits."""
    return enumerable_task(f"lock-{digits}", Lock(digits, prompts), digits)


READABLE = CharacterTokenizer(DIGITS + SIGNS + "\n :")
"""The tokens of the testbeds, and what hints are written with."""


def reading(digits: int = 4, prompts: int = 4) -> EnumerableTask:
    """Returns `lock` for a policy that copies what its prompt shows (`actor.copy`); its solutions are the codes."""
    task = enumerable_task(f"reading-{digits}", Lock(digits, prompts), digits, preset="reading")
    return replace(task, tokenizer=READABLE)


@dataclass(frozen=True)
class Calls(Enumerable):
    """The codes of a `lock` of `fields` digits. Of a wrong one its verifier shows the digits that are right so far, and
    the next `shown` as they must be.
    """

    fields: int = 3
    shown: int = 2
    prompts: int = 4

    def ways(self, prompt: int) -> tuple[tuple[str, ...], ...]:
        return Lock(self.fields, self.prompts).ways(prompt)

    def explain(self, item: Item, completion: str) -> str:
        """Returns the beginning of the code up to there; nothing of a right one."""
        right = next((place for place, one in enumerate(item.answer) if completion[place : place + 1] != one), None)
        return "" if right is None else item.answer[: right + self.shown]


def calls(fields: int = 3, shown: int = 2, prompts: int = 4) -> EnumerableTask:
    """Returns `reading` whose verifier is a program with error messages; `shown` is how much they reveal."""
    task = enumerable_task(f"calls-{fields}-{shown}", Calls(fields, shown, prompts), fields, preset="reading")
    return replace(task, tokenizer=READABLE)


@dataclass(frozen=True)
class Keys:
    """Answers of `length` digits, of which `keys` places decide, others for every prompt: each accepts `accepted` of
    the ten digits, all else is filler. The uniform start succeeds with probability (accepted / 10)^keys.
    """

    length: int = 16
    keys: int = 2
    accepted: int = 2
    prompts: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.keys <= self.length <= 128 or not 1 <= self.accepted <= CHOICES:
            raise AssayError(f"{self}: keys must be 1 to length, length at most 128 and accepted 1 to {CHOICES}")

    def accepts(self, prompt: int) -> dict[int, str]:
        """Returns the accepted digits of each place that decides."""
        free, words = list(range(self.length)), text.hashed_words(f"keys {prompt}", 2 * self.keys)
        places = sorted(free.pop(word % len(free)) for word in words[: self.keys])
        first = [word % CHOICES for word in words[self.keys :]]
        digits = DIGITS * 2
        return {place: digits[one : one + self.accepted] for place, one in zip(places, first, strict=True)}

    def item(self, ordinal: int, split: int) -> Item:
        """Returns prompt `ordinal` modulo their number, in both splits; the fact `steps` is what each place accepts."""
        check_split(split)
        prompt = ordinal % self.prompts
        keys, filler = accepts_of(self, prompt), code_of(f"filler {prompt}", self.length)
        shown = "".join(keys[place][0] if place in keys else filler[place] for place in range(self.length))
        steps = [list(keys.get(place, DIGITS)) for place in range(self.length)]
        return Item(SIGNS[prompt], "".join(accepted[0] for accepted in keys.values()), shown, {"steps": steps})

    def accepted_digits(self) -> Tensor:
        """Returns whether a digit is accepted at a place of a prompt: bool [P, L, 10], all true for filler."""
        result = torch.ones(self.prompts, self.length, CHOICES, dtype=torch.bool)
        for prompt in range(self.prompts):
            for place, digits in accepts_of(self, prompt).items():
                result[prompt, place] = torch.tensor([digit in digits for digit in DIGITS])
        return result

    def exact(self, task: EnumerableTask, actor: Any) -> dict[str, float]:
        """Returns the pass rate, the product over the places that decide, and what follows from it."""
        return quantities(list(chances(self, task, actor).prod(1).unsqueeze(1)))

    def verify(self, item: Item, completion: str) -> Outcome:
        """Returns 1 if every place that decides has an accepted digit, else 0."""
        keys = accepts_of(self, SIGNS.index(item.prompt))
        opens = all(place < len(completion) and completion[place] in accepted for place, accepted in keys.items())
        return Score(float(opens))


@lru_cache(maxsize=1024)
def accepts_of(items: Keys, prompt: int) -> dict[int, str]:
    """Returns `items.accepts(prompt)`, computed once."""
    return items.accepts(prompt)


def chances(items: Keys, task: EnumerableTask, actor: Any) -> Tensor:
    """Returns the probability of an accepted digit at each place of each prompt, [P, L]; 1 on filler."""
    shown = [items.item(prompt, 0).demonstration for prompt in range(items.prompts)]
    accepted = items.accepted_digits()
    found = (digit_chances(task, actor, shown) * accepted).sum(-1)
    return found.masked_fill(accepted.all(-1), 1.0)


def true_advantage(task: EnumerableTask, experience: Experience, actor: Any) -> Tensor:
    """Returns Q - V of every decision of key decisions under the policy, [B, T]:

        [all earlier keys right] * product of later keys' chances * ([this one is right] - its chance)

    0 on filler. Exact for a policy whose digits do not depend on earlier ones.
    """
    items = task.items
    assert isinstance(items, Keys)
    accepted, prompt = items.accepted_digits(), experience.column("start") % items.prompts
    own = slice(task.max_prompt, task.max_prompt + items.length)
    digit = experience.action[:, own] - TOKENS.ids[DIGITS[0]]
    right = accepted[prompt].gather(2, digit.unsqueeze(2)).squeeze(2).double()
    chance = chances(items, task, actor)[prompt]
    before = torch.cat([torch.ones_like(right[:, :1]), right.cumprod(1)[:, :-1]], 1)
    after = torch.cat([chance.flip(1).cumprod(1).flip(1)[:, 1:], torch.ones_like(chance[:, :1])], 1)
    result = torch.zeros(experience.mask.shape, dtype=torch.float64)
    result[:, own] = before * (right - chance) * after
    return result


def key_decisions(length: int = 16, keys: int = 2, accepted: int = 2, prompts: int = 4) -> EnumerableTask:
    """Returns the task; length / keys is the difficulty of credit assignment."""
    return enumerable_task(f"key-decisions-{length}x{keys}", Keys(length, keys, accepted, prompts), length)
