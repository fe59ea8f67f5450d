"""Verdicts: measured claims as they came out, in files that anyone can check.

`verdicts/NAME.json` holds every score, so that the estimate, the interval and the verdict can be computed again; a
fingerprint of the recipes and of the code that they run, so that it is known when they are out of date; and a digest of
the file, so that an edit by hand is seen.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.claims.claim import Curves, Finding, Measured, Method
from assay.core import store
from assay.core.errors import AssayError
from assay.core.recipe import Recipe
from assay.engine.machine import describe_machine
from assay.evidence.intervals import Estimate, difference_interval
from assay.proof.fingerprints import SIDES, fingerprint, side_stamp
from assay.runs import catalogue
from assay.runs.jobs import Child, Failure, Job, Result, run_jobs

# ---------------------------------------------------------------------------------------------------- measuring
Watch = Callable[[int, int, Sequence[Child]], None]


def measure(
    method: str,
    claim: Measured,
    work: Path,
    *,
    seeds: Sequence[int] | None = None,
    deadline: float | None = None,
    workers: int | None = None,
    watch: Watch = lambda done, total, running: None,
) -> dict[str, Any] | None:
    """Both sides on all seeds: the claim's entry of a verdict; None where the deadline came first. Raises AssayError
    where a run failed. Runs are kept under `work` by what decides them, so that a stopped measurement goes on and
    claims share the runs of a rival.
    """
    chosen = list(range(claim.seeds)) if seeds is None else list(seeds)
    folders = {
        side: work / f"{recipe.name}-{side_stamp(method, claim, side)}"
        for side in SIDES
        if isinstance(recipe := getattr(claim, side), Recipe)
    }
    first = {folder: side for side, folder in reversed(folders.items())}
    jobs = [job_of(claim, side, seed, folder) for seed in chosen for folder, side in first.items()]
    found: dict[tuple[str, int], float] = {}
    seconds = 0.0
    cores = workers or os.cpu_count() or 1
    stream = run_jobs(jobs, cores, deadline=deadline, watch=lambda now: watch(len(found), len(jobs), now))
    for one in stream:
        if isinstance(one, Failure):
            raise AssayError(f"claim '{claim.name}' of {method}: {one.job.arm} with seed {one.job.seed}: {one.reason}")
        found[one.job.arm, one.job.seed] = score(claim, one)
        seconds += one.seconds
        watch(len(found), len(jobs), ())
    if len(found) < len(jobs):
        return None
    begin = time.monotonic()
    runs = {side: first[folder] for side, folder in folders.items()}  # equal recipes run once, under the first's name
    scores = {side: [value_of(claim, side, seed, runs, found) for seed in chosen] for side in SIDES}
    return entry(claim, scores, chosen, fingerprint(method, claim), (seconds + time.monotonic() - begin) / 60)


def job_of(claim: Measured, side: str, seed: int, folder: Path) -> Job:
    """The run of a side and seed."""
    options = {"steps": claim.steps, "warmup": claim.warmup}
    return Job(side, claim.task, seed, folder / f"seed-{seed}", getattr(claim, side), options)


def score(claim: Measured, result: Result) -> float:
    """The metric of a run."""
    curves: Curves = result.curves
    return float(claim.metric(curves))


def value_of(
    claim: Measured, side: str, seed: int, runs: Mapping[str, str], found: Mapping[tuple[str, int], float]
) -> float:
    """A side's score with a seed: of its run, or computed now."""
    if side in runs:
        return found[runs[side], seed]
    what = getattr(claim, side)
    return float(what(seed)) if callable(what) else float(what)


def entry(
    claim: Measured, scores: Mapping[str, Sequence[float]], seeds: Sequence[int], stamp: str, minutes: float
) -> dict[str, Any]:
    """The claim's part of the file."""
    estimate, verdict = judged(claim, scores["ours"], scores["theirs"])
    return {
        "name": claim.name,
        "kind": "measured",
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
        "fingerprint": stamp,
    }


def judged(claim: Measured, ours: Sequence[float], theirs: Sequence[float]) -> tuple[Estimate, str]:
    """The paired difference, and what the claim's rule says of it."""
    estimate = difference_interval(ours, theirs, paired=True)
    return estimate, claim.expect.verdict(estimate.low, estimate.high, claim.margin)


# ---------------------------------------------------------------------------------------------------- files
def path_of(method: str, folder: Path) -> Path:
    """verdicts/NAME.json."""
    return folder / f"{method}.json"


