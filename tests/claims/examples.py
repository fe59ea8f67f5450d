"""Settings for parts that have some without a default and no `examples` of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.parts.sources.logged import Log, Logged


def length_reward(rows: list[dict[str, Any]]) -> list[float]:
    """Longer is better."""
    return [float(len(row["completion"])) for row in rows]


def two_lengths(one: dict[str, Any], other: dict[str, Any]) -> tuple[float, float]:
    """Longer episodes win."""
    return float(one["length"]), float(other["length"])


def shorter_is_better(prompts: Sequence[str]) -> list[str]:
    """A chat model that prefers the shorter answer, whichever place it has."""
    found = []
    for prompt in prompts:
        first, second = (prompt.split(f"Answer {name}:\n")[1].split("\n\n")[0] for name in "AB")
        found.append("Better: tie" if len(first) == len(second) else f"Better: {'AB'[len(second) < len(first)]}")
    return found


def always_five(prompts: Sequence[str]) -> list[str]:
    """A chat model that gives five points for everything."""
    return ["content: 5\nScore: 5" for _ in prompts]


EXAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "ChatJudge": ({"ask": shorter_is_better},),
    "ChatProgress": ({"ask": always_five},),
    "ChatReflection": ({"ask": always_five},),
    "ChatRubric": ({"ask": always_five},),
    "FunctionJudge": ({"function": two_lengths},),
    "FromFunction": ({"function": length_reward},),
    "Linear": ({"start": 1.0, "end": 0.1},),
    "OnStates": ({"source": Logged((Log(2),), batch=4), "members": 2},),
    "OverlongPenalty": ({"limit": 5, "margin": 0.6},),
    "WarmUp": ({"value": 1.0},),
}
