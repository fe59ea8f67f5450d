"""open-rs's reward on given completions."""

from __future__ import annotations

from math import cos, pi

from assay.claims import probes
from assay.core.recipe import Recipe

TAG = "\n</think>\n"
ROWS = (
    ("7", 2), (f"{TAG}7", 12), (f"{'.' * 1780}{TAG}7", 1792), (f"{'.' * 3572}{TAG}7", 3584),
    (f"{'.' * 7156}{TAG}7", 3584),
    ("8", 2), (f"{TAG}8", 12), (f"{'.' * 1780}{TAG}8", 1792), ("8" * 7167, 3584), ("<think>7", 9), (f"{TAG}{TAG}7", 22),
)  # fmt: skip
"""Completions, and their numbers of tokens with the end token, at most 3584."""


def distance_from_formula(ours: Recipe, short: float = 0.0, long: float = -0.5) -> float:
    """`short` and `long` are what wrong answers get. Besides the rows above one that is right but cut, and one that
    left training.
    """
    said = [*(words for words, _ in ROWS), f"{TAG}7", "7"]
    rows = probes.answered(said, 8000, cut=[len(ROWS)], faults=[len(ROWS) + 1])
    expected = [1.0 + 2.0 * long, 0.0]
    for words, num in reversed(ROWS):
        first, last = (1.0, 0.5) if words.endswith("7") else (short, long)
        scaled = last + (first - last) * (1.0 + cos(pi * num / 3584)) / 2.0
        expected.insert(0, float(words.count(TAG) == 1) + 2.0 * scaled)
    return probes.distance(probes.rewarded(ours, *rows), expected)
