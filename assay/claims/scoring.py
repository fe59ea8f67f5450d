"""The scores of the two sides of a measured claim with one seed: of their runs, or of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.claims.claim import Curves, Measured, OfBoth, OfPolicy
from assay.runs.jobs import Result
from assay.runs.run import loaded

Kept = float | Curves
"""What is kept of a run: its metric or, for a metric of both sides, its curves."""


def kept_of(claim: Measured, result: Result) -> Kept:
    """Returns the metric of a run, of its curves or of the policy that it trained; its curves for a metric of both."""
    if isinstance(claim.metric, OfBoth):
        return result.curves
    if isinstance(claim.metric, OfPolicy):
        plan = result.job.plan()
        return float(claim.metric.of(loaded(plan, result.job.folder).policy, plan.task))
    return float(claim.metric(result.curves))


def pair_of(
    claim: Measured, seed: int, runs: Mapping[str, str], found: Mapping[tuple[str, int], Any]
) -> tuple[float, float]:
    """Returns the scores of ours and theirs with a seed; `runs` has the arm under which a side was trained."""
    if isinstance(claim.metric, OfBoth):
        ours, theirs = (found[runs[side], seed] for side in ("ours", "theirs"))
        return claim.metric.of_both(ours, theirs)
    return value_of(claim, "ours", seed, runs, found), value_of(claim, "theirs", seed, runs, found)


def value_of(
    claim: Measured, side: str, seed: int, runs: Mapping[str, str], found: Mapping[tuple[str, int], Any]
) -> float:
    """Returns a side's score with a seed: of its run, or computed now."""
    if side in runs:
        return float(found[runs[side], seed])
    what = getattr(claim, side)
    return float(what(seed)) if callable(what) else float(what)
