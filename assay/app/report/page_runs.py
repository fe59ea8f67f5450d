"""Reads run folders for a page. Damaged lines are counted, left out, and named in a note.

`find` walks to the run folders, `read` makes a Run of each, `name_arms` groups runs of one recipe with equal settings.
A run is finished if its last step is the planned one, running while the process that holds its lock is alive, and
stopped otherwise.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

from assay.core.errors import AssayError
from assay.core.store import LOCK, is_locked
from assay.runs.folder import METRICS, RESERVED, SAMPLES, plain

CONFIG = "config.json"
PHASES = ("sample", "reward", "credit", "update", "evaluate", "save")
NOT_SETTINGS = ("seed", "task", "task_settings", "machine", "fingerprint", "assay", "save_every", "evaluate_every")
POINTS = 400  # of one metric of one run; more than a screen can show
LARGEST_JOURNAL = 512 * 2**20
FRESH = 120.0  # seconds within which a run on another machine must have written to count as running


@dataclass
class Run:
    """One run folder."""

    folder: Path
    label: str
    config: dict[str, Any]
    method: str
    task: str
    seed: int
    records: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    arm: str = ""

    @property
    def step(self) -> int:
        """Returns the last measured step."""
        return self.records[-1]["step"] if self.records else 0

    @property
    def steps(self) -> int | None:
        """Returns the planned steps, or None if the config does not say."""
        steps = self.config.get("steps")
        return steps if is_count(steps) else None

    @property
    def state(self) -> str:
        """Returns finished, running or stopped."""
        if self.records and ("ended" in self.records[-1] or (self.steps is not None and self.step >= self.steps)):
            return "finished"
        return "running" if is_held(self.folder) else "stopped"

    @property
    def reason(self) -> str:
        """Returns why a run is not finished."""
        if self.state == "finished":
            return ""
        alarms = [text for record in self.records[-3:] for text in messages(record)]
        where = f"at step {self.step}" + (f" of {self.steps}" if self.steps is not None else "")
        if self.state == "running":
            return where if self.records else "started, nothing measured yet"
        if not self.records:
            return "nothing was measured"
        if self.steps is None:
            return f"{where}; its config does not say how many were planned"
        return f"stopped {where}" + (f": {alarms[-1][:500]}" if alarms else ", and no process holds the folder")

    @property
    def score(self) -> float | None:
        """Returns the score of the last evaluation."""
        return next((value for record in reversed(self.records) if is_number(value := record.get("evaluation"))), None)

    @property
    def decisions(self) -> float | None:
        """Returns the number of decisions so far."""
        found = (value for record in reversed(self.records) if is_number(value := record.get("decisions_total")))
        return next(found, None)

    def seconds(self) -> list[float]:
        """Returns the seconds since the first record, without the pauses between a stop and a resume."""
        stamps = [clock(record).get("at") for record in self.records]
        gaps = [b - a if is_number(a) and is_number(b) and b > a else 0.0 for a, b in pairwise(stamps)]
        longest = max(60.0, 50 * statistics.median(gaps)) if gaps else 0.0
        total, sums = 0.0, [0.0] * bool(stamps)
        for gap in gaps:
            total += gap if gap <= longest else 0.0
            sums.append(total)
        return sums

    def phases(self) -> dict[str, float]:
        """Returns the seconds of each phase; `other` is the rest."""
        spent = dict.fromkeys(PHASES, 0.0)
        for record in self.records:
            for phase in PHASES:
                value = clock(record).get(phase)
                spent[phase] += value if is_number(value) else 0.0
        rest = (self.seconds() or [0.0])[-1] - sum(spent.values())
        return {phase: round(value, 3) for phase, value in (spent | {"other": max(0.0, rest)}).items() if value > 0}

    def curves(self) -> dict[str, Any]:
        """Returns every metric over steps, decisions and seconds, thinned to what can be drawn."""
        places: dict[str, list[int]] = {}
        for place, record in enumerate(self.records):
            for name, value in record.items():
                if name not in RESERVED and is_number(value):
                    places.setdefault(name, []).append(place)
        kept = {name: set(spaced(found, POINTS)) for name, found in places.items()}
        rows = sorted(set().union(*kept.values()))
        values = {
            name: [short(self.records[row][name]) if row in chosen else None for row in rows]
            for name, chosen in sorted(kept.items())
        }
        seconds, decisions = self.seconds(), [record.get("decisions_total") for record in self.records]
        if decisions and decisions[0] is None:
            decisions[0] = 0 if self.records[0]["step"] == 0 else None
        return {
            "step": [self.records[row]["step"] for row in rows],
            "decisions": [decisions[row] if is_number(decisions[row]) else None for row in rows],
            "seconds": [round(seconds[row], 3) for row in rows],
            "values": values,
        }


# ---------------------------------------------------------------------------------------------------- values
def is_number(value: Any) -> TypeGuard[float]:
    """Returns whether a value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e100


