"""`assay list`, `assay show` and `assay diff`: methods and how they differ."""

from __future__ import annotations

import argparse
import json

from assay.report import methods
from assay.runs import catalogue


def list_methods(options: argparse.Namespace) -> int:
    """`assay list`."""
    chosen = methods.Filter(options.family, options.world, options.changes, options.verdict)
    rows = chosen(methods.method_rows())
    if options.json:
        broken = [{"name": name, "error": error} for name, error in methods.broken_methods().items()]
        print(json.dumps([*rows, *broken], indent=2))
    else:
        methods.print_methods(rows, list(catalogue.tasks()) if chosen == methods.Filter() else [])
    return 0


def show_method(options: argparse.Namespace) -> int:
    """`assay show`."""
    facts = methods.method_facts(options.name, options.task)
    if options.json:
        print(json.dumps(facts, indent=2))
    else:
        changes = methods.changes_of(catalogue.find_method(options.name)[1])
        methods.print_method(facts, changes, options.all)
    return 0


def diff(options: argparse.Namespace) -> int:
    """`assay diff`: a method against its base, or against another method."""
    before, after, changes = methods.compared(options.name, options.other, options.world)
    if options.json:
        found = None if changes is None else methods.told(changes)
        print(json.dumps({"before": before or None, "after": after, "changes": found}, indent=2))
    else:
        methods.print_difference(before, after, changes)
    return 0
