"""Judges of rubrics: lists of items, in the field `rubric` of a prompt's row, that answers meet or miss."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from assay.core.slots import Chat, Choice
from assay.rollouts.judgements import filled, numbered, numbers_after

Row = Mapping[str, Any]


class RubricJudge(Choice, Protocol):
    """Says which items of its prompt's rubric each answer meets.

    Source: by definition. Assumes the field `rubric`. Degenerate: an empty rubric has no truth values.
    """

    def __call__(self, rows: Sequence[Row]) -> list[list[bool] | None]:
        """Returns a truth value for each item of each row; None for a row of which nothing is known."""


@dataclass(frozen=True)
class ByPattern(RubricJudge):
    """A program: an item is met if its `pattern`, a regular expression, or without one its text, is in the answer.

    Source: by definition. Assumes items that text shows. Degenerate: an empty pattern is always met.
    """

    def with_judge(self, ask: Chat) -> RubricJudge:
        """Returns a chat model as the judge."""
        return ByChat(ask)

    def __call__(self, rows: Sequence[Row]) -> list[list[bool] | None]:
        return [[re.search(pattern_of(one), row["completion"]) is not None for one in row["rubric"]] for row in rows]


def pattern_of(item: Row) -> str:
    """Returns the regular expression of an item."""
    return str(item["pattern"]) if "pattern" in item else re.escape(str(item["item"]))


WHICH = """Which of these items does the answer meet?

Question:
{prompt}

Answer:
{completion}

Items:
{items}

End with the line "Met: " and their numbers, or "Met: none"."""


def meets_nothing(prompts: Sequence[str]) -> list[str]:
    """A chat model that finds no item met."""
    return ["Met: none" for _ in prompts]


@dataclass(frozen=True)
class ByChat(RubricJudge):
    """A chat model that lists the items that are met; without the list nothing is known.

    Source: by definition. Assumes a model that follows the form. Degenerate: a list of unknown numbers meets nothing.
    """

    ask: Chat
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"ask": meets_nothing},)

    def __call__(self, rows: Sequence[Row]) -> list[list[bool] | None]:
        met = [numbers_after(r"\bmet", said) for said in self.ask([asked(row) for row in rows])]
        return [
            None if own is None else [place in own for place in range(1, len(row["rubric"]) + 1)]
            for own, row in zip(met, rows, strict=True)
        ]


def asked(row: Row) -> str:
    """Returns what a chat model is asked about an answer."""
    items = numbered(one["item"] for one in row["rubric"])
    return filled(WHICH, {"prompt": row["prompt"], "completion": row["completion"], "items": items})
