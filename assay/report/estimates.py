"""Estimates of a page's data as words: value and ends that may be missing, with the decimals of their column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from assay.statistics.intervals import Estimate, digits, even_decimals


def with_ends(one: Mapping[str, float | None]) -> Estimate | None:
    """Returns an estimate of a page's data, with infinite ends where they are not known; None without a value."""
    value, low, high = (one.get(name) for name in ("value", "low", "high"))
    if value is None:
        return None
    return Estimate(value, -math.inf if low is None else low, math.inf if high is None else high, 1)


def even_ends(column: Iterable[Mapping[str, float | None]]) -> int | None:
    """Returns the decimals that all estimates of a column of a page's data have."""
    return even_decimals(one for each in column if (one := with_ends(each)) is not None)


def interval_words(one: Mapping[str, float | None], decimals: int | None = None, *, signed: bool = False) -> str:
    """Returns '0.42 [0.37, 0.47]', the value alone if its interval is not known, '' without a value."""
    three = with_ends(one)
    if three is None:
        return ""
    shown, *ends = digits(three, signed=signed, decimals=decimals)
    return f"{shown} [{ends[0]}, {ends[1]}]" if math.isfinite(three.low + three.high) else shown
