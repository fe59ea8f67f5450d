"""`assay list`, `assay show` and `assay diff`: methods and how they differ."""

from __future__ import annotations

import argparse
import json

from assay.cli import remembered
from assay.core.errors import AssayError
from assay.recipes.families import KINDS, alike
from assay.report import sheet
from assay.report.console import console
from assay.report.overview import print_overview
from assay.runs import method_index


def list_methods(options: argparse.Namespace) -> int:
    """`assay list`: an overview, which needs no torch; the methods of a family or of other filters; or all of them."""
    if options.only is not None and options.family is not None:
        raise AssayError(f"the family is '{options.only}' and --family '{options.family}'. Leave one of them out.")
    if options.only is not None and method_index.key_of(options.only.partition(":")[0]) is not None:
        raise AssayError(f"'{options.only}' is a method, not a family. To read about it: assay show {options.only}")
    family = options.only if options.family is None else options.family
    if family is not None:
        check_family(family)
    filters = (family, options.kind, options.changes, options.verdict)
    if not any(one is not None for one in filters) and not options.all and not options.json:
        print_overview()
        return 0
    from assay.report import method_tables, methods
    from assay.runs import catalogue

    chosen = methods.Filter(*filters)
    rows = chosen(methods.method_rows())
    if options.json:
        broken = [{"name": name, "error": error} for name, error in methods.broken_methods().items()]
        print(json.dumps([*rows, *broken], indent=2))
    else:
        method_tables.print_methods(rows, list(catalogue.tasks()) if chosen == methods.Filter() else [])
    return 0


def check_family(family: str) -> None:
    """Raises AssayError for what is no family before torch is imported; says so if it is a kind of task."""
    known = sorted({entry.family for entry in method_index.entries().values() if entry.family})
    if any(alike(one, family) for one in known):
        return
    for kind in KINDS:
        if alike(kind, family):
            asked = kind.replace(" ", "-")
            raise AssayError(f"'{family}' is a kind of task, not a family. Its methods: assay list --kind {asked}")
    raise AssayError(f"--family is '{family}'. Choose one of: {', '.join(known)}")


def show_method(options: argparse.Namespace) -> int:
    """`assay show`: of a built-in method the sheet that is kept, which needs no torch, or one that is then kept."""
    if options.json:
        from assay.report import methods

        print(json.dumps(methods.method_facts(options.name, options.task), indent=2))
    elif options.task is None and remembered.is_built_in(options.name):
        sheet.draw(console(), remembered.kept_sheet(options.name, options.all, made_sheet))
    else:
        sheet.draw(console(), made_sheet(options.name, options.all, options.task))
    return 0


def made_sheet(name: str, everything: bool, task: str | None = None) -> list[sheet.Block]:
    """Returns what is printed of a method."""
    from assay.report import method_tables, methods
    from assay.runs import catalogue

    changes = methods.changes_of(catalogue.find_method(name)[1])
    return method_tables.method_sheet(methods.method_facts(name, task), changes, everything)


def keep_sheets() -> None:
    """Keeps the sheet of every built-in method, which `make` does after installing: then the first `assay show` is as
    fast as the second.
    """
    from assay.report import methods

    for row in methods.method_rows():
        remembered.kept_sheet(row["name"], False, made_sheet)


def diff(options: argparse.Namespace) -> int:
    """`assay diff`: a method against its base, or against another method."""
    from assay.report import method_tables, methods

    before, after, changes = methods.compare_methods(options.name, options.other, options.kind)
    if options.json:
        found = None if changes is None else methods.changes_as_json(changes)
        print(json.dumps({"before": before or None, "after": after, "changes": found}, indent=2))
    else:
        method_tables.print_difference(before, after, changes)
    return 0
