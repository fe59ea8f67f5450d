"""All claims of one method: exact ones run, measured ones keep their entry or are measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.claims import verdicts
from assay.claims.claim import Measured
from assay.claims.find import find_claims

UNFINISHED = "unfinished"

Measure = Callable[[Measured], dict[str, Any] | None]
"""Measures a claim; returns its entry, None if time was up."""


def run_claims(
    name: str, measure: Measure, *, exact: bool = False, again: bool = False, folder: Path | None = None
) -> dict[str, Any]:
    """Runs a method's claims; the verdict file in `folder` is written when all of them are measured.

    Measured claims whose recipes, task and rule are as recorded keep their entry unless `again`. With `exact` those
    alone run, and nothing is written. The verdict is `unfinished` if time was up.
    """
    stated = find_claims(name)
    findings = [verdicts.exact_entry(one.run()) for one in stated.exact]
    report: dict[str, Any] = {"name": name, "claims": findings, "verdict": verdicts.overall(findings), "file": None}
    if exact or not stated.measured:
        return report
    entries: list[dict[str, Any]] = []
    for one in stated.measured:
        found = None if again else verdicts.fitting(name, one, folder)
        found = measure(one) if found is None else found
        if found is None:
            return report | {"claims": [*entries, unfinished(one), *findings], "verdict": UNFINISHED}
        entries.append(found)
    path = verdicts.write(name, entries, folder)
    return verdicts.read(name, path) | {"file": str(path)}


def unfinished(one: Measured) -> dict[str, Any]:
    """Returns the entry of a claim that there was no time for."""
    return {"name": one.name, "kind": "measured", "verdict": UNFINISHED, "rule": one.rule}
