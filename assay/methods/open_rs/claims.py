"""open-rs's reward on given completions, and its loss by hand."""

from __future__ import annotations

from dataclasses import replace
from math import cos, pi

from assay.claims import by_hand, probes
from assay.core.recipe import Recipe
from assay.tasks.language.prompts import Item

TASK = probes.listed(Item("q", "7", "7"), max_tokens=8000)
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
    rows = probes.completed(TASK, said, [0] * len(said), cut=[len(ROWS)], faults=[len(ROWS) + 1])
    expected = [1.0 + 2.0 * long, 0.0]
    for words, num in reversed(ROWS):
        first, last = (1.0, 0.5) if words.endswith("7") else (short, long)
        scaled = last + (first - last) * (1.0 + cos(pi * num / 3584)) / 2.0
        expected.insert(0, float(words.count(TAG) == 1) + 2.0 * scaled)
    found = probes.rewarded(ours, TASK, rows).tolist()
    return max(abs(one - other) for one, other in zip(found, expected, strict=True))


def gap(ours: Recipe) -> float:
    """Returns the distance of the gradient on given rewards from grpo's by hand."""
    return probes.formula_gap(replace(ours, rewards=()), probes.sequences(), lambda seen: by_hand.grpo_loss(
        seen, by_hand.standardised(seen.experience)))  # fmt: skip
