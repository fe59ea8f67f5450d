"""`assay report`: runs as a page, tables, figures and a methods paragraph."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.claims import verdicts
from assay.core import store
from assay.core.errors import AssayError
from assay.core.trees import decode
from assay.report import claims as claim_tables
from assay.report import comparison as comparison_tables
from assay.report import page, paper, tables
from assay.report.figures import save_figures
from assay.report.journal import open_regular
from assay.report.results import Results
from assay.report.units import parsed_ranges

ESTIMATES, TEXTS = ("share", "added", "removed", "interaction"), ("short", "first", "second")
"""What a row of ablation.json has."""


def report(options: argparse.Namespace) -> int:
    """`assay report`: tables in the terminal, one HTML file, and the files that the options name."""
    asked = [options.csv, options.latex, options.pdf, options.methods_text]
    if not options.folders and not options.verdicts:
        raise AssayError("there is nothing to report. Name run folders, or add --verdicts for the verdicts.")
    if not options.folders and any(asked):
        raise AssayError("--csv, --latex, --pdf and --methods-text are made from runs. Name run folders.")
    ranges = parsed_ranges(options.range)
    files = verdicts.files(options.verdict_folder) if options.verdicts else {}
    if options.verdicts and not files:
        raise AssayError(f"there is no verdict in {options.verdict_folder}. Name a folder of KEY.json files.")
    for path in filter(None, (options.out, *asked)):
        store.check_target(path)
    found = [claim_tables.with_states(verdicts.read(name, path), name) for name, path in files.items()]
    known = page.Known()
    shown = [claim_tables.for_page(verdict) for verdict in found]
    data = page.gather(
        options.folders, shown, ranges=ranges, known=known, films=True, ablation=ablation_of(options.folders)
    )
    if unknown := [task for task in ranges if task not in data["tasks"]]:
        raise AssayError(f"--range names '{unknown[0]}', which no run has. Tasks: {', '.join(data['tasks'])}")
    results = page.read_results(options.folders, ranges, known=known) if options.folders else Results(())
    written = write_files(options, data, results)
    if options.json:
        facts = {"page": str(written[0]), "files": list(map(str, written)), "rows": data["comparison"]["rows"]}
        print(json.dumps(facts | {"runs": data["runs"], "notes": data["notes"]}, indent=2))
        return 0
    out = tables.console()
    if options.folders:
        comparison_tables.print_report(data, out)
    if found:
        out.print(claim_tables.summary_table(found))
        claim_tables.print_meanings(out)
    for note in data["notes"]:
        out.print(note, style="yellow", markup=False)
    for path in written:
        out.print(f"{path.suffix[1:] or 'file':5} {path}", markup=False)
    return 0


def write_files(options: argparse.Namespace, data: dict[str, Any], results: Results) -> list[Path]:
    """Writes the page and what the options name; returns the paths. The PDF comes first: it can be refused."""
    comparison, methods = data["comparison"], data["methods_text"]
    written = [save_figures(options.pdf, results, comparison)] if options.pdf else []
    texts = (
        (options.csv, lambda: paper.csv_text(comparison)),
        (options.latex, lambda: paper.latex_text(comparison, methods)),
        (options.methods_text, lambda: methods + "\n"),
    )
    written += [paper.save(path, text()) for path, text in texts if path]
    return [page.write(data, options.out or Path("report.html")), *written]


def ablation_of(folders: Sequence[Path]) -> dict[str, Any] | None:
    """Returns the shares of an `assay ablate` whose folder is the only one named; None without a complete record."""
    if len(folders) != 1:
        return None
    try:
        with open_regular(folders[0] / "ablation.json") as file:
            found = decode(json.loads(file.read()), {})
        estimates = [found["total"], *(row[name] for row in found["rows"] for name in ESTIMATES)]
        texts = [found["first"], found["second"], *(row[name] for row in found["rows"] for name in TEXTS)]
        is_whole = (
            isinstance(found["seeds"], list) and "complete" in found and all(isinstance(one, str) for one in texts)
        )
        is_whole = is_whole and all({"value", "low", "high"} <= set(one) for one in estimates)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if is_whole else None
