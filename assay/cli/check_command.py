"""`assay check`: the laws of a user's own code."""

from __future__ import annotations

import argparse

from assay.claims.laws.file import check_file_apart
from assay.core.errors import AssayError
from assay.report import tables


def check(options: argparse.Namespace) -> int:
    """`assay check`: exit code 1 if a law does not hold."""
    if not options.file.is_file():
        raise AssayError(
            f"{options.file} does not exist. Name a Python file that defines a loss, credit, reward or environment."
        )
    return tables.print_checks(check_file_apart(options.file), options.json)
