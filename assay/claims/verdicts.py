"""Verdicts: the results of measured claims, in files that anyone can check.

`methods/KEY/verdict.json` holds every score, so that the estimate, the interval and the verdict can be computed again;
stamps of the recipes, so that a change of them is detected; and a digest of the file, so that an edit by hand is
detected.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.claims import stamps
from assay.claims.claim import Expect, Finding, Measured
from assay.claims.find import all_claims, find_claims
from assay.claims.records import BESIDE, has_verdict, record_path, update_record, verdict_in
from assay.core.errors import AssayError
from assay.engine.machine import describe_machine
from assay.runs import catalogue
from assay.statistics.intervals import difference_interval


def fitting(method: str, claim: Measured, folder: Path | None = None) -> dict[str, Any] | None:
    """Returns the recorded entry of a claim if it still fits the recipes; None if it must be measured."""
    path = path_of(method, folder)
    if not has_verdict(path):
        return None
    one = entries_of(read(method, path)).get(claim.name)
    if one is None or one.get("kind") == "exact" or entry_problems(one):
        return None
    return None if stamps.state(claim, one) == stamps.STALE else one


# ---------------------------------------------------------------------------------------------------- files
def path_of(method: str, folder: Path | None = None) -> Path:
    """Returns the file of a method's verdict: its record (see `records`), or KEY.json in another folder."""
    if folder is None:
        return record_path(method)
    own = catalogue.method_address(method)
    return folder / f"{own.stem if own else method}.json"


def files(folder: Path | None = None) -> dict[str, Path]:
    """Returns the verdict files there are, by method."""
    if folder is not None:
        return {path.stem: path for path in sorted(folder.glob("*.json"))}
    return {name: path for name in catalogue.methods() if has_verdict(path := path_of(name))}


def write(method: str, entries: Sequence[Mapping[str, Any]], folder: Path | None = None) -> Path:
    """Writes the verdict of a method: exact claims run now, measured ones as given."""
    exact = [exact_entry(claim.run()) for claim in find_claims(method).exact]
    verdict = {
        "name": method,
        "verdict": overall([*exact, *entries]),
        "made": time.strftime("%F"),
        "minutes": round(sum(one["minutes"] for one in entries), 2),
        "machine": describe_machine(),
        "claims": [*entries, *exact],
    }
    return save(path_of(method, folder), verdict)


def save(path: Path, verdict: Mapping[str, Any]) -> Path:
    """Writes a verdict with its digest."""
    return update_record(path, {**verdict, "digest": digest(verdict)}, keep=BESIDE)


def exact_entry(finding: Finding) -> dict[str, Any]:
    """Returns an exact claim's entry of the file."""
    verdict = "holds" if finding.holds else "fails"
    value = finding.value
    return {"name": finding.claim, "kind": "exact", "value": value, "expected": finding.expected, "verdict": verdict}


def overall(entries: Sequence[Mapping[str, Any]]) -> str:
    """Returns the worst of the claims' verdicts."""
    words = {one["verdict"] for one in entries}
    return next((word for word in ("fails", "inconclusive") if word in words), "holds")


def digest(verdict: Mapping[str, Any]) -> str:
    """Returns sixteen hex digits of everything but the digest itself, the mutants and the settings."""
    rest = {name: value for name, value in verdict.items() if name not in ("digest", *BESIDE)}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:16]


def read(method: str, path: Path) -> dict[str, Any]:
    """Reads a verdict file; AssayError if it cannot be read."""
    again = f"Measure it again: assay claim {method}"
    try:
        verdict = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read ({error}). {again}") from None
    if not isinstance(verdict, dict) or not isinstance(verdict.get("claims"), list):
        raise AssayError(f"{path} is not a verdict. {again}")
    return verdict_in(verdict)


# ---------------------------------------------------------------------------------------------------- problems
def problems(method: str, path: Path) -> list[str]:
    """Returns the problems of a verdict file, in sentences: unreadable, edited, or impossible numbers.

    A verdict whose recipes or claims have changed since is not wrong but stale; see `states`.
    """
    try:
        key = catalogue.find_method(method)[0]
        find_claims(key)
        verdict = read(key, path)
    except AssayError as error:
        return [str(error)]
    again = f"Measure it again: assay claim {key}"
    wrong = []
    if verdict.get("digest") != digest(verdict):
        wrong.append(f"{path} was edited after it was written. {again}")
    # Exact claims are run at every commit and on demand; the file keeps them only for display.
    for name, one in entries_of(verdict).items():
        if one.get("kind") != "exact":
            wrong += [f"{path}: '{name}' {what}. {again}" for what in entry_problems(one)]
    return wrong


def entries_of(verdict: Mapping[str, Any]) -> dict[Any, dict[str, Any]]:
    """Returns the entries of a verdict by the names of their claims."""
    return {one.get("name"): one for one in verdict["claims"] if isinstance(one, dict)}


