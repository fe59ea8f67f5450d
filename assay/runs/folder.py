"""A self-describing run folder: journals of metrics and samples, and a README.md.

A journal has one JSON object per line, appended and never rewritten:

    {"step": 3, "reward": 0.5, "kl": null, "not_finite": ["kl"], "time": {"at": 1790000000.0, "sample": 0.21}}

All times are under "time", so two runs are equal if they are equal without it. A number that is NaN or infinite is null
and named under "not_finite". An incomplete last line (the process was killed) is not a record: it is skipped when
reading and cut off on resume.

Tensors have any shape.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from assay.core.errors import AssayError
from assay.core.faults import TRACEBACK
from assay.core.store import open_own, write_text
from assay.runs.progress import Noted, duration
from assay.runs.terminal_curves import printable
from assay.statistics.intervals import Change, formatted, number

METRICS, SAMPLES, PICTURE, README = "metrics.jsonl", "samples.jsonl", "learning_curve.png", "README.md"
RESERVED = ("step", "time", "not_finite")
UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")  # valid in JSON, control codes in terminals
CONTENTS = {
    README: "this page, written by the run",
    "config.json": "every part and every setting of the run",
    METRICS: "one line per step: `step`, the metrics by name, `not_finite`, and all times under `time`",
    SAMPLES: "samples of the policy, one per line",
    "checkpoints": "everything needed to resume the run; verified when read",
    PICTURE: "the learning curve",
    "learning_curve.svg": "the learning curve, for print",
    "tensorboard": "event files: tensorboard --logdir FOLDER",
    "video": "held-out episodes, filmed by `assay evaluate --video`",
    "replay.txt": "why this run cannot be replayed bit by bit",
    "handed.json": "hashes of the states that phases handed on",
    "worker.log": "the last that own code printed in its worker processes",
    TRACEBACK: "where the last error in code came from",
    "run.lock": "held while a process works on this folder",
}


# ---------------------------------------------------------------------------------------------------- journals
class Journal:
    """The journals of a run, open for appending; every line reaches the operating system before the call returns."""

    def __init__(self, folder: Path | str) -> None:
        self.folder, self.files = Path(folder), dict[str, int]()
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (METRICS, SAMPLES):
            self.files[name] = open_own(self.folder / name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            os.ftruncate(self.files[name], whole_lines(self.files[name], self.size(name)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; safe to call twice."""
        while self.files:
            os.close(self.files.popitem()[1])

    def size(self, name: str) -> int:
        """Returns bytes in one journal."""
        return os.fstat(self.files[name]).st_size

    def metrics(self, step: int, values: Mapping[str, object], seconds: Mapping[str, float]) -> None:
        """Appends one line of metrics. Times and rates belong in `seconds`."""
        self.append(METRICS, step, values, {"at": round(time.time(), 3), **seconds})

    def sample(self, step: int, values: Mapping[str, object]) -> None:
        """Appends one sample of the policy."""
        self.append(SAMPLES, step, values, {})

    def append(self, name: str, step: int, values: Mapping[str, object], clock: Mapping[str, float]) -> None:
        """Writes one record; if the disk is full, removes the incomplete line and raises AssayError."""
        if taken := [key for key in RESERVED if key in values]:
            raise AssayError(
                f"{taken[0]!r} cannot be the name of a metric: {name} uses it for something else. Rename the metric."
            )
        lost: list[str] = []
        record = {"step": step} | plain(values, "", lost)
        record |= {"not_finite": lost} if lost else {}
        record |= {"time": plain(clock, "", [])} if clock else {}
        rest = memoryview((safe_json(record) + "\n").encode())
        before = self.size(name)
        try:
            while rest:
                rest = rest[os.write(self.files[name], rest) :]
        except OSError as error:
            os.ftruncate(self.files[name], before)
            what = f"{self.folder / name} could not be written ({error.strerror})"
            raise AssayError(f"{what}. Free some disk space and resume.") from error

    def offsets(self) -> dict[str, int]:
        """Flushes the journals to disk and returns their lengths, which a checkpoint stores."""
        for descriptor in self.files.values():
            os.fsync(descriptor)
        return {name: self.size(name) for name in self.files}

    def truncate(self, offsets: Mapping[str, int]) -> list[str]:
        """Truncates the journals to a checkpoint's lengths; returns a sentence for each one that does not match."""
        problems = []
        for name, descriptor in self.files.items():
            size, wanted = self.size(name), offsets.get(name, 0)
            kept = whole_lines(descriptor, min(size, wanted))
            os.ftruncate(descriptor, kept)
            if kept != wanted:
                seen = f"{wanted} bytes in whole lines then, {kept} of {size} now"
                problems.append(f"{self.folder / name} does not match the checkpoint ({seen}): some lines are missing")
        return problems


