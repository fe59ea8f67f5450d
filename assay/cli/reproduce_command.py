"""`assay reproduce`: runs a finished run again and says whether the same came out."""

from __future__ import annotations

import argparse
import json
from typing import Any

from assay.report import tables
from assay.runs.options.group import parsed_group
from assay.runs.options.scoring import RebuiltOptions
from assay.runs.progress import Mode
from assay.runs.reproduction import Outcome, Reproduction, reproduce
from assay.runs.user_code.known_runs import trust
from assay.statistics.intervals import formatted

DIFFERS = 5
"""Exit code of a run that did not come out again."""


def reproduce_run(options: argparse.Namespace) -> int:
    """`assay reproduce`."""
    out = options.out or options.folder.resolve().with_name(f"{options.folder.resolve().name}-again")
    mode = Mode.SILENT if options.json else None
    changed = options.accept_changed_code
    if options.trust_code:
        trust(options.folder)
    how = {"accept_changed_code": changed, "rebuilt": parsed_group(RebuiltOptions, vars(options))}
    found = reproduce(options.folder, out, tolerance=options.tolerance, mode=mode, **how)
    if options.json:
        print(json.dumps({"folder": str(out), **reproduction_facts(found)}, indent=2))
    else:
        for line in sentences(found):
            tables.console().print(line, markup=False, soft_wrap=True)
        tables.console().print(f"run folder  {out}", markup=False, soft_wrap=True)
    return DIFFERS if found.outcome is Outcome.DIFFERS else 0


def reproduction_facts(found: Reproduction) -> dict[str, Any]:
    """Returns a reproduction as JSON."""
    return {
        "outcome": found.outcome.value,
        "tensors": found.tensors,
        "unequal": list(found.unequal),
        "weight_gap": found.weight_gap,
        "first_step_that_differs": found.first_step,
        "score_then": vars(found.change.before),
        "score_now": vars(found.change.after),
        "change": vars(found.change.change),
        "versions": {name: {"then": then, "now": now} for name, (then, now) in found.versions.items()},
        "versions_recorded": found.is_recorded,
    }


def sentences(found: Reproduction) -> list[str]:
    """Returns what to print: the outcome, the scores, and which versions differ."""
    before, after = formatted(found.change.before), formatted(found.change.after)
    lines = [f"{found.outcome.value}: held-out score {before} then, {after} now"]
    if found.outcome is Outcome.EQUAL:
        lines[0] += f"; {found.tensors} tensors and the metrics of every step are the same bits"
    else:
        where = "the metrics are equal" if found.first_step is None else f"metrics part at step {found.first_step}"
        lines += [
            f"{where}; {len(found.unequal)} of the last checkpoint's entries differ, the first is "
            f"{next(iter(found.unequal), 'none')}; weights differ by {found.weight_gap:.2g} of the largest",
            f"change of the score, paired by start: {formatted(found.change.change, signed=True)}",
        ]
    if not found.is_recorded:
        lines.append("the run did not record the versions of its packages: it was made by an older assay")
    lines += [f"{name}: {then} then, {now} now" for name, (then, now) in sorted(found.versions.items())]
    return lines if found.versions else [*lines, "machine and versions are those of the run"]
