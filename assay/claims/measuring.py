"""Measures claims: paired runs of both sides, look by look, and the entry of a verdict that they give."""

from __future__ import annotations
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from assay.claims.verdicts import entries_of, entry_problems, path_of, read, write
from assay.claims import stamps
from assay.claims.claim import Measured
from assay.claims.find import find_claims
from assay.claims.scoring import Kept, kept_of, pair_of
from assay.claims.stamps import SIDES
from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.runs.jobs import Failure, Result, run_jobs
from assay.runs.pools import Child, Job, Pool, Processes
from assay.statistics.intervals import Estimate, difference_interval


# ---------------------------------------------------------------------------------------------------- measuring
Watch = Callable[[int, int, Sequence[Child]], None]
UNDECIDED = "inconclusive"


def measure(
    method: str,
    claim: Measured,
    work: Path,
    *,
    seeds: Sequence[int] | None = None,
    first_seed: int = 0,
    deadline: float | None = None,
    workers: int | None = None,
    pool: Pool = Processes(),
    watch: Watch = lambda done, total, running: None,
    how: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any] | None:
    """Measures both sides on the seeds of the claim's rule, beginning with `first_seed`, or on these `seeds`; returns
    the claim's entry of a verdict, or None if the deadline came first. `how` are arguments of the plans of both sides
    (device, model, settings) with which the claim was not stated: what comes out is no verdict on it.

    Raises AssayError if a run failed. Runs are kept under `work` by description and stamp, so that a stopped
    measurement is resumed, claims share the runs of a baseline, and runs of other code are not reused.
    """
    stamp = stamps.stamp(claim)
    other = f"-{store.fingerprint({name: str(value) for name, value in how.items()})}" if how else ""
    named = {side: folder_name(claim, side, stamp[side]) + other for side in SIDES if is_recipe(claim, side)}
    folders = {side: work / name for side, name in named.items()}
    first = {folder: side for side, folder in reversed(folders.items())}
    runs = {side: first[folder] for side, folder in folders.items()}  # equal recipes run once, under the first's name
    found, seconds, scores = dict[tuple[str, int], Kept](), 0.0, {side: list[float]() for side in SIDES}
    for look in range(claim.looks):
        chosen = list(range(first_seed, first_seed + (look + 1) * claim.seeds)) if seeds is None else list(seeds)
        made = (job_of(claim, side, seed, at, how) for seed in chosen for at, side in first.items())
        jobs = [job for job in made if (job.arm, job.seed) not in found]
        asked = len(found) + len(jobs)
        tell = partial(tell_progress, watch, found, asked)
        for one in finished(claim, method, run_jobs(jobs, workers, pool=pool, deadline=deadline, watch=tell)):
            found[one.job.arm, one.job.seed], seconds = kept_of(claim, one), seconds + one.seconds
            tell(())
        if len(found) < asked:
            return None
        begin = time.monotonic()
        for seed in chosen[len(scores["ours"]) :]:
            for side, value in zip(SIDES, pair_of(claim, seed, runs, found), strict=True):
                scores[side].append(value)
        seconds += time.monotonic() - begin
        is_decided = judged(claim, scores["ours"], scores["theirs"])[1] != UNDECIDED
        if seeds is not None or is_decided or seconds > 60 * claim.minutes:
            break
    return entry(claim, scores, chosen, {stamps.machine_kind(): stamp}, seconds / 60)


def finished(claim: Measured, method: str, outcomes: Iterable[Result | Failure]) -> Iterator[Result]:
    """Yields the results of runs; raises AssayError at the first one that failed."""
    for one in outcomes:
        if isinstance(one, Failure):
            raise AssayError(f"claim '{claim.name}' of {method}: {one.job.arm}, seed {one.job.seed}: {one.reason}")
        yield one


def tell_progress(watch: Watch, found: Mapping[Any, Any], asked: int, running: Sequence[Child]) -> None:
    """Passes on how many of the runs are done."""
    watch(len(found), asked, running)



def is_recipe(claim: Measured, side: str) -> bool:
    """Returns whether a side is trained."""
    return isinstance(getattr(claim, side), Recipe)


def folder_name(claim: Measured, side: str, stamp: str) -> str:
    """Returns the name of the folder of a side's runs: equal for sides with equal description and stamp."""
    digest = store.fingerprint({"described": stamps.describe_side(claim, side), "stamp": stamp})
    return f"{getattr(claim, side).name}-{digest}"


def job_of(claim: Measured, side: str, seed: int, folder: Path, how: Mapping[str, Any]) -> Job:
    """Returns the run of a side and seed, with further arguments of its plan."""
    options = {"steps": claim.steps, "warmup": claim.warmup, **how}
    return Job(side, claim.task, seed, folder / f"seed-{seed}", getattr(claim, side), options)


def entry(
    claim: Measured,
    scores: Mapping[str, Sequence[float]],
    seeds: Sequence[int],
    stamped: Mapping[str, Mapping[str, str]],
    minutes: float,
) -> dict[str, Any]:
    """Returns the claim's entry of the file."""
    estimate, verdict = judged(claim, scores["ours"], scores["theirs"])
    return {
        "name": claim.name,
        "kind": "measured",
        "about": claim.about.value,
        "task": claim.task,
        "expect": claim.expect.value,
        "margin": claim.margin,
        "rule": claim.rule,
        "seeds": list(seeds),
        "ours": list(scores["ours"]),
        "theirs": list(scores["theirs"]),
        "estimate": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "verdict": verdict,
        "minutes": round(minutes, 2),
        "decided_by": stamps.deciding(claim),
        "stamps": dict(stamped),
    }


def judged(claim: Measured, ours: Sequence[float], theirs: Sequence[float]) -> tuple[Estimate, str]:
    """Returns the paired difference, and the verdict by the claim's rule."""
    estimate = difference_interval(ours, theirs, paired=True, level=claim.level)
    return estimate, claim.expect.verdict(estimate.low, estimate.high, claim.margin)



def replayed(
    method: str, work: Path, folder: Path | None = None, watch: Watch = lambda done, total, running: None
) -> bool:
    """Returns whether seed 0 of every stale claim reproduces the recorded scores; if so, stamps the file for the
    current recipes.

    Scores are equal bitwise on one machine kind; on another, a difference only means that the claim must be measured
    again.
    """
    found = find_claims(method)
    entries = entries_of(read(method, path_of(method, folder)))
    fresh, memo = [], dict[str, str]()
    for claim in found.measured:
        old = entries.get(claim.name)
        if old is None or entry_problems(old):
            return False
        stamped = old.get("stamps", {})
        if stamps.state(claim, old, memo) != stamps.FITS:
            one = measure(method, claim, work, seeds=[0], watch=watch)
            if one is None or any(abs(one[side][0] - old[side][0]) > 1e-9 for side in SIDES):
                return False
            stamped = one["stamps"]
        fresh.append(entry(claim, {side: old[side] for side in SIDES}, old["seeds"], stamped, old["minutes"]))
    write(method, fresh, folder)
    return True
