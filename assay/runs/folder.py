"""A run folder that explains itself: journals of metrics and samples, and a README.md in plain words.

A journal is one JSON object a line, appended and never rewritten:

    {"step": 3, "reward": 0.5, "kl": null, "not_finite": ["kl"], "time": {"at": 1790000000.0, "sample": 0.21}}

Everything that a clock said is under "time", so two runs are equal when they are equal without it. A number that is not
finite is null and named under "not_finite". A line that a kill has torn is no record: it is dropped when reading and
cut off when writing goes on.
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
from assay.core.store import write_text
from assay.evidence.intervals import Change, formatted, number
from assay.runs.progress import Noted, duration
from assay.runs.terminal import printable

METRICS, SAMPLES, PICTURE = "metrics.jsonl", "samples.jsonl", "learning_curve.png"
RESERVED = ("step", "time", "not_finite")
UNSAFE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")  # JSON lets them be, terminals obey them
CONTENTS = {
    "README.md": "this page, written by the run",
    "config.json": "every part and every setting of the run",
    METRICS: "one line a step: `step`, the metrics by name, `not_finite`, and under `time` all that a clock said",
    SAMPLES: "what the policy did, for people to read: one line a sample",
    "checkpoints": "everything the run needs to go on; verified when read",
    PICTURE: "the learning curve",
    "learning_curve.svg": "the learning curve, for print",
    "run.lock": "held while a process works on this folder",
}


# ---------------------------------------------------------------------------------------------------- journals
class Journal:
    """The journals of a run, open for appending; every line reaches the operating system before the call returns."""

    def __init__(self, folder: Path | str) -> None:
        self.folder, self.files = Path(folder), dict[str, int]()
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (METRICS, SAMPLES):
            self.files[name] = os.open(self.folder / name, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
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
        """Bytes in one journal."""
        return os.fstat(self.files[name]).st_size

    def metrics(self, step: int, values: Mapping[str, object], seconds: Mapping[str, float]) -> None:
        """One line of metrics. What depends on a clock (phases, rates) belongs into `seconds`."""
        self.append(METRICS, step, values, {"at": round(time.time(), 3), **seconds})

    def sample(self, step: int, values: Mapping[str, object]) -> None:
        """One line of what the policy did."""
        self.append(SAMPLES, step, values, {})

    def append(self, name: str, step: int, values: Mapping[str, object], clock: Mapping[str, float]) -> None:
        """Writes one record; on a full disk takes half a line back and says so."""
        if taken := [key for key in RESERVED if key in values]:
            raise AssayError(f"{taken[0]!r} cannot be the name of a metric: it has a meaning of its own in {name}")
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
            raise AssayError(f"{what}: free some space and resume") from error

    def offsets(self) -> dict[str, int]:
        """Length of each journal, after making sure that so much is on the disk: to be stored with a checkpoint."""
        for descriptor in self.files.values():
            os.fsync(descriptor)
        return {name: self.size(name) for name in self.files}

    def truncate(self, offsets: Mapping[str, int]) -> list[str]:
        """Cuts the journals back to a checkpoint's lengths; sentences about what does not fit, for the run to show."""
        problems = []
        for name, descriptor in self.files.items():
            size, wanted = self.size(name), offsets.get(name, 0)
            kept = whole_lines(descriptor, min(size, wanted))
            os.ftruncate(descriptor, kept)
            if kept != wanted:
                seen = f"{wanted} bytes in whole lines then, {kept} of {size} now"
                problems.append(f"{self.folder / name} is not what the checkpoint saw ({seen}): some lines are missing")
        return problems


def whole_lines(descriptor: int, size: int) -> int:
    """The length up to the end of the last line that ends within `size` bytes."""
    while size:
        begin = max(0, size - 4096)
        found = os.pread(descriptor, size - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return 0


def plain(value: Any, path: str, lost: list[str]) -> Any:
    """A value as JSON has it; names what is not finite in `lost` and puts None in its place."""
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
    raise AssayError(f"{path!r} is a {type(value).__name__}: a journal holds numbers, text, lists and dicts of them")


def safe_json(record: Mapping[str, Any]) -> str:
    """JSON in one line, readable in any language, with what could act on a terminal escaped."""
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(record, ensure_ascii=False, allow_nan=False))


