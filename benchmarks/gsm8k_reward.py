"""The reward of GSM8K: 1 if the last number of an answer is the right one, else 0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

NUMBER = re.compile(r"(?:(?<![\w)\]])-)?\d+(?:,\d{3})*(?:\.\d+)?")
"""With or without thousands separated; the minus of a difference, as in 5-3, does not belong to its number."""


def value_of(text: str) -> Decimal | None:
    """Returns the last number of a text, None without one."""
    found = NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def last_number(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """Returns 1 for each completion whose last number is the last number of its answer."""
    pairs = ((value_of(said), value_of(right)) for said, right in zip(completions, answer, strict=True))
    return [float(said is not None and said == right) for said, right in pairs]
