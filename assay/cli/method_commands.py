"""`assay list`, `assay show` and `assay diff`: methods and how they differ."""

from __future__ import annotations

import argparse
import json

from assay.core.errors import AssayError
from assay.report.overview import print_overview


def list_methods(options: argparse.Namespace) -> int:
    """`assay list`: an overview, which needs no torch; the methods of a family or of other filters; or all of them."""
    if options.only is not None and options.family is not None:
        raise AssayError(f"the family is '{options.only}' and --family '{options.family}'. Leave one of them out.")
    family = options.only if options.family is None else options.family
    filters = (family, options.world, options.changes, options.verdict)
    if not any(one is not None for one in filters) and not options.all and not options.json:
        print_overview()
        return 0
    from assay.report import methods
    from assay.runs import catalogue

    chosen = methods.Filter(*filters)
    rows = chosen(methods.method_rows())
    if options.json:
        broken = [{"name": name, "error": error} for name, error in methods.broken_methods().items()]
        print(json.dumps([*rows, *broken], indent=2))
    else:
        methods.print_methods(rows, list(catalogue.tasks()) if chosen == methods.Filter() else [])
    return 0


def show_method(options: argparse.Namespace) -> int:
    """`assay show`."""
    from assay.report import methods
    from assay.runs import catalogue

    facts = methods.method_facts(options.name, options.task)
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        changes = methods.changes_of(catalogue.find_method(options.name)[1])
        methods.print_method(facts, changes, options.all)
    return 0


def diff(options: argparse.Namespace) -> int:
    """`assay diff`: a method against its base, or against another method."""
    from assay.report import methods

    before, after, changes = methods.compared(options.name, options.other, options.world)
    if options.json:
        found = None if changes is None else methods.told(changes)
        print(json.dumps({"before": before or None, "after": after, "changes": found}, indent=2))
    else:
        methods.print_difference(before, after, changes)
    return 0
