"""Runs a finished run again from its folder, and compares what came out: scores, metrics and every tensor.

equal      every metric of every step, every held-out score and every tensor of the last checkpoint, bit by bit
within     largest |a - b| of the weights <= tolerance * largest |a|, and of the mean score alike
differs    anything else

Tensors have any shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core import store
from assay.core.errors import AssayError
from assay.core.trees import difference
from assay.engine import evaluation
from assay.engine.machine import describe_machine
from assay.runs.folder import read_metrics, without_time
from assay.runs.library_versions import VERSIONS, library_versions
from assay.runs.options.scoring import RebuiltOptions
from assay.runs.plan import Plan, plan_of
from assay.runs.progress import Mode
from assay.runs.ranges import range_of
from assay.runs.rebuilt import rebuilt_plan
from assay.runs.run import execute
from assay.runs.signals import resume_command
from assay.statistics.intervals import Change, measured_change

TOLERANCE = 1e-4
"""Relative difference up to which weights and scores are called within."""


class Outcome(Enum):
    """How the second run came out."""

    EQUAL = "equal bitwise"
    WITHIN = "within the tolerance"
    DIFFERS = "differs"


@dataclass(frozen=True)
class Reproduction:
    """Two runs of one plan compared."""

    outcome: Outcome
    tensors: int
    """Tensors of the last checkpoints that were compared: weights, optimizer states, buffers."""
    unequal: tuple[str, ...]
    """Paths in the last checkpoints, without times, that differ in some bit."""
    weight_gap: float
    """Largest difference of a weight, relative to the largest weight of its model; inf if shapes differ."""
    first_step: int | None
    """The first step whose metrics differ; None if none does."""
    change: Change
    """Held-out scores of the first run and of the second, paired by start."""
    versions: Mapping[str, tuple[str, str]]
    """What differs: name -> (then, now), "not there" where one of them lacks it."""
    is_recorded: bool
    """Whether the first run had recorded its versions."""


def reproduce(
    folder: Path,
    out: Path,
    *,
    tolerance: float = TOLERANCE,
    mode: Mode | None = None,
    accept_changed_code: bool = False,
    rebuilt: RebuiltOptions = RebuiltOptions(),
) -> Reproduction:
    """Runs the plan of a finished run again in `out`, from its first step, with what `rebuilt` gives in place of the
    run's own, and compares the two.

    An interrupted reproduction is resumed, a finished one only compared. AssayError for a run that is not finished.
    """
    if not 0.0 <= tolerance < 1.0:
        raise AssayError(f"--tolerance is {tolerance:g}. Use a relative difference from 0 to 1, e.g. {TOLERANCE:g}")
    rebuilt.check()
    plan = plan_of(folder, accept_changed_code=accept_changed_code, model=rebuilt.model)
    first = store.load(folder / "checkpoints")
    if first is None or not (first.step == plan.last_step or "ended" in first.tree):
        raise AssayError(f"{folder} is not finished, so it has no result. Finish it first: {resume_command(folder)}")
    if out.resolve() == folder.resolve():
        raise AssayError(f"--out is {out}, the run itself. Use another folder.")
    plan = rebuilt_plan(plan, rebuilt, {})
    execute(plan, out, mode=mode)
    return compare_runs(plan, folder, out, tolerance)


def compare_runs(plan: Plan, folder: Path, out: Path, tolerance: float) -> Reproduction:
    """Compares the last checkpoints and the journals of two finished runs of one plan."""
    first, second = (store.load(one / "checkpoints") for one in (folder, out))
    assert first is not None, "checked before the second run was started"
    assert second is not None, "a run ends with a checkpoint"
    ours, theirs = (without_seconds(one.tree) for one in (first, second))
    unequal = difference(ours, theirs)
    part = first_difference(read_metrics(folder), read_metrics(out))
    gap = largest_gap(first.tree["loop"]["engine"]["models"], second.tree["loop"]["engine"]["models"])
    scores = [np.asarray(one.tree["scores"][str(one.step)]) for one in (first, second)]
    same = evaluation.labels(plan.task, len(scores[0]))
    change = measured_change("held-out score", *scores, paired=True, labels=same, bounds=range_of(plan.task))
    moved = abs(change.after.value - change.before.value)
    is_within = gap <= tolerance and moved <= tolerance * max(1.0, abs(change.before.value))
    outcome = Outcome.EQUAL if not unequal and part is None else Outcome.WITHIN if is_within else Outcome.DIFFERS
    recorded = json.loads((folder / "config.json").read_text())
    then = {**recorded.get("machine", {}), **recorded.get(VERSIONS, {})}
    here = {**describe_machine(), **library_versions()}
    count = sum(1 for _ in tensors_of(ours))
    return Reproduction(
        outcome, count, tuple(unequal), gap, part, change, compared_facts(then, here), VERSIONS in recorded
    )


def without_seconds(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint's content without seconds, and without the lengths of journals, which hold some."""
    return {name: value for name, value in tree.items() if name not in ("seconds", "journal")}


def tensors_of(tree: Any) -> Iterator[Tensor]:
    """Yields the tensors of a tree."""
    if isinstance(tree, Tensor):
        yield tree
    below = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list | tuple) else ()
    for item in below:
        yield from tensors_of(item)


def first_difference(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> int | None:
    """Returns the first step whose metrics differ, times aside; None if all are equal."""
    pairs = zip(without_time(ours), without_time(theirs), strict=False)
    found = next((int(a["step"]) for a, b in pairs if a != b), None)
    if found is None and len(ours) != len(theirs):
        return min(len(ours), len(theirs))
    return found


def largest_gap(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """Returns the largest |a - b| of a model's tensors over the largest |a| of that model; inf if their shapes or
    names differ, NaN in one of them included.
    """
    worst = 0.0
    for name in {*ours, *theirs}:
        a, b = list(tensors_of(ours.get(name, {}))), list(tensors_of(theirs.get(name, {})))
        if [one.shape for one in a] != [one.shape for one in b]:
            return float("inf")
        size = max((float(one.double().abs().max()) for one in a if one.numel()), default=0.0)
        for x, y in zip(a, b, strict=True):
            if not torch.equal(x, y):
                gap = float((x.double() - y.double()).abs().max()) / (size or 1.0)
                worst = max(worst, gap) if gap == gap else float("inf")
    return worst


def compared_facts(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Returns the versions and machine facts that differ: name -> (then, now)."""
    both = {name: (str(then.get(name, "not there")), str(now.get(name, "not there"))) for name in {**then, **now}}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}
