"""Tasks given as rows: a list of dicts, a dict of columns, a `datasets.Dataset`, a table of pandas, or a pair
(training, held out).

Rows are written to a file named by their content, and the file is the task: a run of them is recorded, resumed and
repeated like one of a file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError

FOLDER = Path("runs") / "data"
"""Where rows are written."""


def address_of_rows(task: Any) -> str:
    """Returns the address of the file that rows are written to, or of two files for a pair (training, held out).
    AssayError names a row that is no dict of JSON values.
    """
    if isinstance(task, tuple):
        return ",".join(str(written_rows(rows)) for rows in task)
    return str(written_rows(task))


def written_rows(rows: Any) -> Path:
    """Returns the file of rows; an existing one of equal content is used again."""
    lines = [json_line(row, place) for place, row in enumerate(iterate_rows(rows))]
    if not lines:
        raise AssayError('task has no rows. Give dicts such as {"prompt": ..., "answer": ...}')
    return written_text("".join(lines), ".jsonl", f"{name_of_rows(rows)}-")


def name_of_rows(rows: Any) -> str:
    """Returns what rows are called in the names of tasks and runs: a `datasets.Dataset` by its own name, if it has one,
    and its split; anything else is "rows".
    """
    info = getattr(rows, "info", None)
    words = [getattr(info, "dataset_name", None), getattr(rows, "split", None)]
    named = [re.sub(r"[^\w.]+", "-", str(word)).strip("-.") for word in words if word is not None and words[0]]
    return "-".join(filter(None, named)) or "rows"


def written_text(text: str, ending: str, begin: str = "") -> Path:
    """Returns the file of a text, named by its content; an existing one is used again."""
    path = FOLDER / f"{begin}{hashlib.sha256(text.encode()).hexdigest()[:12]}{ending}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def iterate_rows(rows: Any) -> Iterable[Any]:
    """Returns the rows of a table of pandas, of a dict of columns, which are lists of one length, or of anything that
    yields dicts.
    """
    as_records = getattr(rows, "to_dict", None)
    if as_records is not None and type(rows).__module__.startswith("pandas"):
        found: list[Any] = as_records("records")
        return found
    if isinstance(rows, Mapping) and rows and all(isinstance(column, list | tuple) for column in rows.values()):
        lengths = {name: len(column) for name, column in rows.items()}
        if len(set(lengths.values())) > 1:
            raise AssayError(f"the columns of the task have {lengths} rows. Give columns of one length")
        return [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
    if isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise AssayError(
            f"task is a {type(rows).__name__}. Give a name, a file, a task, an environment's class, a list of dicts, a "
            "dict of columns, a datasets.Dataset of one split, or a table of pandas"
        )
    return rows


def json_line(row: Any, place: int) -> str:
    """Returns a row as a line of JSON; None values, as tables have them for missing fields, are left out."""
    if not isinstance(row, Mapping):
        raise AssayError(f"row {place} of the task is a {type(row).__name__}, {row!r:.60}. Give dicts")
    try:
        return json.dumps({str(name): value for name, value in row.items() if value is not None}) + "\n"
    except (TypeError, ValueError) as error:
        raise AssayError(f"row {place} of the task cannot be written as JSON: {error}. Use texts and numbers") from None
