"""What the benchmarks share: every arm is a child process of its own, arms take turns, ratios are of medians."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from assay.engine.machine import describe_machine


def machine() -> dict[str, Any]:
    """Machine and versions, the peers' too."""
    from importlib.metadata import PackageNotFoundError, version

    peers = {}
    for name in ("stable-baselines3", "trl", "transformers", "gymnasium"):
        try:
            peers[name] = version(name)
        except PackageNotFoundError:
            peers[name] = None
    return describe_machine() | peers


def run_arm(module: str, arguments: Sequence[str], threads: int) -> dict[str, Any]:
    """One child process: `python -m module arguments` prints a JSON object on its last line."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def interleaved(module: str, arms: dict[str, Sequence[str]], repetitions: int, threads: int) -> list[dict[str, Any]]:
    """Every arm once, then every arm again: A B C A B C ...; one row an arm with all its numbers."""
    rows: dict[str, dict[str, Any]] = {name: {"arm": name} for name in arms}
    for _ in range(repetitions):
        for name, arguments in arms.items():
            result = run_arm(module, arguments, threads)
            for key, value in result.items():
                rows[name].setdefault(key, []).append(value)
    return list(rows.values())


def middle(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """The table of one benchmark."""
    names = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name.replace("_", " "))
    for row in rows:
        cells = []
        for name in names:
            value = row.get(name, "")
            numbers = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
            cells.append(middle(value) if numbers and value else str(value))
        table.add_row(*(cell.replace("[", "\\[") for cell in cells))
    Console(width=150).print(table)