# ---------------------------------------------------------------------------------------------------- reading
def read_metrics(folder: Path | str) -> list[dict[str, Any]]:
    """The records of metrics.jsonl."""
    return read_lines(Path(folder) / METRICS)


def read_samples(folder: Path | str) -> list[dict[str, Any]]:
    """The records of samples.jsonl."""
    return read_lines(Path(folder) / SAMPLES)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All records of a journal; a torn last line is left out, a damaged one before it is an error that names it."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError as error:
        raise AssayError(f"{path.parent} holds no {path.name}: is it the folder of a run?") from error
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
            raise AssayError(f"{path} line {place} is damaged ({error}); remove it to read the rest") from error
        records.append(record)
    return records


def without_time(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The records without what a clock said: equal for equal runs."""
    return [{key: value for key, value in record.items() if key != "time"} for record in records]


# ---------------------------------------------------------------------------------------------------- README
@dataclass(frozen=True)
class Facts:
    """What the README of a run tells; texts may come from anywhere, they are escaped."""

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
    """Writes README.md from the facts and from what lies in the folder."""
    folder = Path(folder)
    records = read_metrics(folder) if (folder / METRICS).is_file() else []
    sections = {
        "What was run": [*table(("setting", "value"), facts.settings.items()), *commands(facts)],
        "Results": results(facts.changes) + ["", f"![learning curve]({PICTURE})"] * (folder / PICTURE).is_file(),
        "How the metrics moved": movements(records),
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
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\|`*\[\]<>&])", r"\\\1", printable(str(value), 500))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, code: bool = False) -> list[str]:
    """A Markdown table; with `code` the first column is file names and the second is Markdown already."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    shown = ([f"`{cell(row[0])}`", str(row[1])] if code else [cell(each) for each in row] for row in rows)
    return lines + [f"| {' | '.join(row)} |" for row in shown]


def commands(facts: Facts) -> list[str]:
    """How to run it again and how to go on."""
    pairs = (("Run it again:", facts.repeat), ("Go on where it stopped:", facts.resume))
    return [line for words, text in pairs if text for line in ("", words, "", f"    {printable(text, 2000)}")]


def times(noted: Noted) -> str:
    """How often an alarm came and what it did."""
    return ("once" if noted.count == 1 else f"{noted.count} times") + (", stopped the run" if noted.stop else "")


def results(changes: Sequence[Change]) -> list[str]:
    """Before, after and the change, with intervals."""
    rows = []
    for row in changes:
        change = f"{formatted(row.change, signed=True)} {row.verdict}"
        rows.append((row.name, formatted(row.before), formatted(row.after), change, row.change.count))
    caption = ["", "In brackets: 95 % confidence intervals."]
    headings = ("measure", "before", "after", "change", "values")
    return [*table(headings, rows), *caption] if rows else ["Nothing was evaluated."]


def movements(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """First and last tenth, lowest and highest of every metric."""
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
    """Time and share of each phase."""
    total = sum(seconds.values()) or 1.0
    rows = [(phase, duration(spent), f"{spent / total:.0%}") for phase, spent in seconds.items()]
    return table(("phase", "time", "share"), rows) if rows else ["Not measured."]


def contents(folder: Path) -> list[tuple[str, str]]:
    """Every file of the folder that is not hidden, and what it holds; folders with a README are phases of the run."""
    names = sorted({path.name for path in folder.iterdir() if not path.name.startswith(".")} | {"README.md"})
    phases = (name for name in names if (folder / name / "README.md").is_file())
    known = CONTENTS | dict.fromkeys(phases, "a phase of this run, explained in its own README.md")
    return [(f"{name}/" if (folder / name).is_dir() else name, known.get(name, "")) for name in names]


def machine() -> dict[str, object]:
    """The versions and the kind of machine that numbers may depend on."""
    devices = [torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())]
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    cores = f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}"
    return {**versions, "system": platform.platform(), "processor": cores, "GPUs": ", ".join(devices) or "none"}
