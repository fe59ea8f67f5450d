"""The range of rewards, and what counts as right: above its middle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeAlias

from assay.core.calls import OwnCodeError
from assay.core.errors import AssayError

Range: TypeAlias = tuple[float, float]
UNIT: Range = (0.0, 1.0)
"""The range of verifiers, and of every reward that declares none."""
RIGHT = 0.5
"""An outcome above it is right: the middle of the unit range, to which every declared range is mapped."""
ROUNDING = 1e-6
"""How far a score may leave its range by the rounding of a float32."""


def declared_range(function: Callable[..., Any], name: str) -> Range | None:
    """Returns the attribute `range` of a reward function, None without one; AssayError unless it is two finite numbers,
    the lower one first.
    """
    bounds = getattr(function, "range", None)
    if bounds is None:
        return None
    is_pair = isinstance(bounds, Sequence) and not isinstance(bounds, str) and len(bounds) == 2
    numbers = [float(one) for one in bounds if isinstance(one, int | float) and math.isfinite(one)] if is_pair else []
    if len(numbers) != 2 or not numbers[0] < numbers[1]:
        what = f"reward {name}: {name}.range is {bounds!r}"
        raise AssayError(f"{what}. Use two finite numbers, the lower one first, such as (-1, 1).")
    return numbers[0], numbers[1]


def share_of_range(value: float, bounds: Range) -> float:
    """Returns (value - low) / (high - low), from 0 to 1; 0 for an empty range."""
    low, high = bounds
    return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0


def is_inside(value: float, bounds: Range) -> bool:
    """Returns whether a number is in a range, up to rounding."""
    low, high = bounds
    slack = ROUNDING * max(1.0, abs(low), abs(high))
    return low - slack <= value <= high + slack


def readers_of(value: Any) -> list[str]:
    """Returns the names of the parts of a recipe that read outcomes as right or wrong, or as shares of right answers:
    they state `reads_shares = True`.
    """
    below = list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else []
    if is_dataclass(value):
        below = list(vars(value).values())
    own = [type(value).__name__] if getattr(value, "reads_shares", False) else []
    return own + [name for item in below for name in readers_of(item)]


def refuse_outside(names: str, value: float, row: str, bounds: Range, reason: str = "") -> OwnCodeError:
    """Returns the error for a reward outside of its range, with both ways to repair it: other numbers, or the range."""
    low, high = bounds
    widest = f"{min(low, value):g}, {max(high, value):g}"
    return OwnCodeError(
        f"{names} is {value:g} for {row}, outside of the range {low:g} to {high:g}{reason}. Return numbers inside of "
        f"it, or declare the range: NAME.range = ({widest}) beside the function, or --reward-range "
        f"{widest.replace(',', '')}"
    )


def check_unit(recipe: Any, names: str, scores: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises OwnCodeError for the first score that is not from 0 to 1, if a part of the recipe reads outcomes as right
    or wrong.
    """
    outside = [place for place, score in enumerate(scores) if not is_inside(score, UNIT)]
    readers = readers_of(recipe) if outside else []
    if readers:
        reason = f", and {readers[0]} of '{recipe.name}' reads rewards as right (above 1/2) or wrong"
        place = outside[0]
        raise refuse_outside(names, scores[place], shown_row(place, rows[place]), UNIT, reason)


def shown_row(place: int, row: Mapping[str, Any]) -> str:
    """Returns a row in words: its number, prompt and completion."""
    prompt, completion = (str(row.get(name, ""))[:60] for name in ("prompt", "completion"))
    return f"row {place} (prompt {prompt!a}, completion {completion!a})"
