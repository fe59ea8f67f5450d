"""Answers in steps: where the first wrong one begins, and how a right answer goes on. Axes: B rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from assay.core.record import Experience, Origin
from assay.rollouts import text
from assay.rollouts.text import Tokenizer


class Stepped(Protocol):
    """What steps are read from: a prompt's solution."""

    @property
    def demonstration(self) -> str:
        """A right answer."""


@runtime_checkable
class SteppedItems(Protocol):
    """Prompts whose answers can be checked step by step."""

    @property
    def step_end(self) -> str:
        """The text that ends a step; "" if every character is one."""

    def first_error(self, item: Stepped, completion: str) -> int | None:
        """Returns how many characters stand before the first wrong step; None if no step is wrong."""

    def finish(self, item: Stepped, begun: str) -> str | None:
        """Returns how an answer that begins like this goes on until it is right; None if it cannot."""


def first_other_line(solution: str, completion: str) -> int | None:
    """Returns where the first line begins that is not the solution's; None if all lines are."""
    ours, theirs = completion.splitlines(keepends=True), solution.splitlines()
    for number, line in enumerate(ours):
        if number >= len(theirs) or line.strip() != theirs[number].strip():
            return len("".join(ours[:number]))
    return None


def lines_after(solution: str, begun: str) -> str | None:
    """Returns the lines of a solution after those that an answer has; None if it has others, or part of one."""
    is_whole = not begun or begun.endswith("\n")
    if not is_whole or first_other_line(solution, begun) is not None:
        return None
    return "".join(solution.splitlines(keepends=True)[len(begun.splitlines()) :])


class Stepwise(Protocol):
    """A task of prompts as one whose answers are checked by steps: by its items, else by the lines of solutions."""

    tokenizer: Tokenizer
    max_tokens: int

    def steps_of(self, start: int, split: int) -> tuple[SteppedItems | None, Stepped]:
        """Returns what checks a start's steps, if that is no comparison with its solution, and its item."""
        items, item = self.items, self.items_of(np.array([start]), split)[0]  # type: ignore[attr-defined]
        return items if isinstance(items, SteppedItems) else None, item

    def first_error(self, start: int, completion: str, split: int) -> int | None:
        """Returns how many characters of a completion stand before its first wrong step; None if no step is wrong."""
        items, item = self.steps_of(start, split)
        return (
            first_other_line(item.demonstration, completion) if items is None else items.first_error(item, completion)
        )

    def finish(self, start: int, begun: str, split: int) -> str | None:
        """Returns what makes a completion of its right beginning; None if nothing does, or nothing is known."""
        items, item = self.steps_of(start, split)
        return lines_after(item.demonstration, begun) if items is None else items.finish(item, begun)

    def first_step(self, start: int, text: str, split: int) -> str:
        """Returns the first step of a text, with what ends it."""
        items, _ = self.steps_of(start, split)
        end = "\n" if items is None else items.step_end
        return text[: text.find(end) + len(end) if end in text else len(text)] if end else text[:1]

    def followed(self, begun: Experience, more: Sequence[str], is_over: bool) -> Experience:
        """Returns rows in which a text of another follows the decisions of `begun` (its mask), at most to the limit.

        With `is_over` an end token follows where there is room, and the episode ends. The column `foreign` [B, T] is
        true on what follows.
        The decisions of `begun` keep their log-probabilities, others have 0.
        """
        special, encode = self.tokenizer.vocabulary, self.tokenizer.encode
        told = [row[~own & there].tolist() for row, own, there in rows_of(begun)]
        said = [row[own].tolist() for row, own, _ in rows_of(begun)]
        ends = [special.eos] if is_over else []
        whole = [[*mine, *encode(one), *ends][: self.max_tokens] for mine, one in zip(said, more, strict=True)]
        start_B = begun.column("start")
        record = text.written(told, whole, start_B, special.pad)
        place = record.mask.long().cumsum(1)
        is_own = record.mask & (place <= begun.mask.sum(1, keepdim=True))
        logp = torch.zeros_like(record.logp)
        logp[is_own] = begun.logp[begun.mask]
        record = record if is_over else replace(record, terminal=torch.zeros_like(record.terminal))
        record = replace(record, logp=logp, source=torch.full_like(start_B, int(Origin.TEACHER)), group=begun.group)
        shared = {name: begun.column(name) for name in ("start", "sample", "split") if name in begun.extra}
        return record.add({**shared, "foreign": record.mask & ~is_own})


def rows_of(begun: Experience) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Returns tokens, decisions and validity of each row."""
    return list(zip(begun.context["tokens"], begun.mask, begun.context["valid"], strict=True))
