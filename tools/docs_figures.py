"""Draws the interval of a measured claim against its margin, as SVG that follows the colours of the page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from assay.statistics.intervals import number

WIDTH, HEIGHT, LEFT, RIGHT, LINE, AXIS = 480, 70, 16, 16, 26, 46
"""The picture, its borders, and the heights of the interval and of the axis."""


def allowed(claim: Mapping[str, Any]) -> tuple[float, float]:
    """Returns the range in which the interval of ours - theirs must lie for the claim to hold."""
    margin, expect = float(claim["margin"]), str(claim["expect"])
    if expect.startswith("-margin"):
        return -margin, margin
    return (margin, float("inf")) if ">" in expect else (float("-inf"), -margin)


def interval_figure(claim: Mapping[str, Any]) -> str:
    """Returns the figure: the allowed range shaded, 0 dashed, the estimate as a dot on its interval."""
    low, high, value = (float(claim[name]) for name in ("low", "high", "estimate"))
    begin, end = allowed(claim)
    finite = [one for one in (low, high, value, 0.0, begin, end) if abs(one) != float("inf")]
    least, most = min(finite), max(finite)
    room = 0.08 * (most - least or 1.0)
    least, most = least - room, most + room

    def x(at: float) -> float:
        share = (min(max(at, least), most) - least) / (most - least)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    bounds = {one for one in (begin, end) if abs(one) != float("inf")}
    marks = [mark(x(one), "margin") for one in sorted(bounds)] + ([] if 0.0 in bounds else [mark(x(0.0), "zero")])
    labels = [label(x(one), number(one), AXIS + 20) for one in spread({0.0, *bounds}, most - least)]
    words = (
        f"ours - theirs {number(value)}, interval {number(low)} to {number(high)}; "
        f"the claim holds from {number(begin)} to {number(end)}"
    )
    return "\n".join(
        [
            f'<svg class="claim {claim["verdict"]}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(words)}">',
            f'<rect class="allowed" x="{x(begin)}" y="8" width="{round(x(end) - x(begin), 1)}" height="{AXIS - 8}"/>',
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{AXIS}" y2="{AXIS}"/>',
            *marks,
            f'<line class="interval" x1="{x(low)}" x2="{x(high)}" y1="{LINE}" y2="{LINE}"/>',
            *(
                f'<line class="interval" x1="{x(at)}" x2="{x(at)}" y1="{LINE - 6}" y2="{LINE + 6}"/>'
                for at in (low, high)
            ),
            f'<circle class="estimate" cx="{x(value)}" cy="{LINE}" r="5"/>',
            *labels,
            "</svg>",
        ]
    )


def spread(numbers: set[float], span: float) -> list[float]:
    """Returns the numbers that can be labelled without overlap, those farthest from 0 first, then 0."""
    kept: list[float] = []
    for one in sorted(numbers, key=abs, reverse=True):
        if all(abs(one - other) > 0.07 * span for other in kept):
            kept.append(one)
    return kept


def mark(at: float, kind: str) -> str:
    """Returns a vertical line."""
    return f'<line class="{kind}" x1="{at}" x2="{at}" y1="8" y2="{AXIS + 4}"/>'


def label(at: float, text: str, height: int) -> str:
    """Returns a number under the axis."""
    return f'<text x="{at}" y="{height}" text-anchor="middle">{escape(text)}</text>'
