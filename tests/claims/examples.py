"""Settings for parts that have some without a default and no `examples` of their own."""

from __future__ import annotations

from typing import Any

from assay.parts.sources.logged import Log, Logged


def length_reward(rows: list[dict[str, Any]]) -> list[float]:
    """Longer is better."""
    return [float(len(row["completion"])) for row in rows]


def two_lengths(one: dict[str, Any], other: dict[str, Any]) -> tuple[float, float]:
    """Longer episodes win."""
    return float(one["length"]), float(other["length"])


EXAMPLES: dict[str, tuple[dict[str, Any], ...]] = {
    "FunctionJudge": ({"function": two_lengths},),
    "FromFunction": ({"function": length_reward},),
    "Linear": ({"start": 1.0, "end": 0.1},),
    "OnStates": ({"source": Logged((Log(2),), batch=4), "members": 2},),
    "OverlongPenalty": ({"limit": 5, "margin": 0.6},),
    "WarmUp": ({"value": 1.0},),
}