def clock(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the times of a record."""
    found = record.get("time")
    return found if isinstance(found, dict) else {}


def messages(record: Mapping[str, Any]) -> list[str]:
    """Returns the alarms of a record."""
    found = record.get("alarms")
    return [str(text)[:500] for text in found] if isinstance(found, list) else []


def is_count(value: Any) -> TypeGuard[int]:
    """Returns whether a value can be a step or a seed."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def short(value: float) -> float:
    """Rounds to six digits, enough for any screen."""
    return value if isinstance(value, int) else float(f"{value:.6g}")


def spaced(values: Sequence[int], most: int) -> list[int]:
    """Returns at most `most` of the values, evenly spaced, with the first and the last."""
    if len(values) <= most:
        return list(values)
    if most < 2:
        return list(values[-most:] if most else ())
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


# ---------------------------------------------------------------------------------------------------- folders
def find(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """Returns the run folders in and below the given ones, each once, with a short name; phases belong to their run."""
    found: dict[Path, str] = {}
    for given in map(Path, folders):
        if not given.is_dir():
            raise AssayError(f"{given} is not a folder. Name a run folder, or a folder that contains some.")
        for path in below(given):
            name = path.relative_to(given).as_posix()
            found.setdefault(path.resolve(), given.resolve().name if name == "." else f"{given.resolve().name}/{name}")
    if not found:
        where = ", ".join(map(str, folders)) or "no folder"
        raise AssayError(f"there is no run in {where}. Name a folder that holds {METRICS} or {CONFIG}.")
    return list(found.items())


def below(folder: Path) -> Iterator[Path]:
    """Returns the run folders at any depth, in order of name."""
    for path, folders, files in os.walk(folder):
        if METRICS in files or (CONFIG in files and SAMPLES in files) or (CONFIG in files and LOCK in files):
            folders.clear()
            yield Path(path)
        folders[:] = sorted((name for name in folders if not name.startswith(".")), key=in_words)


def in_words(name: str) -> list[tuple[int, str]]:
    """Returns a key that sorts seed-2 before seed-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def is_held(folder: Path) -> bool:
    """Returns whether a process holds the folder's lock; on another machine, whether it has written lately."""
    try:
        text = (folder / LOCK).read_bytes()[:1000].decode(errors="replace") if (folder / LOCK).is_file() else ""
        found = re.fullmatch(r"process \d{1,9} on (\S+) since .*", text.strip())
        if found and found[1] != os.uname().nodename:
            return time.time() - (folder / METRICS).stat().st_mtime < FRESH
    except OSError:
        return False
    return is_locked(folder)


# ---------------------------------------------------------------------------------------------------- reading
def read(folder: Path, label: str) -> Run:
    """Reads one run; adds a note for what cannot be read."""
    notes: list[str] = []
    config = read_config(folder / CONFIG, label, notes)
    records = read_records(folder / METRICS, label, notes)
    outer = [part for part in label.split("/") if not re.fullmatch(r"seed-\d+", part)] or [label]
    in_path = re.search(r"(?:^|/)seed-(\d{1,15})(?:/|$)", label) or re.search(r"-(\d{1,15})$", label)
    seed = config.get("seed")
    return Run(
        folder,
        label,
        config,
        method=str(config.get("method") or own_name(config) or outer[1 if len(outer) > 1 else 0])[:200],
        task=str(config.get("task") or "unknown task")[:200],
        seed=seed if is_count(seed) else int(in_path[1]) if in_path else 0,
        records=records,
        notes=notes,
    )


def read_config(path: Path, label: str, notes: list[str]) -> dict[str, Any]:
    """Reads config.json; returns nothing and adds a note if it cannot be read."""
    try:
        config = parsed(path.read_bytes())
        if config is not None:
            return config
        what = "is not a JSON object"
    except FileNotFoundError:
        what = "is missing"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    notes.append(f"{label}/{CONFIG} {what}: method and seed are taken from the path")
    return {}


def read_records(path: Path, label: str, notes: list[str]) -> list[dict[str, Any]]:
    """Reads the records of metrics.jsonl in order of steps; of two with one step the later counts."""
    name = f"{label}/{METRICS}"
    try:
        if path.stat().st_size > LARGEST_JOURNAL:
            notes.append(f"{name} is larger than {LARGEST_JOURNAL >> 20} MB and was not read")
            return []
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        notes.append(f"{name} cannot be read ({error.strerror})")
        return []
    steps: dict[int, dict[str, Any]] = {}
    bad = []
    for place, line in enumerate(lines, 1):
        record = parsed(line)
        if record is not None and is_count(record.get("step")):
            steps.setdefault(record["step"], {}).update(record)
        elif line.strip() and place < len(lines):
            bad.append(place)
    if bad:
        notes.append(f"{name}: {plural(len(bad), 'damaged line')} left out, the first is line {bad[0]}")
    notes += lost_numbers(steps.values(), label)
    return [steps[step] for step in sorted(steps)]


def parsed(line: bytes) -> dict[str, Any] | None:
    """Returns the JSON object of a line, or None if it is not one; bytes that are not UTF-8 become U+FFFD."""
    lost: list[str] = []
    try:
        record = plain(json.loads(line.decode(errors="replace")), "", lost) if line.strip() else None
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict) and lost:
        record["not_finite"] = [*(record["not_finite"] if isinstance(record.get("not_finite"), list) else ()), *lost]
    return record if isinstance(record, dict) else None


def lost_numbers(records: Iterable[Mapping[str, Any]], label: str) -> Iterator[str]:
    """Yields one sentence for each metric that was NaN or infinite at some step."""
    lost: dict[str, list[int]] = {}
    for record in records:
        named = record.get("not_finite")
        for name in dict.fromkeys(map(str, named)) if isinstance(named, list) else ():
            lost.setdefault(name[:100], []).append(record["step"])
    for name, steps in lost.items():
        yield f"{label}: {name} was NaN or infinite at {plural(len(steps), 'step')}, first at step {min(steps)}"


def plural(count: int, noun: str) -> str:
    """Returns '1 line', '2 lines'."""
    return f"{count:,} {noun}" + "s" * (count != 1)


# ---------------------------------------------------------------------------------------------------- arms
def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Returns settings by dotted path."""
    if isinstance(value, Mapping) and value:
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        items = enumerate(value)
    else:
        return {path: value}
    return {key: leaf for name, item in items for key, leaf in flat(item, f"{path}.{name}".lstrip(".")).items()}


def settings(run: Run) -> dict[str, Any]:
    """Returns the settings that define an arm: the config without seed, task, machine and evaluation interval."""
    return flat({key: value for key, value in run.config.items() if key not in NOT_SETTINGS})


def own_name(config: Mapping[str, Any]) -> str | None:
    """Returns the name of a run's recipe, for recipes that are not a method's."""
    recipe = config.get("recipe")
    return str(recipe["name"]) if isinstance(recipe, Mapping) and recipe.get("name") else None


def name_arms(runs: Sequence[Run]) -> None:
    """Sets the arm of each run: its method, plus what differs if a method has several settings on a task."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.method, run.task), []).append(run)
    for group in groups.values():
        each = [settings(run) for run in group]
        names = list(dict.fromkeys(name for one in each for name in one))
        differing = [name for name in names if len({json.dumps(one.get(name)) for one in each}) > 1]
        for run, one in zip(group, each, strict=True):
            run.arm = run.method + (f" ({in_short(differing, one)})" if differing else "")
        texts = {run.arm: json.dumps(one, sort_keys=True) for run, one in zip(group, each, strict=True)}
        if len(texts) < len({json.dumps(one, sort_keys=True) for one in each}):
            variants = list(dict.fromkeys(json.dumps(one, sort_keys=True) for one in each))
            for run, one in zip(group, each, strict=True):
                run.arm += f" #{variants.index(json.dumps(one, sort_keys=True)) + 1}"


def in_short(names: Sequence[str], one: Mapping[str, Any]) -> str:
    """Returns the first settings that differ, without the path: 'learning_rate 0.001, epochs 4'."""
    chosen = list(dict.fromkeys(names))
    plain = [name for name in chosen if not name.startswith("settings.")] or chosen
    shown = [f"{name.split('.')[-1]} {json.dumps(one.get(name), default=str)}"[:60] for name in plain[:2]]
    more = len(plain) - 2
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