def entry_problems(one: Mapping[str, Any]) -> list[str]:
    """Returns the problems of the numbers of a measured claim's entry, by the rule that it was measured with."""
    try:
        rule = one["decided_by"]
        looks = rule.get("looks", 1)
        estimate = difference_interval(one["ours"], one["theirs"], paired=True, level=1.0 - 0.05 / looks)
        verdict = Expect[rule["expect"]].verdict(estimate.low, estimate.high, rule["margin"])
        stored = np.array([one["estimate"], one["low"], one["high"]], dtype=np.float64)
        counts = {len(one[name]) for name in ("ours", "theirs", "seeds")}
        allowed = [(look + 1) * rule["seeds"] for look in range(looks)]
    except (AssayError, KeyError, TypeError, ValueError) as error:
        return [f"cannot be computed again ({type(error).__name__}: {error})"]
    wrong = []
    if len(counts) > 1 or len(one["seeds"]) not in allowed or one["seeds"] != list(range(len(one["seeds"]))):
        wrong.append(f"has {len(one['ours'])} seeds, its rule asks for {rule['seeds']}")
    fresh = np.array([estimate.value, estimate.low, estimate.high])
    if verdict != one.get("verdict") or not np.allclose(stored, fresh, rtol=1e-9, atol=1e-12):
        wrong.append(
            f"says {one.get('verdict')} {stored.round(4).tolist()}, its scores say {verdict} {fresh.round(4).tolist()}"
        )
    return wrong


# ---------------------------------------------------------------------------------------------------- states
def states(
    method: str, verdict: Mapping[str, Any], *, run: bool = False, memo: stamps.Memo | None = None
) -> dict[str, str]:
    """Returns the state of each measured claim: recorded in the file or, with `run`, by running it; new if the verdict
    does not have it. Entries of claims that the method no longer states are former.
    """
    entries, found = entries_of(verdict), dict[str, str]()
    for claim in find_claims(method).measured:
        if claim.name not in entries:
            found[claim.name] = stamps.NEW
        elif run:
            found[claim.name] = stamps.state(claim, entries[claim.name], memo)
        else:
            found[claim.name] = stamps.recorded_state(claim, entries[claim.name])
    measured = (name for name, one in entries.items() if one.get("kind") != "exact")
    return {**dict.fromkeys(measured, stamps.FORMER), **found}


def state(method: str, verdict: Mapping[str, Any]) -> str:
    """Returns the worst recorded state of a verdict's measured claims."""
    return stamps.worst(list(states(method, verdict).values()))


def stamp(method: str, folder: Path | None = None, memo: stamps.Memo | None = None) -> dict[str, str]:
    """Stamps the measured claims of a verdict for this machine kind, runs the exact ones, and returns the states.

    A claim without a stamp for it gets one: the caller must know that the recipes are those that were measured. A claim
    whose recipes differ from its stamp is marked stale and keeps its stamp; one whose recipes match it again loses the
    mark. AssayError if the file has problems.
    """
    path = path_of(method, folder)
    if wrong := problems(method, path):
        raise AssayError(wrong[0])
    verdict, here = read(method, path), stamps.machine_kind()
    measured = [one for one in verdict["claims"] if one.get("kind") != "exact"]
    verdict["claims"] = [*measured, *(exact_entry(one.run()) for one in find_claims(method).exact)]
    verdict["verdict"] = overall(verdict["claims"])
    entries, found = entries_of(verdict), {}
    for claim in find_claims(method).measured:
        if claim.name not in entries:
            found[claim.name] = stamps.NEW
            continue
        one = entries[claim.name]
        one.setdefault("decided_by", stamps.deciding(claim))
        if here not in one.setdefault("stamps", {}):
            one["stamps"][here] = stamps.stamp(claim, memo)
        found[claim.name] = stamps.state(claim, one, memo)
        one.pop("stale", None)
        if found[claim.name] == stamps.STALE:
            one["stale"] = time.strftime("%F")
    if verdict != read(method, path):
        save(path, {name: value for name, value in verdict.items() if name != "digest"})
    return found


def with_measured() -> list[str]:
    """Returns the methods that have measured claims."""
    return [name for name, claims in all_claims().items() if claims.measured]


def needs_measuring(method: str, folder: Path | None = None) -> bool:
    """Returns whether a method has no verdict, one with problems, or a stale one."""
    path = path_of(method, folder)
    return not has_verdict(path) or bool(problems(method, path)) or state(method, read(method, path)) == stamps.STALE


def stalest_first(folder: Path | None = None) -> list[str]:
    """Returns methods with measured claims: without a verdict first, then those to measure again, then by age."""

    def key(name: str) -> tuple[int, str]:
        path = path_of(name, folder)
        if not has_verdict(path):
            return (0, "")
        return (1, "") if needs_measuring(name, folder) else (2, str(read(name, path).get("made", "")))

    return sorted(with_measured(), key=key)


