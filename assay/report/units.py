"""Units and ranges of scores, as far as a run's config determines them, and the number of held-out starts."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.core.errors import AssayError
from assay.engine.evaluation import EPISODES, PROMPTS
from assay.report.journal import is_count
from assay.runs import catalogue
from assay.runs.ranges import known_range, value_at
from assay.statistics.intervals import Estimate, formatted

METRIC_UNITS = {
    "entropy": "nats", "kl_to_old": "nats", "kl_to_reference": "nats", "kl": "nats", "length": "decisions",
    "longest": "decisions", "decisions": "decisions", "decisions_total": "decisions", "reward": "mean return",
    "cut": "share", "clipped": "share", "zero_advantage_groups": "share", "effective_samples": "share",
    "skipped": "share", "ratio": "mean ratio",
}  # fmt: skip
"""Units of the metrics that have one; the others are numbers of a loss or of a method."""


def is_language(config: Mapping[str, Any]) -> bool:
    """Returns whether decisions are tokens: the task's actions are a vocabulary, or it has prompts or a tokenizer."""
    task = config.get("task_settings")
    known = isinstance(task, Mapping) and bool({"items", "vocabulary", "tokenizer", "alphabet"} & set(task))
    return known or value_at(config, "task_settings", "spec", "action", "part") == "Vocabulary"


def parsed_ranges(words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Parses `--range TASK=LOW:HIGH`."""
    found = {}
    for word in words:
        task, _, ends = word.rpartition("=")
        low, _, high = ends.partition(":")
        try:
            found[task] = float(low), float(high)
        except ValueError:
            found[task] = math.nan, math.nan
        if not task or not found[task][0] < found[task][1] or math.isinf(sum(found[task])):
            raise AssayError(f"--range {word} is not of the form TASK=LOW:HIGH. Example: --range pendulum=-1600:0")
    return found


def score_words(config: Mapping[str, Any]) -> str:
    """Returns what a score of this task is: the label of an axis."""
    if known_range(config) == (0.0, 1.0):
        return "held-out score (share, 0 to 1)"
    return "held-out score per prompt" if is_language(config) else "held-out return per episode"


def held_out(config: Mapping[str, Any]) -> str:
    """Returns on how many held-out starts a score is measured: '256 prompts', '20 episodes'; the defaults for runs of
    earlier versions, which do not record it.
    """
    is_pairs = value_at(config, "task_settings", "part") == "PairsTask"
    kind = "preference pairs" if is_pairs else "prompts" if is_language(config) else "episodes"
    number = config.get("held_out")
    return f"{number if is_count(number) else PROMPTS if kind != 'episodes' else EPISODES:,} {kind}"


# ---------------------------------------------------------------------------------------------------- effects of claims
SHARES = ("pass", "right_signs", "true_score", "outcome/", "verdict/", "cut", "clipped", "zero_advantage")
"""Beginnings of the names of metrics between 0 and 1, whose differences are percentage points."""


def effect_words(claim: Mapping[str, Any]) -> str:
    """Returns the difference of a measured claim with interval and unit: '+31 [+20, +42] points'; '' without one."""
    if "estimate" not in claim:
        return ""
    rule = claim.get("decided_by") or {}
    unit = effect_unit(rule.get("metric"), str(rule.get("task") or ""))
    value, low, high = (scale_of(unit) * claim[name] for name in ("estimate", "low", "high"))
    return f"{formatted(Estimate(value, low, high, len(claim['seeds'])), signed=True)} {unit}"


def scale_of(unit: str) -> float:
    """Returns the factor from a difference to its unit: 100 for percentage points."""
    return 100.0 if unit == "points" else 1.0


def effect_unit(metric: Any, task: str) -> str:
    """Returns the unit of a claim's difference: points are percentage points of a share; a score has its own scale."""
    described = metric if isinstance(metric, Mapping) else {}
    part, name = str(described.get("part")), str(described.get("metric"))
    if part == "DecisionsTo":
        return "decisions"
    if part == "PassAt" or name.startswith(SHARES):
        return "points"
    if name.endswith("entropy"):
        return "nats"
    if name in ("length", "evaluation_cost"):
        return {"length": "tokens", "evaluation_cost": "cost"}[name]
    return score_unit(task)


def score_unit(task: str) -> str:
    """Returns the unit of a built-in task's scores: points in language, payoff in games, else return."""
    make = catalogue.built_in_task(task.partition(":")[0])
    while isinstance(make, functools.partial):
        make = make.func
    folders = getattr(make, "__module__", "").split(".")[2:]
    if "testbeds" in folders and "control" in folders:
        return "of a normalised score"
    units = {"language": "points", "control": "return", "tabular": "return", "games": "payoff"}
    return next((units[name] for name in folders if name in units), "score")
