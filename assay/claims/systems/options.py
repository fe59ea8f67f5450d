"""How a method that is a system runs by default: the options in the plan of `assay train KEY`."""

from __future__ import annotations

from assay.runs.catalogue import find_method
from assay.runs.plan import make_plan


def other_options(key: str, **wanted: int) -> int:
    """Returns how many options in the plan of `assay train KEY` are missing, additional, or have another value."""
    options = make_plan(key, find_method(key)[1].default_task, evaluations=0).options
    there = options.record(decisive=True) | options.record(decisive=False)
    return sum(there.get(name) != wanted.get(name) for name in {*there, *wanted})
