"""How runs and comparisons show themselves: in a notebook a table and a curve, in plain HTML and SVG; in a console the
table as text.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, MARGIN = 520, 200, 34
COLOURS = ("#2f6fb0", "#c2571a", "#3f8f4f", "#8a4fa3", "#7a6a20", "#b03a5b")
"""Colours that are told apart in light and dark notebooks."""

Curve = tuple[Sequence[float], Sequence[float]]
"""Steps and values."""


def mean_curve(runs: Sequence[Sequence[Mapping[str, Any]]], metric: str = "evaluation") -> Curve:
    """Returns the mean of a metric over runs, at the steps that all of them have."""
    found = [{row["step"]: row[metric] for row in run if row.get(metric) is not None} for run in runs]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return steps, [sum(one[step] for one in found) / len(found) for step in steps]


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; texts are escaped."""
    style = "style='text-align:left;padding:.15em 1.2em .15em 0;font-variant-numeric:tabular-nums'"
    head = "".join(f"<th {style}>{html.escape(one)}</th>" for one in headings)
    cells = ["".join(f"<td {style}>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table as text, its columns aligned."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(line.rstrip() for line in padded)


def svg_curves(curves: Mapping[str, Curve], title: str) -> str:
    """Returns curves over steps with a legend; "" if none has two points."""
    shown = {name: curve for name, curve in curves.items() if len(curve[0]) > 1}
    if not shown:
        return ""
    steps = [step for curve in shown.values() for step in curve[0]]
    values = [value for curve in shown.values() for value in curve[1]]
    low, high = min(values), max(values)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)

    def place(step: float, value: float) -> str:
        across = MARGIN + (WIDTH - 2 * MARGIN) * (step - min(steps)) / max(1e-12, max(steps) - min(steps))
        up = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (value - low) / (high - low)
        return f"{across:.1f},{up:.1f}"

    drawn = []
    for number, (name, (at, found)) in enumerate(shown.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(place(step, value) for step, value in zip(at, found, strict=True))
        drawn.append(f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2'/>")
        row = MARGIN + 14 * number
        label = f"<text x='{WIDTH - MARGIN + 4}' y='{row}' fill='{colour}' font-size='11'>{html.escape(name)}</text>"
        drawn.append(label if len(shown) > 1 else "")
    bottom = HEIGHT - MARGIN
    words = [(MARGIN, bottom + 14, f"step {min(steps):g}"), (WIDTH - MARGIN - 40, bottom + 14, f"{max(steps):g}")]
    words += [(2, bottom, f"{low:.3g}"), (2, MARGIN, f"{high:.3g}"), (MARGIN, 14, title)]
    style = "font-size='11' fill='currentColor'"
    texts = "".join(f"<text x='{x}' y='{y}' {style}>{html.escape(text)}</text>" for x, y, text in words)
    room, told = WIDTH + (120 if len(shown) > 1 else 0), html.escape(title)
    return f"<svg width='{room}' height='{HEIGHT}' role='img' aria-label='{told}'>{texts}{''.join(drawn)}</svg>"
