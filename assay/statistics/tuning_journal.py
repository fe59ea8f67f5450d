"""The journal of a search: every finished run is one line, and none is run again."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from assay.core.errors import AssayError
from assay.statistics.search_space import Settings

Report: TypeAlias = Callable[[float, float], None]
Objective: TypeAlias = Callable[[Settings, int, float, Report], float]



# ---------------------------------------------------------------------------------------------------- journal
@dataclass
class Journal:
    """Finished runs by (settings, seed, fraction), in memory and, with a path, as JSON lines on disk."""

    path: Path | None
    header: str
    runs: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # a run whose line was cut off by a kill is run again
        if whole != text:
            self.path.write_text(whole, encoding="utf-8")
        rows = [self.parsed(line, number) for number, line in enumerate(whole.splitlines(), 1)]
        if not rows:
            self.append({"search": self.header})
        elif rows[0].get("search") != self.header:
            raise AssayError(f"{self.path} is the journal of another space, plan or search: name another path")
        self.runs.update({row["key"]: as_score(row["score"]) for row in rows[1:]})

    def parsed(self, line: str, number: int) -> dict[str, Any]:
        """Parses one line; refuses anything but a JSON object."""
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise AssayError(f"line {number} of {self.path} is not JSON ({error}): remove the line") from error
        if not isinstance(row, dict) or not ({"search"} <= set(row) or {"key", "score"} <= set(row)):
            raise AssayError(f"line {number} of {self.path} is not a run of a search: remove the line")
        return row

    def append(self, row: Mapping[str, Any]) -> None:
        """Writes a line and flushes it to disk."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def score(self, objective: Objective, settings: Settings, seed: int, fraction: float) -> float:
        """Returns the score of a run, from the journal or by running it."""
        key = key_of(settings, seed, fraction)
        if key not in self.runs:
            curve: list[tuple[float, float]] = []
            score = as_score(objective(settings, seed, fraction, lambda part, value: curve.append((part, value))))
            known = score if math.isfinite(score) else None
            curve = [(float(part), float(value)) for part, value in curve if math.isfinite(value)]
            self.append({"key": key, "score": known, "curve": curve})
            self.runs[key] = score
        return self.runs[key]


def key_of(settings: Settings, seed: int, fraction: float) -> str:
    """Returns the name of a run: equal settings, seed and share of the budget are one run."""
    return json.dumps([dict(settings), seed, fraction], sort_keys=True)


def as_score(value: Any) -> float:
    """Returns the score as a number; -infinity for a failed run."""
    try:
        score = -math.inf if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise AssayError(f"the objective must return a number, got {value!r}: return the score of the run") from error
    return score if math.isfinite(score) else -math.inf
