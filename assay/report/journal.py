"""Reads the journals of run folders piece by piece: every line is parsed once, long curves are thinned while reading.

A journal is read from where the last reading ended, so that a page which refreshes pays for what was appended. Memory
is bounded by the number of records (24 bytes each) and of metrics (at most `2 * POINTS` points each), not by the size
of the file. A file that shrank or was replaced is read from its beginning. A symbolic link is not followed, a FIFO or a
device is not opened to wait: both are a note. So are lines that are damaged or longer than `LONGEST_LINE`.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import numpy as np

from assay.runs.folder import RESERVED, plain
from assay.statistics.curves import value_where

POINTS = 400  # of one metric of one run; more than a screen can show
LONGEST_LINE = 8 * 2**20
PHASES = ("sample", "reward", "credit", "update", "evaluate", "save")
MOST_ALARMS = 20


# ---------------------------------------------------------------------------------------------------- files
def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading; OSError with a reason for a symbolic link, a FIFO, a folder or a device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a symbolic link, which is not followed", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def signature(path: Path) -> tuple[int, ...]:
    """Returns what changes if a file does: device, inode, size and time; empty if it is not there."""
    try:
        state = os.lstat(path)
    except OSError:
        return ()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


@dataclass
class Lines:
    """The lines of a growing file, each once, with their offsets; remembers where the last reading ended."""

    path: Path
    identity: tuple[int, ...] = ()
    offset: int = 0
    count: int = 0
    long: int = 0
    is_inside: bool = False
    """Whether the offset is inside a line that is too long."""

    def has_restarted(self) -> bool:
        """Returns whether the file was replaced or is shorter than what was read, and then begins from its start."""
        now = signature(self.path)
        if self.identity in ((), now[:2]) and now and now[2] >= self.offset:
            self.identity = now[:2]
            return False
        is_known = bool(self.identity)
        self.identity, self.offset, self.count, self.long, self.is_inside = now[:2], 0, 0, 0, False
        return is_known

    def fresh(self) -> Iterator[tuple[int, bytes]]:
        """Yields offset and content of each new line. An incomplete last line is left for the next reading, unless it
        is a whole JSON object.
        """
        with open_regular(self.path) as file:
            file.seek(self.offset)
            while piece := file.readline(LONGEST_LINE):
                is_whole = piece.endswith(b"\n")
                is_long = self.is_inside or (not is_whole and len(piece) == LONGEST_LINE)
                if not is_whole and not is_long and as_object(piece) is None:
                    return
                start, self.offset = self.offset, self.offset + len(piece)
                self.long += is_long and not self.is_inside
                self.is_inside = is_long and not is_whole
                self.count += is_whole or not is_long
                if not is_long:
                    yield start, piece


def as_object(line: bytes) -> dict[str, Any] | None:
    """Returns the JSON object of a line, or None if it is not one; bytes that are not UTF-8 become U+FFFD."""
    try:
        found = json.loads(line.decode(errors="replace")) if line.strip() else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parsed(line: bytes) -> dict[str, Any] | None:
    """Returns the JSON object of a line with None for numbers that are not finite, which `not_finite` names."""
    found, lost = as_object(line), list[str]()
    if found is None:
        return None
    record: dict[str, Any] = plain(found, "", lost)
    if lost:
        record["not_finite"] = [*(record["not_finite"] if isinstance(record.get("not_finite"), list) else ()), *lost]
    return record


# ---------------------------------------------------------------------------------------------------- values
def is_number(value: Any) -> TypeGuard[float]:
    """Returns whether a value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e100