def whole_lines(descriptor: int, size: int) -> int:
    """Returns the length up to the end of the last line that ends within `size` bytes."""
    while size:
        begin = max(0, size - 4096)
        found = os.pread(descriptor, size - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return 0


def plain(value: Any, path: str, lost: list[str]) -> Any:
    """Returns a value for JSON; replaces a NaN or infinite number by None and adds its name to `lost`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        lost.append(path)
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{path}/{key}".removeprefix("/"), lost) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{path}/{place}", lost) for place, item in enumerate(value)]
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return plain(value.tolist(), path, lost)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value), path, lost)
    raise AssayError(
        f"{path!r} is a {type(value).__name__}. A journal holds numbers, text, lists and dicts of them only."
    )


def safe_json(record: Mapping[str, Any]) -> str:
    """Returns JSON in one line, in any script, with control codes of terminals escaped."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(record, ensure_ascii=False, allow_nan=False))


# ---------------------------------------------------------------------------------------------------- reading
def read_metrics(folder: Path | str) -> list[dict[str, Any]]:
    """Returns the records of metrics.jsonl."""
    return read_lines(Path(folder) / METRICS)


def read_samples(folder: Path | str) -> list[dict[str, Any]]:
    """Returns the records of samples.jsonl."""
    return read_lines(Path(folder) / SAMPLES)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Returns all records of a journal without an incomplete last line; AssayError names a damaged line before it."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError as error:
        raise AssayError(f"{path.parent} has no {path.name}, so it is not a run folder. Name a run folder.") from error
    records = []
    for place, line in enumerate(lines, 1):
        try:
            record = json.loads(line) if line.strip() else None
            if record is None and place == len(lines):
                break
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
        except (ValueError, RecursionError) as error:
            if place == len(lines):
                break
            raise AssayError(f"{path} line {place} is damaged ({error}). Remove it to read the rest.") from error
        records.append(record)
    return records


def without_time(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the records without times: equal for equal runs."""
    return [{key: value for key, value in record.items() if key != "time"} for record in records]


# ---------------------------------------------------------------------------------------------------- README
@dataclass(frozen=True)
class Facts:
    """The contents of a run's README; texts are untrusted and escaped."""

    title: str
    state: str
    settings: Mapping[str, object]
    repeat: str = ""
    resume: str = ""
    changes: Sequence[Change] = ()
    alarms: Sequence[Noted] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    machine: Mapping[str, object] = field(default_factory=dict)


def write_readme(folder: Path | str, facts: Facts) -> Path:
    """Writes README.md from the facts and the files of the folder."""
    folder = Path(folder)
    records = read_metrics(folder) if (folder / METRICS).is_file() else []
    sections = {
        "What was run": [*table(("setting", "value"), facts.settings.items()), *commands(facts)],
        "Results": results(facts.changes) + ["", f"![learning curve]({PICTURE})"] * (folder / PICTURE).is_file(),
        "Metrics": movements(records),
        "Alarms": [f"- {cell(each.text)} ({times(each)})" for each in facts.alarms] or ["None."],
        "Where the time went": time_account(facts.seconds),
        "Files": table(("file", "holds"), contents(folder), code=True),
        "Machine and versions": table(("what", "which"), (facts.machine or machine()).items()),
    }
    parts = [f"# {cell(facts.title)}\n\n{cell(facts.state)}"]
    parts += ["\n".join([f"## {heading}", "", *lines]) for heading, lines in sections.items()]
    write_text(folder / "README.md", "\n\n".join(parts) + "\n")
    return folder / "README.md"


def cell(value: object) -> str:
    """Returns text that Markdown shows verbatim."""
    return re.sub(r"([\\|`*\[\]<>&])", r"\\\1", printable(str(value), 500))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, code: bool = False) -> list[str]:
    """Returns a Markdown table; with `code` the first column is file names and the second is Markdown already."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    shown = ([f"`{cell(row[0])}`", str(row[1])] if code else [cell(each) for each in row] for row in rows)
    return lines + [f"| {' | '.join(row)} |" for row in shown]


def commands(facts: Facts) -> list[str]:
    """Returns the commands that repeat and resume the run."""
    pairs = (("Run it again:", facts.repeat), ("Resume it:", facts.resume))
    return [line for words, text in pairs if text for line in ("", words, "", f"    {printable(text, 2000)}")]


def times(noted: Noted) -> str:
    """Returns how often an alarm was raised and whether it stopped the run."""
    return ("once" if noted.count == 1 else f"{noted.count} times") + (", stopped the run" if noted.stop else "")


def results(changes: Sequence[Change]) -> list[str]:
    """Returns the table of scores before, after and their change, with intervals."""
    rows = []
    for row in changes:
        change = f"{formatted(row.change, signed=True)} {row.verdict}"
        rows.append((row.name, formatted(row.before), formatted(row.after), change, row.change.count))
    caption = ["", "In brackets: 95 % confidence intervals."]
    headings = ("measure", "before", "after", "change", "values")
    return [*table(headings, rows), *caption] if rows else ["Nothing was evaluated."]


def movements(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the table of first and last tenth, minimum and maximum of every metric."""
    columns: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.items():
            if name not in RESERVED and isinstance(value, int | float):
                columns.setdefault(name, []).append(float(value))
    rows = []
    for name, values in sorted(columns.items()):
        tenth = max(1, len(values) // 10)
        ends = sum(values[:tenth]) / tenth, sum(values[-tenth:]) / tenth, min(values), max(values)
        rows.append((name, *map(number, ends), len(values)))
    headings = ("metric", "first tenth", "last tenth", "lowest", "highest", "times measured")
    return table(headings, rows) if rows else ["Nothing was measured."]


def time_account(seconds: Mapping[str, float]) -> list[str]:
    """Returns the table of time and share of each phase."""
    total = sum(seconds.values()) or 1.0
    rows = [(phase, duration(spent), f"{spent / total:.0%}") for phase, spent in seconds.items()]
    return table(("phase", "time", "share"), rows) if rows else ["Not measured."]


def contents(folder: Path) -> list[tuple[str, str]]:
    """Returns every visible file of the folder and its contents; folders with a README are phases of the run."""
    names = sorted({path.name for path in folder.iterdir() if not path.name.startswith(".")} | {"README.md"})
    phases = (name for name in names if (folder / name / "README.md").is_file())
    known = CONTENTS | dict.fromkeys(phases, "a phase of this run, explained in its own README.md")
    return [(f"{name}/" if (folder / name).is_dir() else name, known.get(name, "")) for name in names]


def machine() -> dict[str, object]:
    """Returns the versions and the kind of machine that numbers may depend on."""
    devices = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    cores = f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}"
    return {**versions, "system": platform.platform(), "processor": cores, "GPUs": ", ".join(devices) or "none"}
