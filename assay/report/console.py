"""The console of everything that is printed."""

from __future__ import annotations

import os

from rich.console import Console


def console() -> Console:
    """Returns the console of all tables; if the output is not a terminal, as wide as COLUMNS says, else 120 columns."""
    plain = Console(highlight=False)
    columns = os.environ.get("COLUMNS", "")
    if plain.is_terminal or (columns.isdecimal() and int(columns)):
        return plain
    return Console(highlight=False, width=120)