def write(method: str, entries: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """The verdict of a method: exact claims run now, measured ones as given."""
    _, found = catalogue.find_method(method)
    exact = [exact_entry(claim.run()) for claim in found.exact]
    verdict = {
        "name": method,
        "verdict": overall([*exact, *entries]),
        "made": time.strftime("%F"),
        "minutes": round(sum(one["minutes"] for one in entries), 2),
        "machine": describe_machine(),
        "claims": [*entries, *exact],
    }
    path = path_of(method, folder)
    store.write_text(path, json.dumps(verdict | {"digest": digest(verdict)}, indent=1) + "\n")
    return path


def exact_entry(finding: Finding) -> dict[str, Any]:
    """An exact claim's part of the file."""
    verdict = "holds" if finding.holds else "fails"
    value = finding.value
    return {"name": finding.claim, "kind": "exact", "value": value, "expected": finding.expected, "verdict": verdict}


def overall(entries: Sequence[Mapping[str, Any]]) -> str:
    """The worst of the claims' verdicts."""
    words = {one["verdict"] for one in entries}
    return next((word for word in ("fails", "inconclusive") if word in words), "holds")


def digest(verdict: Mapping[str, Any]) -> str:
    """Sixteen hex digits of everything but the digest itself."""
    rest = {name: value for name, value in verdict.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:16]


def read(path: Path) -> dict[str, Any]:
    """A verdict file; one sentence on what is wrong with it."""
    try:
        verdict = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read ({error}); measure it again: assay claim {path.stem}") from None
    if not isinstance(verdict, dict) or not isinstance(verdict.get("claims"), list):
        raise AssayError(f"{path} is no verdict; measure it again: assay claim {path.stem}")
    return verdict


def problems(path: Path) -> list[str]:
    """What is wrong with a committed verdict, in sentences: unreadable, edited, out of date, or another rule's."""
    try:
        verdict = read(path)
        method, found = catalogue.find_method(path.stem)
    except AssayError as error:
        return [str(error)]
    again = f"measure it again: assay claim {path.stem}"
    wrong = []
    if verdict.get("digest") != digest(verdict):
        wrong.append(f"{path} was edited after it was written; {again}")
    entries = {one.get("name"): one for one in verdict["claims"] if isinstance(one, dict)}
    for claim in found.claims:
        if claim.name not in entries:
            wrong.append(f"{path} lacks the claim '{claim.name}'; {again}")
        elif isinstance(claim, Measured):
            wrong += [f"{path}: '{claim.name}' {what}; {again}" for what in entry_problems(method, claim, entries)]
    known = {claim.name for claim in found.claims}
    wrong += [f"{path}: '{name}' is no claim of {method} any more; {again}" for name in entries if name not in known]
    return wrong


def entry_problems(method: str, claim: Measured, entries: Mapping[Any, Mapping[str, Any]]) -> list[str]:
    """What is wrong with one claim's entry."""
    one = entries[claim.name]
    try:
        estimate, verdict = judged(claim, one["ours"], one["theirs"])
        stored = np.array([one["estimate"], one["low"], one["high"]], dtype=np.float64)
    except (AssayError, KeyError, TypeError, ValueError) as error:
        return [f"cannot be computed again ({type(error).__name__}: {error})"]
    wrong = []
    if len(one["ours"]) != claim.seeds or one.get("seeds") != list(range(claim.seeds)):
        wrong.append(f"has {len(one['ours'])} seeds, the claim asks for {claim.seeds}")
    fresh = np.array([estimate.value, estimate.low, estimate.high])
    if verdict != one.get("verdict") or not np.allclose(stored, fresh, rtol=1e-9, atol=1e-12):
        wrong.append(
            f"says {one.get('verdict')} {stored.round(4).tolist()}, its scores say {verdict} {fresh.round(4).tolist()}"
        )
    if one.get("fingerprint") != fingerprint(method, claim):
        wrong.append("was measured with other code or settings")
    return wrong


def with_measured() -> dict[str, Method]:
    """The methods that have measured claims."""
    return {name: method for name, method in catalogue.methods().items() if method.measured}


def stalest_first(folder: Path) -> list[str]:
    """Methods with measured claims: those without a verdict first, then those out of date, then the oldest; stable."""

    def key(name: str) -> tuple[int, str]:
        path = path_of(name, folder)
        if not path.is_file():
            return (0, "")
        return (1 if problems(path) else 2, str(read(path).get("made", "")) if not problems(path) else "")

    return sorted(with_measured(), key=key)


def replayed(method: str, work: Path, folder: Path, watch: Watch = lambda done, total, running: None) -> bool:
    """Whether seed 0 of every out-of-date claim gives the recorded scores with today's code; then the file is stamped
    anew. Bitwise on one machine kind; elsewhere a difference only says that the claim must be measured again.
    """
    _, found = catalogue.find_method(method)
    entries = {one["name"]: one for one in read(path_of(method, folder))["claims"]}
    fresh = []
    for claim in found.measured:
        old = entries.get(claim.name)
        if old is None or old["seeds"] != list(range(claim.seeds)):
            return False
        stamp = fingerprint(method, claim)
        if old["fingerprint"] != stamp:
            one = measure(method, claim, work, seeds=[0], watch=watch)
            if one is None or any(abs(one[side][0] - old[side][0]) > 1e-9 for side in SIDES):
                return False
        fresh.append(entry(claim, {side: old[side] for side in SIDES}, old["seeds"], stamp, old["minutes"]))
    write(method, fresh, folder)
    return True