def is_count(value: Any) -> TypeGuard[int]:
    """Returns whether a value can be a step or a seed."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def short(value: float) -> float:
    """Rounds to six digits, enough for any screen; whole numbers become ints."""
    rounded = float(f"{value:.6g}")
    return int(value) if value.is_integer() and abs(value) < 2**53 else rounded


def spaced(values: Sequence[int], most: int) -> list[int]:
    """Returns at most `most` of the values, evenly spaced, with the first and the last."""
    if len(values) <= most:
        return list(values)
    if most < 2:
        return list(values[-most:] if most else ())
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


@dataclass
class Thinned:
    """One metric over the records: every `stride`-th value and the last; the stride doubles when there are many."""

    places: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    stride: int = 1
    seen: int = 0
    last: tuple[int, float] = (-1, 0.0)

    def add(self, place: int, value: float) -> None:
        """Adds the measurement of a record; a second one of the same record replaces the first."""
        is_again = place == self.last[0]
        self.last = place, value
        if is_again:
            if self.places and self.places[-1] == place:
                self.values[-1] = value
            return
        if self.seen % self.stride == 0:
            self.places.append(place)
            self.values.append(value)
            if len(self.places) == 2 * POINTS:
                self.places, self.values, self.stride = self.places[::2], self.values[::2], 2 * self.stride
        self.seen += 1

    def cut(self, place: int) -> None:
        """Forgets the measurements of records from this one on."""
        kept = bisect_left(self.places, place)
        del self.places[kept:], self.values[kept:]
        self.seen = kept * self.stride
        self.last = (self.places[-1], self.values[-1]) if kept else (-1, 0.0)

    def points(self, most: int) -> dict[int, float]:
        """Returns at most `most` values by record, the first and the last among them."""
        found = dict(zip(self.places, self.values, strict=True))
        if self.last[0] >= 0:
            found[self.last[0]] = self.last[1]
        return {place: found[place] for place in spaced(list(found), most)}


# ---------------------------------------------------------------------------------------------------- metrics.jsonl
@dataclass
class Journal:
    """What a page needs of metrics.jsonl. Of two records with one step the later counts; a step that is lower than the
    last one (a run was resumed) takes the place of the steps from there on.
    """

    lines: Lines
    steps: array[int] = field(default_factory=lambda: array("q"))
    decisions: array[float] = field(default_factory=lambda: array("d"))
    gaps: array[float] = field(default_factory=lambda: array("d"))
    """Seconds since the record before."""
    metrics: dict[str, Thinned] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    alarms: dict[str, int] = field(default_factory=dict)
    """Alarm messages with the first step of each."""
    recent: deque[list[str]] = field(default_factory=lambda: deque(maxlen=3))
    """Alarms of the last records."""
    lost: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Metrics that were NaN or infinite: at how many steps, and at which first."""
    damaged: tuple[int, int] = (0, 0)
    """Number of damaged lines, and the number of the first."""
    clock: float | None = None
    ended: bool = False
    """Whether the last record says that the run ended before its last step, as it was asked to."""
    problem: str = ""
    """Why the file cannot be read."""

    @classmethod
    def of(cls, path: Path) -> Journal:
        """Returns a journal that has read nothing yet."""
        return cls(Lines(path))

    def read(self) -> Journal:
        """Reads what is new; returns itself, or an empty journal in its place if the file was replaced."""
        if self.lines.has_restarted():
            return Journal.of(self.lines.path).read()
        try:
            for _, line in self.lines.fresh():
                record = as_object(line)
                if record is not None and is_count(record.get("step")):
                    self.add(record)
                elif line.strip():
                    self.damaged = self.damaged[0] + 1, self.damaged[1] or self.lines.count
            self.problem = ""
        except OSError as error:
            self.problem = error.strerror or str(error)
        return self

    def add(self, record: Mapping[str, Any]) -> None:
        """Adds one record."""
        step = record["step"]
        if self.steps and step < self.steps[-1]:
            self.rewind(bisect_left(self.steps, step))
        if not self.steps or step > self.steps[-1]:
            self.steps.append(step)
            self.gaps.append(0.0)
            self.decisions.append(np.nan if step or "decisions_total" in record else 0.0)
            self.recent.append([])
        if is_number(total := record.get("decisions_total")):
            self.decisions[-1] = total
        self.ended = "ended" in record
        self.add_times(record.get("time"))
        self.add_alarms(record.get("alarms"), step)
        place, named = len(self.steps) - 1, record.get("not_finite")
        gone = dict.fromkeys(map(str, named)) if isinstance(named, list) else dict[str, None]()
        for name, value in record.items():
            if name in RESERVED or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if abs(value) < 1e100:
                if name not in self.metrics:
                    self.metrics[name] = Thinned()
                self.metrics[name].add(place, float(value))
            elif isinstance(value, float) and not math.isfinite(value):
                gone[name] = None
        for name in gone:
            count, first = self.lost.get(name[:100], (0, step))
            self.lost[name[:100]] = count + 1, first

    def rewind(self, place: int) -> None:
        """Forgets the records from this one on; the time that they took stays."""
        spent = sum(self.gaps[place:])
        for column in (self.steps, self.decisions, self.gaps):
            del column[place:]
        if self.gaps:
            self.gaps[-1] += spent
        for thinned in self.metrics.values():
            thinned.cut(place)

    def add_times(self, times: Any) -> None:
        """Adds the seconds of the phases, and those since the record before."""
        if not isinstance(times, dict):
            return
        for phase in PHASES:
            if is_number(spent := times.get(phase)):
                self.phases[phase] = self.phases.get(phase, 0.0) + spent
        if is_number(now := times.get("at")):
            self.gaps[-1] += max(0.0, now - self.clock) if self.clock is not None else 0.0
            self.clock = now

    def add_alarms(self, messages: Any, step: int) -> None:
        """Keeps the first alarms, and those of the last records."""
        for text in map(str, messages) if isinstance(messages, list) else ():
            self.recent[-1].append(text[:500])
            if len(self.alarms) < MOST_ALARMS:
                self.alarms.setdefault(text[:500], step)

    def last(self, name: str) -> float | None:
        """Returns the last value of a metric."""
        found = self.metrics.get(name)
        return found.last[1] if found is not None and found.last[0] >= 0 else None

    def at(self, name: str, decisions: float) -> float | None:
        """Returns the value of a metric after this many decisions, linear between its measurements."""
        found = self.metrics.get(name)
        kept = [] if found is None else [(self.decisions[k], value) for k, value in found.points(POINTS).items()]
        known = [(path, value) for path, value in kept if not math.isnan(path)]
        if not known:
            return None
        path, values = zip(*known, strict=True)
        return value_where(path, values, decisions)

    def seconds(self) -> np.ndarray:
        """Returns the seconds since the first record, without the pauses between a stop and a resume."""
        gaps = np.asarray(self.gaps, dtype=np.float64)
        longest = max(60.0, 50 * float(np.median(gaps[1:]))) if len(gaps) > 1 else 0.0
        return np.cumsum(np.where(gaps <= longest, gaps, 0.0))

    def curves(self, most: int) -> dict[str, Any]:
        """Returns every metric over steps, decisions and seconds, each thinned to `most` points."""
        kept = {name: found.points(most) for name, found in sorted(self.metrics.items())}
        rows = sorted(set().union(*kept.values()))
        seconds = self.seconds()
        return {
            "step": [self.steps[row] for row in rows],
            "decisions": [short(value) if (value := self.decisions[row]) == value else None for row in rows],
            "seconds": [round(float(seconds[row]), 3) for row in rows],
            "values": {
                name: [short(points[row]) if row in points else None for row in rows] for name, points in kept.items()
            },
        }

    def notes(self, label: str, name: str) -> list[str]:
        """Returns one sentence for each thing that could not be read, and for each metric that was not finite."""
        found = []
        if self.problem:
            found.append(f"{label}/{name} cannot be read ({self.problem})")
        if self.damaged[0]:
            found.append(
                f"{label}/{name}: {plural(self.damaged[0], 'damaged line')} left out, the first is line "
                f"{self.damaged[1]}"
            )
        if self.lines.long:
            found.append(
                f"{label}/{name}: {plural(self.lines.long, 'line')} of more than {LONGEST_LINE >> 20} MB left out"
            )
        for metric, (count, first) in self.lost.items():
            found.append(f"{label}: {metric} was NaN or infinite at {plural(count, 'step')}, first at step {first}")
        return found


def plural(count: int, noun: str) -> str:
    """Returns '1 line', '2 lines'."""
    return f"{count:,} {noun}" + "s" * (count != 1)
